//! Which of the workers that match is the best: deterministic, so that every replica agrees.

use std::cmp::Reverse;

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

/// The best first: by score, then free slots, then worker id; at most [`CANDIDATES`], cut after matching.
pub fn rank(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by(|a, b| {
        (Reverse(a.score), Reverse(a.free_slots), &a.worker).cmp(&(Reverse(b.score), Reverse(b.free_slots), &b.worker))
    });
    candidates.truncate(CANDIDATES);
    candidates
}

/// Whether a run that has been due for `due_for` is left to a worker that waits at another replica: for a moment, and only
/// to one that fits better. Equal scores leave nothing: free slots and names there are old news, and waiting for them would
/// delay every other run for nothing.
pub fn left_to_another(due_for: Millis, here: Score, elsewhere: impl IntoIterator<Item = Score>) -> bool {
    due_for < PLACEMENT_PREFERENCE && elsewhere.into_iter().any(|score| score > here)
}
