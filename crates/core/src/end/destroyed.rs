//! A person's evidence that a machine is gone: nothing of its attempts runs any more, and nobody will say how they ended.

use super::lose;
use crate::actor::Actor;
use crate::attempt::{Attempt, AttemptState, EvidenceKind};
use crate::change::Change;
use crate::claim::unclaim;
use crate::event::{EventKind, NewEvent};
use crate::lease::{Lease, LeaseState};
use crate::run::{Policy, Run};
use crate::time::Now;

/// What becomes of an attempt whose machine `actor` declares destroyed; none: nothing changes.
///
/// A claim that never started waits again. What had started is lost at once, without waiting for its lease, and goes on
/// by its policy. A lost one keeps its state and its question, and is known to run no more.
pub fn destroyed(
    run: &Run,
    attempt: &Attempt,
    lease: Option<&Lease>,
    policy: &Policy,
    actor: &Actor,
    now: Now,
) -> Option<Change> {
    let kind = EvidenceKind::Destroyed;
    let lease = lease.filter(|lease| lease.state == LeaseState::Active);
    match (attempt.state, lease) {
        (AttemptState::Claimed, Some(lease)) => {
            let mut change = unclaim(run, attempt, lease, LeaseState::Expired, now);
            let event = NewEvent::new(EventKind::ClaimExpired, run.id, Some(attempt.id), actor.clone())
                .with("worker", &lease.worker)
                .with("evidence", kind);
            change.events.insert(0, event);
            Some(change)
        }
        (AttemptState::Starting | AttemptState::Running, Some(lease)) => {
            let mut change = lose(run, attempt, policy, kind, actor, now);
            change.lease = Some(Lease { state: LeaseState::Expired, ..lease.clone() });
            Some(change)
        }
        (state, _) if state == AttemptState::Lost || attempt.may_live => {
            let mut next = attempt.clone();
            next.learn(kind);
            if next == *attempt {
                return None;
            }
            next.version = attempt.version.next();
            let event = NewEvent::new(EventKind::EvidenceLate, run.id, Some(attempt.id), actor.clone());
            let events = vec![event.with("evidence", kind)];
            Some(Change { attempt: Some(next), events, ..Change::default() })
        }
        _ => None,
    }
}
