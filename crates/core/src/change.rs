//! What a decision changes: whole records and their events, for a store to write in one transaction.
//!
//! Decisions load nothing and save nothing. A store loads the records, asks, and writes the change back with a
//! compare-and-swap on each record's version; an empty change writes nothing.

use crate::attempt::Attempt;
use crate::event::NewEvent;
use crate::lease::Lease;
use crate::run::Run;

/// The records to write, all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The run, with its version already grown (by more than one where one call makes two steps): compare with the loaded one.
    pub run: Option<Run>,
    /// The attempt, with its version already grown, likewise.
    pub attempt: Option<Attempt>,
    /// Another attempt of the same run that ends because of this change, or attempt N+1 that begins.
    pub other_attempt: Option<Attempt>,
    /// The lease.
    pub lease: Option<Lease>,
    /// Events, in order; the store gives each the run's next sequence.
    pub events: Vec<NewEvent>,
}

impl Change {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
