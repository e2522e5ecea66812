//! Sessions: registration, the beat with its renewals, drain and offline.

use leasehold_core::actor::Actor;
use leasehold_core::id::WorkerId;
use leasehold_core::lease::{not_held, renew};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::registration::{RegistrationVerdict, heard, register as decide};
use leasehold_core::session::{self, Session, SessionProjection};
use leasehold_core::worker::Worker;

use super::Transaction;
use super::apply::outcome;
use crate::call::{Heartbeat, RegisterSession, SessionStep};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::view::Beaten;

pub(super) fn register(tx: &mut Transaction<'_>, call: &RegisterSession) -> Stored<SessionProjection, Refusal> {
    let RegisterSession { worker: id, registration, tickets, cadence, origin } = call;
    let Some(worker) = tx.state.workers.get(id).cloned() else {
        return Ok(Outcome::Refused(Refusal::new(RefusalCode::Unauthenticated, "there is no such worker: enroll it")));
    };
    let current = tx.current(id).cloned();
    let known = tx.state.sessions.contains_key(&registration.session);
    match decide(&worker, current.as_ref(), known, registration, tickets, *cadence, tx.now) {
        RegistrationVerdict::Accepted { worker, session, took_over } => {
            let projection = session.projection(tx.now.lease);
            tx.state.workers.insert(worker.id.clone(), *worker);
            tx.state.sessions.insert(session.id, *session);
            if let Some(took_over) = took_over {
                let actor = Actor::Worker { worker: id.clone(), session: None, origin: *origin };
                let facts = [
                    ("session", registration.session.to_string()),
                    ("boot", registration.boot.to_string()),
                    ("instead_of", took_over.instead_of.to_string()),
                    ("granted_by", took_over.grant.by),
                ];
                tx.record(&actor, "take_over", format_args!("worker/{id}"), facts);
            }
            Ok(Outcome::Applied(projection))
        }
        RegistrationVerdict::Repeated => {
            let session = current
                .ok_or_else(|| StoreError::Damaged { reason: format!("worker {id} has no session to repeat") })?;
            Ok(Outcome::Replayed(session.projection(tx.now.lease)))
        }
        RegistrationVerdict::Refused { refusal, rival, copied } => {
            if rival.is_some() {
                tx.state.workers.insert(id.clone(), Worker { rival, ..worker });
            }
            if copied {
                let actor = Actor::Worker { worker: id.clone(), session: None, origin: *origin };
                let facts = [("session", registration.session.to_string()), ("boot", registration.boot.to_string())];
                tx.record(&actor, "credential_replayed", format_args!("worker/{id}"), facts);
            }
            Ok(Outcome::Refused(refusal))
        }
    }
}

/// Writes a session that spoke: a newcomer that waits has heard it.
fn spoke(tx: &mut Transaction<'_>, session: &Session) {
    tx.state.sessions.insert(session.id, session.clone());
    if let Some(worker) = tx.state.workers.get(&session.worker).and_then(heard) {
        tx.state.workers.insert(worker.id.clone(), worker);
    }
}

pub(super) fn heartbeat(tx: &mut Transaction<'_>, call: &Heartbeat) -> Stored<Beaten, Refusal> {
    let current = tx.current(&call.session.worker);
    let trusted = tx.check_trusted(&call.session.worker);
    let beat = trusted.and_then(|()| session::beat(current, &call.session, call.version, call.said, tx.now));
    let session = match beat {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    spoke(tx, &session);
    if let Some(faults) = &call.faults {
        if faults.is_empty() {
            tx.state.faults.remove(&session.worker);
        } else {
            tx.state.faults.insert(session.worker.clone(), faults.clone());
        }
    }
    let mut leases = Vec::with_capacity(call.renewals.len());
    for renewal in &call.renewals {
        let verdict = match tx.load(renewal.fence.attempt)? {
            None => Err(not_held()),
            Some(loaded) => {
                renew(loaded.lease.as_ref(), &loaded.attempt, &renewal.fence, &session, renewal.left.as_ref(), tx.now)
            }
        };
        let verdict = match verdict {
            Ok((projection, change)) => {
                tx.apply(change)?;
                Ok(projection)
            }
            Err(refusal) => Err(refusal),
        };
        leases.push((renewal.fence.attempt, verdict));
    }
    let directives = tx.directives(&session);
    Ok(Outcome::Applied(Beaten { session: session.projection(tx.now.lease), leases, directives }))
}

pub(super) fn drain(tx: &mut Transaction<'_>, call: &SessionStep) -> Outcome<SessionProjection, Refusal> {
    let trusted = tx.check_trusted(&call.session.worker);
    let current = tx.current(&call.session.worker);
    match trusted.and_then(|()| session::drain(current, &call.session, call.version, tx.now)) {
        Ok(session) => {
            spoke(tx, &session);
            Outcome::Applied(session.projection(tx.now.lease))
        }
        Err(refusal) => Outcome::Refused(refusal),
    }
}

pub(super) fn offline(tx: &mut Transaction<'_>, call: &SessionStep) -> Outcome<SessionProjection, Refusal> {
    let worker: &WorkerId = &call.session.worker;
    let active = tx.active_leases(worker).count();
    let trusted = tx.check_trusted(worker);
    match trusted.and_then(|()| session::offline(tx.current(worker), &call.session, call.version, active, tx.now)) {
        Ok(session) => {
            let projection = session.projection(tx.now.lease);
            let before = tx.state.sessions.insert(session.id, session.clone());
            outcome(before != Some(session), projection)
        }
        Err(refusal) => Outcome::Refused(refusal),
    }
}
