//! What the ledger of a trigger says: one line for every due instant, and one for a gap.
//!
//! A line is known by its trigger and its nominal time; a later line about the same time takes its place (what waited
//! fires). Whatever is due ends up in exactly one of them: nothing is left out silently. A line is kept for people, and for a
//! time: that an instant has its run stands in the run, or what is forgotten here could fire again. (Control design,
//! *Triggers*.)

use crate::id::RunId;
use crate::limits::LEDGER_AGE;
use crate::time::UtcMillis;

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// About one instant.
    At(UtcMillis, Happened),
    /// About all instants of a stretch of time.
    Gap(Gap),
}

/// What happened to an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// A run was admitted for it.
    Fired,
    /// A run was admitted for it, after nothing could fire when it was due.
    CaughtUp,
    /// A run was admitted for it, because a person asked for it afterwards.
    Backfilled,
    /// It waits until nothing stands in its way.
    Waits,
    /// It gets no run.
    Skipped(InTheWay),
}

impl Happened {
    /// Whether a run is to be admitted for it, in the same transaction.
    pub const fn admits(self) -> bool {
        matches!(self, Self::Fired | Self::CaughtUp | Self::Backfilled)
    }
}

/// What stood in the way of an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTheWay {
    /// A run of the same task.
    Run(RunId),
    /// Another instant of this trigger: the run that is admitted for it, or the place that it took.
    Instant(UtcMillis),
}

/// From when on the ledger of a trigger is kept, whose line of the number [`crate::limits::LEDGER_LINES`], counted from the
/// newest, is at `newest`. What is over before that may go, except for what still waits. None: it has not as many.
pub fn kept_from(newest: Option<UtcMillis>, now: UtcMillis) -> Option<UtcMillis> {
    newest.map(|at| at.min(now.minus(LEDGER_AGE)))
}

/// Instants that got no run and will get none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first: UtcMillis,
    /// The last of them.
    pub last: UtcMillis,
    /// How many.
    pub instants: u64,
    /// Why.
    pub why: GapReason,
}

names! {
    /// Why instants were missed.
    pub enum GapReason as "reason of a gap" {
        /// Nothing could fire when they were due.
        Down = "down",
        /// The trigger was paused.
        Paused = "paused",
        /// The schedule was changed before they had their turn.
        Edited = "edited",
        /// A backup was restored; what happened since is not known.
        Restored = "restored",
        /// The task was deleted before they had their turn.
        Deleted = "deleted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_stay_and_so_does_what_is_young() {
        let now = UtcMillis::new(0).plus(LEDGER_AGE.times(3));
        let (young, old) = (now.minus(LEDGER_AGE), UtcMillis::new(7));
        assert_eq!(kept_from(None, now), None);
        assert_eq!(kept_from(Some(old), now), Some(old), "rare ones");
        assert_eq!(kept_from(Some(now), now), Some(young), "and frequent ones");
    }
}
