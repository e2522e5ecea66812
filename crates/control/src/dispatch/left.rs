//! The runs that are left to those who fit better and wait at another replica: since when, and to whom.
//!
//! No run is left for longer than the preference, whatever is announced and whatever clocks say: the time counts by this
//! process's own boot-time clock from the first time on, and sooner where the store knows since when the run has been due.

use std::collections::HashMap;

use leasehold_core::id::RunId;
use leasehold_core::limits::{LEFT, PLACEMENT_PREFERENCE};
use leasehold_core::time::{BootInstant, Millis};

use crate::neighbours::Source;

/// How long a run is remembered that is found no more: somebody else has it.
const REMEMBERED: Millis = Millis::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Left(HashMap<RunId, LeftRun>);

#[derive(Debug)]
struct LeftRun {
    due_since: BootInstant,
    to: Source,
}

impl Left {
    /// How long a run has been due, as far as anybody knows; `submitted`: by the store, of one that was never claimed.
    pub(super) fn due_for(&self, run: RunId, submitted: Option<Millis>, now: BootInstant) -> Millis {
        match self.0.get(&run) {
            Some(left) => now.since(left.due_since).max(submitted.unwrap_or_default()),
            // No room to remember it: then it is not left.
            None if self.0.len() >= LEFT => PLACEMENT_PREFERENCE,
            None => submitted.unwrap_or_default(),
        }
    }

    /// A run that has been due for `due_for` is left to another.
    pub(super) fn leave(&mut self, run: RunId, due_for: Millis, to: Source, now: BootInstant) {
        let due_since = now.minus(due_for);
        self.0.entry(run).and_modify(|left| left.to = to).or_insert(LeftRun { due_since, to });
    }

    /// A run is claimed here after all; answers who had the whole time to take it, and did not.
    pub(super) fn taken_back(&mut self, run: RunId, now: BootInstant) -> Option<Source> {
        let left = self.0.remove(&run)?;
        (now.since(left.due_since) >= PLACEMENT_PREFERENCE).then_some(left.to)
    }

    /// When to look again, because a run will have been left for long enough.
    pub(super) fn look_again(&self, now: BootInstant) -> Option<Millis> {
        let waits = self.0.values().map(|left| PLACEMENT_PREFERENCE.minus(now.since(left.due_since)));
        waits.filter(|wait| *wait > Millis::ZERO).min()
    }

    /// Forgets what was found no more for long.
    pub(super) fn forget(&mut self, now: BootInstant) {
        self.0.retain(|_, left| now.since(left.due_since) < REMEMBERED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: BootInstant = BootInstant::new(1000);

    fn run(number: u64) -> RunId {
        format!("01900000-0000-7000-8000-{number:012}").parse().unwrap()
    }

    fn source() -> Source {
        Source { replica: "01900000-0000-7000-8000-000000000001".parse().unwrap(), number: 1 }
    }

    fn after(millis: u64) -> BootInstant {
        START.plus(Millis::new(millis))
    }

    #[test]
    fn the_time_counts_from_the_first_look_whatever_the_store_says_later() {
        let mut left = Left::default();
        assert_eq!(left.due_for(run(1), Some(Millis::new(40)), START), Millis::new(40));
        left.leave(run(1), Millis::new(40), source(), START);
        assert_eq!(left.look_again(START), Some(Millis::new(210)));
        assert_eq!(left.due_for(run(1), None, after(200)), Millis::new(240));
        assert_eq!(left.due_for(run(1), Some(Millis::ZERO), after(210)), PLACEMENT_PREFERENCE, "a clock stepped back");
        left.leave(run(1), Millis::new(1), source(), after(100));
        assert_eq!(left.due_for(run(1), None, after(210)), PLACEMENT_PREFERENCE, "left again is no new beginning");
        assert_eq!(left.look_again(after(210)), None);
        assert_eq!(left.due_for(run(2), Some(Millis::from_secs(9)), START), Millis::from_secs(9));
    }

    #[test]
    fn whoever_had_the_whole_time_is_named_and_nobody_else() {
        let mut left = Left::default();
        for run in [run(1), run(2)] {
            left.leave(run, Millis::ZERO, source(), START);
        }
        assert_eq!(left.taken_back(run(1), after(249)), None, "it was better placed here by then");
        assert_eq!(left.taken_back(run(2), after(250)), Some(source()));
        assert_eq!(left.taken_back(run(3), after(250)), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut left = Left::default();
        for number in 0..LEFT as u64 {
            left.leave(run(number), Millis::ZERO, source(), START);
        }
        assert_eq!(left.due_for(run(9999), None, START), PLACEMENT_PREFERENCE, "no more are left");
        left.forget(after(REMEMBERED.get()));
        assert_eq!(left.due_for(run(9999), None, START), Millis::ZERO);
    }
}
