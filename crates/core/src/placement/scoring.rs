//! Which of the workers that match is the best: deterministic, so that every replica agrees.

use std::cmp::{Ordering, Reverse};

use super::Placement;
use crate::capability::Capabilities;
use crate::id::WorkerId;
use crate::limits::{CANDIDATES, PLACEMENT_PREFERENCE};
use crate::time::Millis;

/// How well a worker fits: the sum of the weights of the preferences it meets. Higher is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Score(i64);

impl Score {
    /// The score of stored or sent points.
    pub const fn new(points: i64) -> Self {
        Self(points)
    }

    /// The points.
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// A worker that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which worker.
    pub worker: WorkerId,
    /// How well it fits.
    pub score: Score,
    /// How many runs more it can take.
    pub free_slots: u32,
}

/// How well `capabilities` meet the preferences of `placement`.
pub fn score(placement: &Placement, capabilities: &Capabilities) -> Score {
    let met = placement
        .prefer()
        .iter()
        .filter(|preference| preference.labels.iter().all(|(key, text)| capabilities.labels.get(key) == Some(text)));
    Score(met.map(|preference| i64::from(preference.weight)).sum())
}

/// Which of two candidates is the better one, first the better: by score, then free slots, then worker id. The one order that
/// every replica judges by.
pub fn better(one: &Candidate, other: &Candidate) -> Ordering {
    let place = |candidate: &Candidate| (Reverse(candidate.score), Reverse(candidate.free_slots));
    place(one).cmp(&place(other)).then_with(|| one.worker.cmp(&other.worker))
}

/// The best first; at most [`CANDIDATES`], cut after matching.
pub fn rank(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by(better);
    candidates.truncate(CANDIDATES);
    candidates
}

/// To whom a run that has been due for `due_for` is left, of those who wait at other replicas: to the best of them, if it goes
/// before `here`, the best of this replica, and for a moment only. One order for all makes each replica find the same one.
pub fn left_to_another(
    due_for: Millis,
    here: &Candidate,
    elsewhere: impl IntoIterator<Item = Candidate>,
) -> Option<Candidate> {
    if due_for >= PLACEMENT_PREFERENCE {
        return None;
    }
    elsewhere.into_iter().min_by(better).filter(|best| better(best, here) == Ordering::Less)
}
