//! Events: the append-only story of a run, each with its time, its author and its facts.
//!
//! The current state lives in the records; events explain how it came about. They hold no label, no secret and no
//! token. (Control design, *Store*.)

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::actor::Actor;
use crate::counter::EventSequence;
use crate::id::{AttemptId, RunId};
use crate::session::Session;
use crate::time::UtcMillis;

names! {
    /// What happened.
    pub enum EventKind as "event kind" {
        /// The run was submitted.
        RunAdmitted = "run.admitted",
        /// A worker claimed the attempt.
        AttemptClaimed = "attempt.claimed",
        /// The worker gave the claim back unstarted.
        AttemptReleased = "attempt.released",
        /// The claim ran out unstarted.
        ClaimExpired = "claim.expired",
        /// The worker is about to start it.
        AttemptStarting = "attempt.starting",
        /// Its process runs.
        AttemptRunning = "attempt.running",
        /// It ended.
        AttemptEnded = "attempt.ended",
        /// Contact was lost; what became of it is an open question.
        AttemptLost = "attempt.lost",
        /// A later session of the same worker carries the lease on.
        LeaseRebound = "lease.rebound",
        /// Someone asked for the run to be cancelled.
        CancelRequested = "cancel.requested",
        /// The run's time is up.
        TimeoutReached = "timeout.reached",
        /// The process had ended by itself although a stop was on its way.
        StopOvertaken = "stop.overtaken",
        /// What the kernel would not let go when the attempt was stopped.
        CancelIncomplete = "cancel.incomplete",
        /// What the kernel would not let go is gone after all.
        CancelCompleted = "cancel.completed",
        /// A person said what is to become of a lost run.
        ResolveRequested = "resolve.requested",
        /// The run waits for its next attempt.
        RunRetryWait = "run.retry_wait",
        /// The next attempt may be claimed.
        RunPending = "run.pending",
        /// The run's question is open.
        RunLost = "run.lost",
        /// The run ended.
        RunEnded = "run.ended",
        /// Something true arrived after the fact and changed nothing.
        EvidenceLate = "evidence.late",
        /// Evidence that could not be accepted as it came was kept.
        EvidenceKept = "evidence.kept",
    }
}

/// An event that a decision wants written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which run.
    pub run: RunId,
    /// To which of its attempts, where it concerns one.
    pub attempt: Option<AttemptId>,
    /// Who did it.
    pub actor: Actor,
    /// The facts, by name.
    pub facts: BTreeMap<&'static str, String>,
    /// Digest of the call, for events that repeats must not multiply: a store writes one per attempt and digest, and at most
    /// [`crate::limits::DEDUPLICATED_EVENTS_PER_ATTEMPT`] of them.
    pub once: Option<crate::crypto::Digest>,
}

impl NewEvent {
    /// An event by `actor`.
    pub fn new(kind: EventKind, run: RunId, attempt: Option<AttemptId>, actor: Actor) -> Self {
        Self { kind, run, attempt, actor, facts: BTreeMap::new(), once: None }
    }

    /// An event by the worker of `session`.
    pub fn by_worker(kind: EventKind, run: RunId, attempt: Option<AttemptId>, session: &Session) -> Self {
        Self::new(
            kind,
            run,
            attempt,
            Actor::Worker { worker: session.worker.clone(), session: Some(session.id), origin: None },
        )
    }

    /// The same event with one more fact.
    #[must_use]
    pub fn with(mut self, name: &'static str, fact: impl Display) -> Self {
        self.facts.insert(name, fact.to_string());
        self
    }

    /// The same event, written once per attempt and `digest`.
    #[must_use]
    pub fn once(mut self, digest: crate::crypto::Digest) -> Self {
        self.once = Some(digest);
        self
    }
}

/// An event as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place in the run's story.
    pub sequence: EventSequence,
    /// When, for people.
    pub at: UtcMillis,
    /// What happened.
    pub kind: EventKind,
    /// To which run.
    pub run: RunId,
    /// To which of its attempts.
    pub attempt: Option<AttemptId>,
    /// Who did it, as [`Actor`] prints.
    pub actor: String,
    /// The facts, by name.
    pub facts: BTreeMap<String, String>,
}
