//! Sessions: registering, beating, draining, leaving. Heartbeats write no event and no audit.

use leasehold_core::actor::Actor;
use leasehold_core::cancel::{StopDirective, directive};
use leasehold_core::directive::{self, Directive};
use leasehold_core::id::{AttemptId, WorkerId};
use leasehold_core::lease::{LeaseProjection, renew};
use leasehold_core::limits::DIRECTIVES;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::registration::{self, RegistrationVerdict};
use leasehold_core::run::StopIntentReason;
use leasehold_core::session::{self, Session, SessionProjection};
use leasehold_core::worker::Rival;
use leasehold_store::call::{Heartbeat, RegisterSession, Renewal, SessionStep};
use leasehold_store::outcome::Outcome;
use leasehold_store::view::Beaten;

use super::apply::{Loaded, apply};
use super::audit;
use super::column::values;
use super::faults;
use super::load::{self, Named, Speaker};
use super::rows;
use super::transaction::{Decided, Fault, Tx};
use super::workers;

/// A session takes its place, if it may.
pub(super) fn register(tx: &Tx<'_>, call: &RegisterSession) -> Decided<SessionProjection, Refusal> {
    let Some(worker) = load::worker(tx, &call.worker)? else {
        let why = "this worker is not enrolled here: enroll the machine again";
        return Ok(Outcome::Refused(Refusal::new(RefusalCode::Unauthenticated, why)));
    };
    let current = load::current_session(tx, &worker)?;
    let known = tx.only(
        "SELECT EXISTS (SELECT 1 FROM session WHERE id = ?1)",
        values![call.registration.session],
        rows::column,
    )?;
    let RegisterSession { registration, tickets, cadence, .. } = call;
    match registration::register(&worker, current.as_ref(), known, registration, tickets, *cadence, tx.now) {
        RegistrationVerdict::Accepted { worker, session, took_over } => {
            insert_session(tx, &session)?;
            workers::write(tx, &worker)?;
            if let Some(took_over) = took_over {
                let actor = Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin };
                audit::write(
                    tx,
                    &actor,
                    "take_over",
                    format_args!("worker/{}", worker.id),
                    &[
                        ("session", &registration.session),
                        ("boot", &registration.boot),
                        ("instead_of", &took_over.instead_of),
                        ("granted_by", &took_over.grant.by),
                    ],
                )?;
            }
            Ok(Outcome::Applied(session.projection(tx.now.lease)))
        }
        RegistrationVerdict::Repeated => match current {
            Some(session) => Ok(Outcome::Replayed(session.projection(tx.now.lease))),
            None => Err(Fault::Damaged(format!("worker {} repeats a session that it has not", worker.id))),
        },
        RegistrationVerdict::Refused { refusal, rival, copied } => {
            if let Some(rival) = rival.filter(|rival| worker.rival.as_ref() != Some(rival)) {
                store_rival(tx, &worker.id, &rival)?;
            }
            if copied {
                let actor = Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin };
                audit::write(
                    tx,
                    &actor,
                    "credential_replayed",
                    format_args!("worker/{}", worker.id),
                    &[("session", &registration.session), ("boot", &registration.boot)],
                )?;
            }
            Ok(Outcome::Refused(refusal))
        }
    }
}

fn insert_session(tx: &Tx<'_>, session: &Session) -> Result<(), Fault> {
    let digest = session.capabilities.digest();
    tx.execute(
        "INSERT INTO capabilities (digest, canonical) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        values![digest, session.capabilities],
    )?;
    tx.execute_one(
        "session",
        "INSERT INTO session (worker, id, generation, version, state, boot, registration, capabilities, max_runs, slots, \
         obeys_drain, lease_millis, interval_millis, expires_lease, spoke_lease, software, protocol, registered_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
        values![
            session.worker,
            session.id,
            session.generation,
            session.version,
            session.state,
            session.boot,
            session.registration,
            digest,
            session.max_runs,
            session.slots,
            session.obeys_drain,
            session.lease,
            session.interval,
            session.expires,
            session.spoke_at,
            session.software,
            session.protocol,
            session.registered_at,
        ],
    )
}

fn store_rival(tx: &Tx<'_>, worker: &WorkerId, rival: &Rival) -> Result<(), Fault> {
    tx.execute_one(
        "worker",
        "UPDATE worker SET rival_session = ?2, rival_heard = ?3, rival_audited = ?4 WHERE id = ?1",
        values![*worker, rival.session, rival.heard, rival.audited],
    )
}

/// Writes what a session said: a narrow row, by compare-and-swap on its version.
fn spoke(tx: &Tx<'_>, before: &Session, now: &Session) -> Result<(), Fault> {
    tx.execute_one(
        "session",
        "UPDATE session SET version = ?4, state = ?5, slots = ?6, obeys_drain = ?7, expires_lease = ?8, spoke_lease = ?9 \
         WHERE id = ?1 AND worker = ?2 AND version = ?3",
        values![
            now.id,
            now.worker,
            before.version,
            now.version,
            now.state,
            now.slots,
            now.obeys_drain,
            now.expires,
            now.spoke_at,
        ],
    )
}

/// The session's lease and the leases it holds are extended.
pub(super) fn heartbeat(tx: &Tx<'_>, call: &Heartbeat) -> Decided<Beaten, Refusal> {
    let speaker = Speaker::of(tx, &call.session)?;
    let beat = speaker
        .check_trusted()
        .and_then(|()| session::beat(speaker.current.as_ref(), &call.session, call.version, call.said, tx.now));
    let session = match (beat, &speaker.current) {
        (Ok(session), Some(before)) => {
            spoke(tx, before, &session)?;
            session
        }
        (Err(refusal), _) => return Ok(Outcome::Refused(refusal)),
        (Ok(_), None) => return Err(Fault::Damaged("a session that is not there cannot beat".to_owned())),
    };
    heard(tx, &speaker)?;
    if let Some(said) = &call.faults
        && *said != faults::of(tx, &session.worker)?
    {
        faults::write(tx, &session.worker, said)?;
    }
    let mut leases = Vec::with_capacity(call.renewals.len());
    for renewal in &call.renewals {
        // One damaged attempt must not take the worker's session and every other lease with it.
        let renewed = load::readable("lease to renew", renew_lease(tx, renewal, &session))?;
        let unreadable = || Err(Refusal::new(RefusalCode::Overloaded, "a stored row of this attempt is damaged"));
        leases.push((renewal.fence.attempt, renewed.unwrap_or_else(unreadable)));
    }
    let directives = directives(tx, &speaker, &session)?;
    Ok(Outcome::Applied(Beaten { session: session.projection(tx.now.lease), leases, directives }))
}

fn renew_lease(tx: &Tx<'_>, renewal: &Renewal, session: &Session) -> Result<Result<LeaseProjection, Refusal>, Fault> {
    let named = match Named::of(tx, &renewal.fence)? {
        Ok(named) => named,
        Err(refusal) => return Ok(Err(refusal)),
    };
    match renew(named.lease.as_ref(), &named.attempt, &renewal.fence, session, renewal.left.as_ref(), tx.now) {
        Ok((projection, change)) => {
            apply(tx, &Loaded::named(&named), &change)?;
            Ok(Ok(projection))
        }
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// The live session spoke: a newcomer that waits has heard it.
fn heard(tx: &Tx<'_>, speaker: &Speaker) -> Result<(), Fault> {
    let Some(worker) = speaker.worker.as_ref().and_then(registration::heard) else { return Ok(()) };
    match &worker.rival {
        Some(rival) => store_rival(tx, &worker.id, rival),
        None => Ok(()),
    }
}

/// What the worker of `session` is to do.
pub(super) fn directives(tx: &Tx<'_>, speaker: &Speaker, session: &Session) -> Result<Vec<Directive>, Fault> {
    let wished = tx.all(
        "SELECT lease.attempt, run.intent_reason FROM lease JOIN run ON run.id = lease.run \
         WHERE lease.worker = ?1 AND lease.state = 'active' AND run.intent_reason IS NOT NULL \
         ORDER BY lease.attempt LIMIT ?2",
        values![session.worker, DIRECTIVES],
        |columns| Ok((columns.next()?, columns.next::<StopIntentReason>()?)),
    )?;
    let drain = speaker.worker.as_ref().and_then(|worker| directive::of_drain(worker, session));
    let mut directives: Vec<_> = drain.into_iter().collect();
    for (id, _) in wished {
        directives.extend(load::readable("attempt to stop", stop(tx, id))?.flatten().map(Directive::Stop));
    }
    directives.truncate(DIRECTIVES);
    Ok(directives)
}

fn stop(tx: &Tx<'_>, id: AttemptId) -> Result<Option<StopDirective>, Fault> {
    let attempt = load::attempt(tx, id)?.ok_or_else(|| Fault::Damaged(format!("a lease has no attempt {id}")))?;
    Ok(directive(&load::run_of(tx, &attempt)?, &attempt))
}

/// The session takes nothing new from now on.
pub(super) fn drain(tx: &Tx<'_>, call: &SessionStep) -> Decided<SessionProjection, Refusal> {
    let speaker = Speaker::of(tx, &call.session)?;
    let decided = step(tx, &speaker, |current| session::drain(current, &call.session, call.version, tx.now))?;
    if decided.is_applied() {
        heard(tx, &speaker)?;
    }
    Ok(decided)
}

/// The session leaves, if it holds no lease.
pub(super) fn offline(tx: &Tx<'_>, call: &SessionStep) -> Decided<SessionProjection, Refusal> {
    let speaker = Speaker::of(tx, &call.session)?;
    let active = load::active_leases(tx, &call.session.worker)?;
    step(tx, &speaker, |current| session::offline(current, &call.session, call.version, active, tx.now))
}

fn step(
    tx: &Tx<'_>,
    speaker: &Speaker,
    decide: impl FnOnce(Option<&Session>) -> Result<Session, Refusal>,
) -> Decided<SessionProjection, Refusal> {
    match (speaker.check_trusted().and_then(|()| decide(speaker.current.as_ref())), &speaker.current) {
        (Ok(session), Some(before)) if session == *before => Ok(Outcome::Replayed(session.projection(tx.now.lease))),
        (Ok(session), Some(before)) => {
            spoke(tx, before, &session)?;
            Ok(Outcome::Applied(session.projection(tx.now.lease)))
        }
        (Err(refusal), _) => Ok(Outcome::Refused(refusal)),
        (Ok(_), None) => Err(Fault::Damaged("a session that is not there cannot speak".to_owned())),
    }
}
