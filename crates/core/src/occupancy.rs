//! Which attempts hold their places: one predicate for limits, overlap, mutex and devices; and whether a limit has a
//! place left.
//!
//! A place is free again when nothing can be using it. Counted anew each time, under the lock of what has the limit, never
//! in a counter that could drift. A run holds one place, however many of its attempts hold it: another attempt of it is no
//! second run. (Control design, *Placement*.)

use crate::attempt::{Attempt, AttemptState};
use crate::counter::AttemptNumber;
use crate::id::{RunId, WorkerId};
use crate::run::{Policy, Run, RunState};
use crate::time::UtcMillis;

names! {
    /// Why an attempt holds its places.
    pub enum Hold as "hold" {
        /// A worker has it.
        Live = "live",
        /// Its run is lost, and its task wants no second beside it (`mutex`).
        InQuestion = "in_question",
        /// Something of it may still live, whatever became of its run.
        MayLive = "may_live",
    }
}

/// Why `attempt` of `run` holds its places; none: it holds none.
pub fn hold(run: &Run, attempt: &Attempt, policy: &Policy) -> Option<Hold> {
    let in_question =
        run.state == RunState::Lost && attempt.state == AttemptState::Lost && attempt.number == run.latest;
    if attempt.state.is_live() {
        Some(Hold::Live)
    } else if in_question && policy.mutex {
        Some(Hold::InQuestion)
    } else if attempt.may_live {
        Some(Hold::MayLive)
    } else {
        None
    }
}

/// Whether `attempt` of `run` holds its places.
pub fn occupies(run: &Run, attempt: &Attempt, policy: &Policy) -> bool {
    hold(run, attempt, policy).is_some()
}

names! {
    /// Whose limit of runs at once.
    pub enum LimitOf as "limit" {
        /// The task's, from the revision that a run has pinned (`limits.concurrency`).
        Task = "task",
        /// The project's (`leasehold project set`).
        Project = "project",
    }
}

/// A limit of runs at once, and how many of its places are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// How many runs may hold a place at once.
    pub limit: u32,
    /// How many do.
    pub occupied: u32,
}

impl Places {
    /// How many runs more may have one.
    pub const fn free(self) -> u32 {
        self.limit.saturating_sub(self.occupied)
    }
}

/// The limits that a waiting run is under, each with the places that *other* runs hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limited {
    /// Its task's limit, if that has one.
    pub task: Option<Places>,
    /// Its project's limit, if that has one.
    pub project: Option<Places>,
}

impl Limited {
    /// The limit that keeps the run waiting; none: there is a place for it.
    pub fn full(&self) -> Option<LimitOf> {
        let full = |places: Option<Places>| places.is_some_and(|places| places.free() == 0);
        match (full(self.task), full(self.project)) {
            (true, _) => Some(LimitOf::Task),
            (false, true) => Some(LimitOf::Project),
            (false, false) => None,
        }
    }
}

/// A run that holds a place: shown to whoever waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Which run.
    pub run: RunId,
    /// What people call it: its revision's name, or its command's first words.
    pub name: String,
    /// The first of its attempts that holds the place.
    pub attempt: AttemptNumber,
    /// Why that attempt does.
    pub hold: Hold,
    /// Who has it, or had.
    pub worker: Option<WorkerId>,
    /// Since when: the attempt's claim.
    pub since: UtcMillis,
}

/// A limit that a waiting run is under, with what holds its places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFact {
    /// Whose limit.
    pub of: LimitOf,
    /// The task's or project's name.
    pub name: String,
    /// How many there are, and how many other runs hold.
    pub places: Places,
    /// The other runs that hold one, those first that have held it longest; at most [`crate::limits::HOLDERS`].
    pub holders: Vec<Holder>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_full_when_others_hold_all_its_places() {
        let places = |limit, occupied| Some(Places { limit, occupied });
        let full = |task, project| Limited { task, project }.full();
        assert_eq!(full(None, None), None);
        assert_eq!(full(places(2, 1), places(3, 2)), None);
        assert_eq!(full(places(1, 1), None), Some(LimitOf::Task));
        assert_eq!(full(places(2, 1), places(3, 3)), Some(LimitOf::Project));
        assert_eq!(full(places(1, 1), places(1, 1)), Some(LimitOf::Task), "the nearer one is named");
        assert_eq!(full(None, places(2, 7)), Some(LimitOf::Project), "a limit may have been lowered meanwhile");
    }
}
