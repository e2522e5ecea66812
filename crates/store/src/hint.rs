//! Hints between replicas that share a store: what wakes those that wait in another process.
//!
//! A hint may be lost, repeated or late, and carries no fact: whoever is woken looks at the store, and looks by time, too.
//! (Design, *Authority is one row*; hints wake, scans guarantee.)

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use leasehold_core::id::{AttemptId, RunId, WorkerId};

use crate::announcement::Announcement;

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hint {
    /// Who waits at a replica. Before what wakes: whoever is woken looks with it.
    Waits(Announcement),
    /// A run may be waiting for a worker.
    Dispatch,
    /// A run's state or events.
    Run(RunId),
    /// An attempt's state or events.
    Attempt(AttemptId),
    /// An attempt's log.
    Log(AttemptId),
    /// A worker's session, slots or directives.
    Worker(WorkerId),
    /// Anything: hints were lost.
    Missed,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits(announcement) => write!(f, "waits {announcement}"),
            Self::Dispatch => f.write_str("dispatch"),
            Self::Run(run) => write!(f, "run {run}"),
            Self::Attempt(attempt) => write!(f, "attempt {attempt}"),
            Self::Log(attempt) => write!(f, "log {attempt}"),
            Self::Worker(worker) => write!(f, "worker {worker}"),
            Self::Missed => f.write_str("missed"),
        }
    }
}

/// A text is no hint that this program knows: a newer replica may say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a hint")]
pub struct NotAHint;

impl FromStr for Hint {
    type Err = NotAHint;

    fn from_str(text: &str) -> Result<Self, NotAHint> {
        let (kind, of) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "waits" => of.parse().map(Self::Waits),
            "dispatch" if of.is_empty() => Ok(Self::Dispatch),
            "run" => of.parse().map(Self::Run).map_err(|_| NotAHint),
            "attempt" => of.parse().map(Self::Attempt).map_err(|_| NotAHint),
            "log" => of.parse().map(Self::Log).map_err(|_| NotAHint),
            "worker" => of.parse().map(Self::Worker).map_err(|_| NotAHint),
            "missed" if of.is_empty() => Ok(Self::Missed),
            _ => Err(NotAHint),
        }
    }
}

/// Where the replicas of a store hint to each other.
#[async_trait]
pub trait HintExchange: Send + Sync + 'static {
    /// Tells the other replicas, soon. Never waits and never fails: a hint may be lost.
    fn say(&self, hint: Hint);

    /// Waits for hints of other replicas. For one caller at a time.
    async fn hear(&self) -> Vec<Hint>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_survives_its_text() {
        let (run, attempt) = ("01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002");
        for hint in [
            Hint::Waits(format!("1 {run} 7").parse().unwrap()),
            Hint::Dispatch,
            Hint::Run(run.parse().unwrap()),
            Hint::Attempt(attempt.parse().unwrap()),
            Hint::Log(attempt.parse().unwrap()),
            Hint::Worker("nas".parse().unwrap()),
            Hint::Missed,
        ] {
            assert_eq!(hint.to_string().parse(), Ok(hint));
        }
        for other in ["", "run", "run x", "dispatch now", "missed it", "waits", "waits 2 something", "something new"] {
            assert_eq!(other.parse::<Hint>(), Err(NotAHint), "{other}");
        }
    }
}
