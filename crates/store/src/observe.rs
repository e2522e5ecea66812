//! What a store tells of its work while it works: what was committed, and how long calls took. For metrics; nobody decides
//! by it, and nothing of it is stored.
//!
//! Told after the commit, so a transaction that was undone is never counted, and a repeat that changed nothing is not
//! counted again. (Control design, *Operating it*.)

use std::time::Duration;

use leasehold_core::actor::Actor;
use leasehold_core::attempt::{AttemptState, EvidenceKind, Outcome};
use leasehold_core::change::Change;
use leasehold_core::event::{EventKind, NewEvent};
use leasehold_core::lease::LeaseState;
use leasehold_core::retry::Cause;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::time::Millis;

/// Something that a transaction made true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// A run was submitted.
    RunAdmitted,
    /// A worker claimed an attempt.
    Claimed,
    /// A worker gave a claim back unstarted.
    ClaimReleased,
    /// A lease ran out, and this is where its run stands then.
    LeaseExpired(RunState),
    /// An attempt ended, and somebody saw it.
    AttemptEnded(AttemptState),
    /// Contact with an attempt was lost.
    AttemptLost(EvidenceKind),
    /// A run waits for its next attempt.
    Retried(RetryCause),
    /// A run's question is open.
    RunLost,
    /// A run ended.
    RunEnded(RunState),
    /// Evidence came after the fact.
    LateEvidence(LateEffect),
    /// Somebody asked for a run to be cancelled.
    CancelRequested,
    /// A run that was to stop has ended: how long after the wish was stored.
    Stopped(StopIntentReason, Millis),
    /// The clock that judges leases stepped, and the ends that were fixed before it were moved.
    ClockStepped,
}

/// Why a run waits for another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCause {
    /// The policy pinned in its revision, for this.
    Policy(Cause),
    /// A person said so.
    Person,
}

/// What late evidence did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateEffect {
    /// It changed where the run stands.
    Resolved,
    /// It was written down.
    Kept,
    /// It could not be accepted as it came, and was written down.
    Refused,
}

impl LateEffect {
    /// Every effect.
    pub const ALL: [Self; 3] = [Self::Resolved, Self::Kept, Self::Refused];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Kept => "kept",
            Self::Refused => "refused",
        }
    }
}

impl RetryCause {
    /// Every cause.
    pub const ALL: [Self; 5] = [
        Self::Policy(Cause::Failed),
        Self::Policy(Cause::TimedOut),
        Self::Policy(Cause::NeverSpawned),
        Self::Policy(Cause::Lost),
        Self::Person,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy(Cause::Failed) => "failed",
            Self::Policy(Cause::TimedOut) => "timed_out",
            Self::Policy(Cause::NeverSpawned) => "never_spawned",
            Self::Policy(Cause::Lost) => "lost",
            Self::Person => "person",
        }
    }
}

/// What one written event of `change` says.
pub fn of_event(change: &Change, event: &NewEvent) -> Option<Fact> {
    let attempt = change.attempt.as_ref();
    let run = change.run.as_ref();
    Some(match event.kind {
        EventKind::RunAdmitted => Fact::RunAdmitted,
        EventKind::AttemptClaimed => Fact::Claimed,
        EventKind::AttemptReleased => Fact::ClaimReleased,
        EventKind::AttemptEnded => Fact::AttemptEnded(attempt?.state),
        EventKind::AttemptLost => match &attempt?.outcome {
            Some(Outcome::Lost(evidence)) => Fact::AttemptLost(*evidence),
            _ => return None,
        },
        EventKind::RunRetryWait => Fact::Retried(retry_cause(change, event)),
        EventKind::RunLost => Fact::RunLost,
        EventKind::RunEnded => Fact::RunEnded(run?.state),
        EventKind::EvidenceLate if run.is_some() => Fact::LateEvidence(LateEffect::Resolved),
        EventKind::EvidenceLate => Fact::LateEvidence(LateEffect::Kept),
        EventKind::EvidenceKept => Fact::LateEvidence(LateEffect::Refused),
        EventKind::CancelRequested => Fact::CancelRequested,
        _ => return None,
    })
}

fn retry_cause(change: &Change, event: &NewEvent) -> RetryCause {
    if matches!(event.actor, Actor::Local { .. } | Actor::ApiToken { .. }) {
        return RetryCause::Person;
    }
    let attempt = change.attempt.as_ref();
    let nothing_ran = attempt.is_some_and(|attempt| matches!(attempt.outcome, Some(Outcome::NeverSpawned)));
    // A lost run waits anew only because it turned out that nothing of it was ever started.
    let late = change.events.iter().any(|event| event.kind == EventKind::EvidenceLate);
    RetryCause::Policy(match attempt.map(|attempt| attempt.state) {
        _ if nothing_ran || late => Cause::NeverSpawned,
        Some(AttemptState::Lost) => Cause::Lost,
        Some(AttemptState::TimedOut) => Cause::TimedOut,
        _ => Cause::Failed,
    })
}

/// What the records of `change` say beside its events.
pub fn of_records(change: &Change) -> impl Iterator<Item = Fact> {
    let run = change.run.as_ref();
    let expired = change.lease.as_ref().filter(|lease| lease.state == LeaseState::Expired);
    let expired = expired.and(run).map(|run| Fact::LeaseExpired(run.state));
    let stopped = run.and_then(|run| {
        let (closing, intent) = (run.closing.as_ref()?, run.intent.as_ref()?);
        Some(Fact::Stopped(intent.reason, closing.at.since(intent.at)))
    });
    expired.into_iter().chain(stopped)
}

/// How a call of the port went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Called {
    /// It was answered; a refusal is an answer.
    Answered,
    /// Certainly not done.
    NotDone,
    /// Whether it was done is unknown.
    Unknown,
    /// A stored row is damaged.
    Damaged,
}

impl Called {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Answered, Self::NotDone, Self::Unknown, Self::Damaged];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NotDone => "not_done",
            Self::Unknown => "unknown",
            Self::Damaged => "damaged",
        }
    }

    /// How a call went whose answer is this.
    pub const fn of<T>(answer: &Result<T, crate::outcome::StoreError>) -> Self {
        use crate::outcome::StoreError;
        match answer {
            Ok(_) => Self::Answered,
            Err(StoreError::NotDone { .. } | StoreError::NotAllowed { .. }) => Self::NotDone,
            Err(StoreError::Unknown { .. }) => Self::Unknown,
            Err(StoreError::Damaged { .. }) => Self::Damaged,
        }
    }
}

/// Whether a call may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// It only reads.
    Read,
    /// It may write.
    Write,
}

impl Access {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Who is told. Called on the threads of the store: it must return at once, and cannot fail.
pub trait Observer: Send + Sync + 'static {
    /// A transaction that made this true has committed.
    fn committed(&self, fact: Fact);

    /// How much time has passed since a moment that stays the same, to measure calls with.
    fn elapsed(&self) -> Duration;

    /// A call of the port was answered.
    fn called(&self, name: &'static str, access: Access, took: Duration, how: Called);
}

#[cfg(test)]
mod tests {
    use leasehold_core::attempt::Attempt;
    use leasehold_core::counter::AttemptNumber;
    use leasehold_core::id::{AttemptId, RunId};

    use super::*;

    fn run() -> RunId {
        "01900000-0000-7000-8000-000000000001".parse().unwrap()
    }

    fn ended(state: AttemptState, outcome: Outcome) -> Change {
        let id: AttemptId = "01900000-0000-7000-8000-000000000002".parse().unwrap();
        let attempt = Attempt { state, outcome: Some(outcome), ..Attempt::pending(id, run(), AttemptNumber::FIRST) };
        Change { attempt: Some(attempt), ..Change::default() }
    }

    #[test]
    fn a_retry_is_counted_for_what_ended_the_attempt_or_for_the_person_who_said_so() {
        let event = |actor| NewEvent::new(EventKind::RunRetryWait, run(), None, actor);
        for (change, actor, cause) in [
            (ended(AttemptState::Lost, Outcome::Lost(EvidenceKind::LeaseExpired)), Actor::System, "lost"),
            (ended(AttemptState::Failed, Outcome::NeverSpawned), Actor::System, "never_spawned"),
            (ended(AttemptState::TimedOut, Outcome::Superseded), Actor::System, "timed_out"),
            (ended(AttemptState::Failed, Outcome::Superseded), Actor::System, "failed"),
            (ended(AttemptState::Lost, Outcome::Lost(EvidenceKind::LeaseExpired)), Actor::Local { uid: 0 }, "person"),
        ] {
            let Some(Fact::Retried(told)) = of_event(&change, &event(actor)) else { panic!("{change:?}") };
            assert_eq!(told.as_str(), cause);
        }
    }

    #[test]
    fn an_attempt_is_lost_for_a_reason_and_evidence_is_told_by_what_it_did() {
        let change = ended(AttemptState::Lost, Outcome::Lost(EvidenceKind::MachineRebooted));
        let event = |kind| NewEvent::new(kind, run(), None, Actor::System);
        let told = of_event(&change, &event(EventKind::AttemptLost));
        assert_eq!(told, Some(Fact::AttemptLost(EvidenceKind::MachineRebooted)));
        let late = of_event(&change, &event(EventKind::EvidenceLate));
        assert_eq!(late, Some(Fact::LateEvidence(LateEffect::Kept)));
        assert_eq!(of_event(&change, &event(EventKind::LeaseRebound)), None);
    }
}
