//! Sessions: registering, beating, draining, leaving. Heartbeats write no event and no audit.

use futures_util::future::{try_join, try_join_all, try_join4};
use leasehold_core::actor::Actor;
use leasehold_core::cancel::{StopDirective, directive};
use leasehold_core::directive::{self, Directive};
use leasehold_core::id::WorkerId;
use leasehold_core::limits::DIRECTIVES;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::registration::{self, RegistrationVerdict};
use leasehold_core::session::{self, Session, SessionProjection};
use leasehold_core::worker::Rival;
use leasehold_store::call::{Heartbeat, RegisterSession, SessionStep};
use leasehold_store::outcome::Outcome;
use leasehold_store::view::Beaten;

use super::apply::Write;
use super::audit;
use super::column::values;
use super::faults;
use super::load::{self, Speaker};
use super::lock::Locks;
use super::renewals::Renewable;
use super::rows::{self, Columns, attempt_columns, run_columns};
use super::transaction::{Connection, Decided, Fault, Tx, Unlocked};
use super::workers;

/// A session takes its place, if it may.
pub(super) async fn register(db: Unlocked, call: &RegisterSession) -> Decided<SessionProjection, Refusal> {
    let tx = &db.lock(Locks::worker(&call.worker)).await?;
    let known = "SELECT EXISTS (SELECT 1 FROM session WHERE id = $1)";
    let (Speaker { worker, current }, known) =
        try_join(Speaker::named(tx, &call.worker), tx.only(known, values![call.registration.session], rows::column))
            .await?;
    let Some(worker) = worker else {
        let why = "this worker is not enrolled here: enroll the machine again";
        return Ok(Outcome::Refused(Refusal::new(RefusalCode::Unauthenticated, why)));
    };
    let RegisterSession { registration, tickets, cadence, .. } = call;
    match registration::register(&worker, current.as_ref(), known, registration, tickets, *cadence, tx.now) {
        RegistrationVerdict::Accepted { worker, session, took_over } => {
            insert_session(tx, &session).await?;
            workers::write(tx, &worker).await?;
            if let Some(took_over) = took_over {
                let actor = Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin };
                audit::write(
                    tx,
                    &actor,
                    "take_over",
                    format!("worker/{}", worker.id),
                    &[
                        ("session", &registration.session),
                        ("boot", &registration.boot),
                        ("instead_of", &took_over.instead_of),
                        ("granted_by", &took_over.grant.by),
                    ],
                )
                .await?;
            }
            Ok(Outcome::Applied(session.projection(tx.now.lease)))
        }
        RegistrationVerdict::Repeated => match current {
            Some(session) => Ok(Outcome::Replayed(session.projection(tx.now.lease))),
            None => Err(Fault::Damaged(format!("worker {} repeats a session that it has not", worker.id))),
        },
        RegistrationVerdict::Refused { refusal, rival, copied } => {
            if let Some(rival) = rival.filter(|rival| worker.rival.as_ref() != Some(rival)) {
                store_rival(tx, &worker.id, &rival).await?;
            }
            if copied {
                let actor = Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin };
                audit::write(
                    tx,
                    &actor,
                    "credential_replayed",
                    format!("worker/{}", worker.id),
                    &[("session", &registration.session), ("boot", &registration.boot)],
                )
                .await?;
            }
            Ok(Outcome::Refused(refusal))
        }
    }
}

async fn insert_session(tx: &Tx, session: &Session) -> Result<(), Fault> {
    let digest = session.capabilities.digest();
    tx.execute(
        "INSERT INTO capabilities (digest, canonical) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        values![digest, session.capabilities],
    )
    .await?;
    tx.execute_one(
        "session",
        "INSERT INTO session (worker, id, generation, version, state, boot, registration, capabilities, max_runs, slots, \
         obeys_drain, lease_millis, interval_millis, expires_lease, spoke_lease, software, protocol, registered_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
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
    ).await
}

async fn store_rival(tx: &Tx, worker: &WorkerId, rival: &Rival) -> Result<(), Fault> {
    tx.execute_one(
        "worker",
        "UPDATE worker SET rival_session = $2, rival_heard = $3, rival_audited = $4 WHERE id = $1",
        values![*worker, rival.session, rival.heard, rival.audited],
    )
    .await
}

/// Writes what a session said: a narrow row, by compare-and-swap on its version.
async fn spoke(tx: &Tx, before: &Session, now: &Session) -> Result<(), Fault> {
    tx.execute_one(
        "session",
        "UPDATE session SET version = $4, state = $5, slots = $6, obeys_drain = $7, expires_lease = $8, spoke_lease = $9 \
         WHERE id = $1 AND worker = $2 AND version = $3",
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
    ).await
}

/// The session's lease and the leases it holds are extended.
pub(super) async fn heartbeat(db: Unlocked, call: &Heartbeat) -> Decided<Beaten, Refusal> {
    let tx = &db.lock(Locks::Renewals(&call.session, &call.renewals)).await?;
    let worker = &call.session.worker;
    let (speaker, renewable, wished, known_faults) = try_join4(
        Speaker::of(tx, &call.session),
        Renewable::of(tx, &call.renewals),
        wished_stops(tx, worker),
        known_faults(tx, call),
    )
    .await?;
    let beat = speaker
        .check_trusted()
        .and_then(|()| session::beat(speaker.current.as_ref(), &call.session, call.version, call.said, tx.now));
    let (session, before) = match (beat, &speaker.current) {
        (Ok(session), Some(before)) => (session, before),
        (Err(refusal), _) => return Ok(Outcome::Refused(refusal)),
        (Ok(_), None) => return Err(Fault::Damaged("a session that is not there cannot beat".to_owned())),
    };
    let (leases, renewed) = renewable.renewed(call, &session, tx.now);
    let mut writes: Vec<Write<'_>> = vec![
        Box::pin(spoke(tx, before, &session)),
        Box::pin(heard(tx, &speaker)),
        Box::pin(renewed.write(tx, &session)),
    ];
    if let (Some(said), Some(known)) = (&call.faults, known_faults)
        && *said != known
    {
        writes.push(Box::pin(faults::write(tx, worker, said)));
    }
    try_join_all(writes).await?;
    let directives = directives(&speaker, &session, wished);
    Ok(Outcome::Applied(Beaten { session: session.projection(tx.now.lease), leases, directives }))
}

/// What the worker said of its faults before, where it says something now.
async fn known_faults(tx: &Tx, call: &Heartbeat) -> Result<Option<Vec<leasehold_core::fault::Fault>>, Fault> {
    match call.faults {
        Some(_) => faults::of(tx, &call.session.worker).await.map(Some),
        None => Ok(None),
    }
}

/// The live session spoke: a newcomer that waits has heard it.
async fn heard(tx: &Tx, speaker: &Speaker) -> Result<(), Fault> {
    let Some(worker) = speaker.worker.as_ref().and_then(registration::heard) else { return Ok(()) };
    match &worker.rival {
        Some(rival) => store_rival(tx, &worker.id, rival).await,
        None => Ok(()),
    }
}

/// What the worker of `session` is to do; `wished` is from the same transaction.
pub(super) fn directives(speaker: &Speaker, session: &Session, wished: Vec<StopDirective>) -> Vec<Directive> {
    let drain = speaker.worker.as_ref().and_then(|worker| directive::of_drain(worker, session));
    drain.into_iter().chain(wished.into_iter().map(Directive::Stop)).take(DIRECTIVES).collect()
}

/// The attempts of a worker that are to stop, in id order.
pub(super) async fn wished_stops(db: &Connection, worker: &WorkerId) -> Result<Vec<StopDirective>, Fault> {
    let sql = concat!(
        "SELECT ",
        run_columns!("r."),
        ", ",
        attempt_columns!("a."),
        " FROM lease l JOIN run r ON r.id = l.run JOIN attempt a ON a.id = l.attempt \
         WHERE l.worker = $1 AND l.state = 'active' AND r.intent_reason IS NOT NULL ORDER BY l.attempt LIMIT $2"
    );
    let stop = |columns: &mut Columns<'_>| {
        let both = rows::run(columns).and_then(|run| Ok((run, rows::attempt(columns)?)));
        let both = load::readable("attempt to stop", both)?;
        Ok(both.and_then(|(run, attempt)| directive(&run, &attempt)))
    };
    let stops = db.all(sql, values![*worker, DIRECTIVES], stop).await?;
    Ok(stops.into_iter().flatten().collect())
}

/// The session takes nothing new from now on.
pub(super) async fn drain(db: Unlocked, call: &SessionStep) -> Decided<SessionProjection, Refusal> {
    let tx = &db.lock(Locks::worker(&call.session.worker)).await?;
    let speaker = Speaker::of(tx, &call.session).await?;
    let decided = step(tx, &speaker, |current| session::drain(current, &call.session, call.version, tx.now)).await?;
    if decided.is_applied() {
        heard(tx, &speaker).await?;
    }
    Ok(decided)
}

/// The session leaves, if it holds no lease.
pub(super) async fn offline(db: Unlocked, call: &SessionStep) -> Decided<SessionProjection, Refusal> {
    let tx = &db.lock(Locks::worker(&call.session.worker)).await?;
    let (speaker, active) =
        try_join(Speaker::of(tx, &call.session), load::active_leases(tx, &call.session.worker)).await?;
    step(tx, &speaker, |current| session::offline(current, &call.session, call.version, active, tx.now)).await
}

async fn step(
    tx: &Tx,
    speaker: &Speaker,
    decide: impl FnOnce(Option<&Session>) -> Result<Session, Refusal>,
) -> Decided<SessionProjection, Refusal> {
    match (speaker.check_trusted().and_then(|()| decide(speaker.current.as_ref())), &speaker.current) {
        (Ok(session), Some(before)) if session == *before => Ok(Outcome::Replayed(session.projection(tx.now.lease))),
        (Ok(session), Some(before)) => {
            spoke(tx, before, &session).await?;
            Ok(Outcome::Applied(session.projection(tx.now.lease)))
        }
        (Err(refusal), _) => Ok(Outcome::Refused(refusal)),
        (Ok(_), None) => Err(Fault::Damaged("a session that is not there cannot speak".to_owned())),
    }
}
