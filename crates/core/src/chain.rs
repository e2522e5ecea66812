//! Chains: a task runs after others, once each of them has succeeded since its last run.
//!
//! A success that a follower has not taken yet is an *arrival*. What a follower makes of its arrivals depends on their order
//! alone, never on when anybody looks: a pass that comes late admits the same runs. Nothing here builds a graph of runs; an
//! edge is a name in `after`. (Product, *A task file*.)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::crypto::{Digest, Domain};
use crate::id::{AttemptId, IdError, ProjectName, RunId, TaskName};
use crate::time::{Entropy, UtcMillis};

mod edges;

pub use edges::{Broken, Edges};

/// A success of a predecessor that a follower has not taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// When the run's question was closed.
    pub at: UtcMillis,
    /// Which run succeeded: in one millisecond, the earlier id is the earlier one.
    pub run: RunId,
    /// Of which task.
    pub predecessor: TaskName,
}

/// The successes that a run follows: of each predecessor one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After(BTreeMap<TaskName, RunId>);

impl After {
    /// Each predecessor with its run, in the order of names.
    pub fn runs(&self) -> &BTreeMap<TaskName, RunId> {
        &self.0
    }

    /// The ids of the run that follows these, the one at `place` of those that are admitted together at `now`: they wait in
    /// the order of their ids. Drawn from what it follows, since a decision has no randomness.
    pub fn ids(&self, project: &ProjectName, follower: &TaskName, place: usize, now: UtcMillis) -> (RunId, AttemptId) {
        let drawn = |what: &str| {
            let text = format!("{project}/{follower}/{self}/{}/{what}", now.get());
            Drawn {
                place: u16::try_from(place).unwrap_or(u16::MAX),
                digest: Digest::of(Domain::Chain, text.as_bytes()),
            }
        };
        (RunId::new(now, &drawn("run")), AttemptId::new(now, &drawn("attempt")))
    }
}

/// `a=<run id> b=<run id>`: what a job reads (`LEASEHOLD_AFTER`), events tell and databases keep.
impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (task, run)) in self.0.iter().enumerate() {
            let blank = if place == 0 { "" } else { " " };
            write!(f, "{blank}{task}={run}")?;
        }
        Ok(())
    }
}

/// A text that names no predecessors with their runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AfterError {
    /// It is not of the form `task=run task=run`, in the order of names.
    #[error("is not of the form `task=run task=run`, each task once and in the order of names")]
    Form,
    /// A name that no task has, or an id that no run has.
    #[error(transparent)]
    Id(#[from] IdError),
}

impl FromStr for After {
    type Err = AfterError;

    fn from_str(text: &str) -> Result<Self, AfterError> {
        let mut runs = BTreeMap::new();
        for pair in text.split(' ') {
            let (task, run) = pair.split_once('=').ok_or(AfterError::Form)?;
            let task: TaskName = task.parse()?;
            if runs.last_key_value().is_some_and(|(last, _)| *last >= task) {
                return Err(AfterError::Form);
            }
            runs.insert(task, run.parse()?);
        }
        Ok(Self(runs))
    }
}

/// A place, and bytes of a digest, where randomness would stand: for ids, never for keys or tokens.
struct Drawn {
    place: u16,
    digest: Digest,
}

impl Entropy for Drawn {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = self.place.to_be_bytes().into_iter().chain(self.digest.as_bytes().iter().copied().cycle());
        for (byte, drawn) in bytes.iter_mut().zip(drawn) {
            *byte = drawn;
        }
    }
}

/// What a follower makes of its arrivals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// A run for each of these, in this order.
    pub admits: Vec<After>,
    /// The arrivals that are used up or superseded: they go.
    pub gone: BTreeSet<RunId>,
    /// Those that wait for another predecessor, or for the end of a pause: at most one of each predecessor.
    pub waiting: BTreeSet<RunId>,
    /// Whether arrivals were left unread because `most` runs were admitted.
    pub more: bool,
}

/// What the follower of `predecessors` makes of its arrivals, read in their order: as soon as each predecessor has one, they
/// make one run. Until then the newest of a predecessor counts and the older is superseded; with one predecessor, every
/// success makes a run. A paused follower admits nothing, and keeps the newest of each for the end of its pause.
pub fn settle(
    predecessors: &BTreeSet<TaskName>,
    arrivals: impl IntoIterator<Item = Arrival>,
    paused: bool,
    most: usize,
) -> Settled {
    let mut settled = Settled::default();
    let mut waiting: BTreeMap<TaskName, RunId> = BTreeMap::new();
    let arrivals: BTreeSet<Arrival> = arrivals.into_iter().collect();
    for arrival in arrivals {
        if settled.admits.len() >= most {
            settled.more = true;
            break;
        }
        // Of a task that it does not follow any more.
        if !predecessors.contains(&arrival.predecessor) {
            settled.gone.insert(arrival.run);
            continue;
        }
        settled.gone.extend(waiting.insert(arrival.predecessor, arrival.run));
        if !paused && waiting.len() == predecessors.len() {
            let taken = std::mem::take(&mut waiting);
            settled.gone.extend(taken.values());
            settled.admits.push(After(taken));
        }
    }
    settled.waiting = waiting.into_values().collect();
    settled
}

#[cfg(test)]
mod tests;
