//! How far a trigger has come: the part of its row that firing changes.

use super::{Offsets, Rules, Timetable};
use crate::time::UtcMillis;

/// How far a trigger has come. All times are nominal: what the schedule says, without jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The first instant that is not settled; none: the schedule has no more.
    pub next: Option<UtcMillis>,
    /// What is still to be caught up of a gap.
    pub backlog: Option<Backlog>,
    /// The instant that waits until nothing stands in its way.
    pub waiting: Option<UtcMillis>,
    /// Whether a person has paused it.
    pub paused: bool,
}

/// Instants of the schedule that get their runs one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// The next of them.
    pub next: UtcMillis,
    /// The last of them.
    pub last: UtcMillis,
}

impl Progress {
    /// A trigger that is kept from now on.
    pub fn begin<Z: Offsets>(timetable: &Timetable<Z>, now: UtcMillis) -> Self {
        Self { next: timetable.next_fire(now), backlog: None, waiting: None, paused: false }
    }

    /// When it is due next, as time passes. (What [`Self::owes`] is looked at again when a run of the task ends.)
    pub fn due(&self, rules: &Rules) -> Option<UtcMillis> {
        if self.paused { None } else { self.next.map(|next| next.plus(rules.delay)) }
    }

    /// Whether an instant waits for its turn.
    pub const fn owes(&self) -> bool {
        self.waiting.is_some() || self.backlog.is_some()
    }
}
