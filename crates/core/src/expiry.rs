//! What becomes of a lease that ran out, and of a wait that is over.
//!
//! A claim that never started waits again; a started attempt is *lost*, which is a question, not an answer. Declared
//! [`limits::LOST_GRACE`] after the lease's end, not at it. (Control design, *Recovery*; ADR-0012 §3.)

use crate::actor::Actor;
use crate::attempt::{Attempt, AttemptState, EvidenceKind};
use crate::change::Change;
use crate::claim::unclaim;
use crate::end::lose;
use crate::event::{EventKind, NewEvent};
use crate::id::AttemptId;
use crate::lease::{Lease, LeaseState};
use crate::limits;
use crate::run::{Policy, Run, RunState};
use crate::time::{LeaseInstant, Now};

/// The latest end of a lease that may be declared expired at `now`.
pub fn expired_before(now: LeaseInstant) -> LeaseInstant {
    now.minus(limits::LOST_GRACE)
}

/// Expires one lease, if it is still active and its time has passed.
pub fn expire(run: &Run, attempt: &Attempt, lease: &Lease, policy: &Policy, now: Now) -> Option<Change> {
    if lease.state != LeaseState::Active || lease.expires > expired_before(now.lease) {
        return None;
    }
    match attempt.state {
        AttemptState::Claimed => {
            let mut change = unclaim(run, attempt, lease, LeaseState::Expired, now);
            let event = NewEvent::new(EventKind::ClaimExpired, run.id, Some(attempt.id), Actor::System)
                .with("worker", &lease.worker);
            change.events.insert(0, event);
            Some(change)
        }
        AttemptState::Starting | AttemptState::Running => {
            let mut change = lose(run, attempt, policy, EvidenceKind::LeaseExpired, &Actor::System, now);
            change.lease = Some(Lease { state: LeaseState::Expired, ..lease.clone() });
            Some(change)
        }
        _ => None,
    }
}

/// Begins attempt N+1 of a run whose wait is over; `latest` is attempt N.
pub fn retry_due(run: &Run, latest: &Attempt, next: AttemptId, now: Now) -> Option<Change> {
    if run.state != RunState::RetryWait || run.due.is_none_or(|due| due > now.lease) {
        return None;
    }
    let attempt = Attempt::pending(next, run.id, latest.number.next());
    let mut moved = run.moved(RunState::Pending);
    moved.latest = attempt.number;
    let event =
        NewEvent::new(EventKind::RunPending, run.id, Some(attempt.id), Actor::System).with("attempt", attempt.number);
    Some(Change { run: Some(moved), other_attempt: Some(attempt), events: vec![event], ..Change::default() })
}
