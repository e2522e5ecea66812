//! Starting and running: the two acknowledgements that move a claimed attempt. Where nothing speaks against one, it is one
//! statement.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::future::{try_join, try_join3};
use leasehold_core::actor::Actor;
use leasehold_core::attempt::{self, AttemptState, Held, RunningCall, Starting, StartingAnswer};
use leasehold_core::change::Change;
use leasehold_core::lease::LeaseProjection;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::SessionFence;
use leasehold_core::time::LeaseInstant;
use leasehold_store::call::{AcknowledgeRunning, AttemptStep};
use leasehold_store::outcome::Outcome;

use super::apply::{Loaded, apply};
use super::column::{Bound, Column as _};
use super::load::{self, Named, Speaker};
use super::lock::Locks;
use super::transaction::{Decided, Fault, Tx, Undone, Unlocked};

/// A start that nothing speaks against, in one statement; none: nothing was written, and [`starting`] has to ask why.
pub(super) async fn starting_plainly(
    db: Unlocked,
    call: &AttemptStep,
) -> Result<Option<Outcome<Starting, Refusal>>, Undone> {
    let AttemptStep { session, lease } = call;
    let (lease_now, utc_now) = db.told();
    let values = [
        session.worker.bind(),
        session.session.bind(),
        session.generation.bind(),
        lease.attempt.bind(),
        lease.offer.bind(),
        lease.generation.bind(),
        lease.token.bind(),
        Bound::Text(Cow::Owned(actor(session).to_string())),
        lease_now.bind(),
        utc_now.bind(),
    ];
    let sql = "SELECT lease_version, lease_length, may_run FROM start_plainly($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let started = db.at_once(sql, values, |columns| {
        let (version, length) = (columns.next()?, columns.next()?);
        let (generation, attempt_state) = (lease.generation, AttemptState::Starting);
        let lease = LeaseProjection { generation, version, remaining: length, length, attempt_state };
        Ok(Starting::Accepted(StartingAnswer { lease, timeout: columns.next()? }))
    });
    Ok(started.await?.pop().map(Outcome::Applied))
}

/// The same for a process that runs; none: [`running`] has to ask why.
pub(super) async fn running_plainly(
    db: Unlocked,
    call: &AcknowledgeRunning,
) -> Result<Option<Outcome<LeaseProjection, Refusal>>, Undone> {
    let AcknowledgeRunning { step: AttemptStep { session, lease }, call: RunningCall { handle, callback, started_at } } =
        call;
    let (lease_now, utc_now) = db.told();
    let facts = BTreeMap::from([("pid".to_owned(), handle.pid.to_string())]);
    let values = [
        session.worker.bind(),
        session.session.bind(),
        session.generation.bind(),
        lease.attempt.bind(),
        lease.offer.bind(),
        lease.generation.bind(),
        lease.token.bind(),
        handle.boot.bind(),
        handle.pid.bind(),
        handle.start_time.bind(),
        callback.sequence.bind(),
        callback.token.bind(),
        started_at.bind(),
        Bound::Text(Cow::Owned(actor(session).to_string())),
        facts.bind(),
        lease_now.bind(),
        utc_now.bind(),
    ];
    let sql = "SELECT lease_version, lease_length, lease_expires, lease_now FROM run_plainly($1, $2, $3, $4, $5, $6, $7, $8, \
               $9, $10, $11, $12, $13, $14, $15, $16, $17)";
    let run = db.at_once(sql, values, |columns| {
        let (version, length) = (columns.next()?, columns.next()?);
        let (expires, now): (LeaseInstant, LeaseInstant) = (columns.next()?, columns.next()?);
        let (generation, attempt_state) = (lease.generation, AttemptState::Running);
        Ok(LeaseProjection { generation, version, remaining: expires.since(now), length, attempt_state })
    });
    Ok(run.await?.pop().map(Outcome::Applied))
}

/// The worker of a session, as its events name it.
fn actor(session: &SessionFence) -> Actor {
    Actor::Worker { worker: session.worker.clone(), session: Some(session.session), origin: None }
}

/// `claimed → starting`.
pub(super) async fn starting(db: Unlocked, call: &AttemptStep) -> Decided<Starting, Refusal> {
    let tx = &db.lock(Locks::step(&call.session, &call.lease)).await?;
    let (speaker, named, revision) = try_join3(
        Speaker::of(tx, &call.session),
        Named::of(tx, &call.lease),
        load::revision_of(tx, call.lease.attempt),
    )
    .await?;
    let policy = revision.map(|revision| revision.policy());
    let decide = |held: Held<'_>| match &policy {
        Some(policy) => Ok(attempt::starting(held, &call.lease, policy, tx.now)),
        None => Err(Fault::Damaged(format!("there is no revision {}", held.run.revision))),
    };
    fenced(tx, call, &speaker, named, decide).await
}

/// `starting → running`.
pub(super) async fn running(db: Unlocked, call: &AcknowledgeRunning) -> Decided<LeaseProjection, Refusal> {
    let step = &call.step;
    let tx = &db.lock(Locks::step(&step.session, &step.lease)).await?;
    let (speaker, named) = try_join(Speaker::of(tx, &step.session), Named::of(tx, &step.lease)).await?;
    let decide = |held: Held<'_>| Ok(attempt::running(held, &step.lease, &call.call, tx.now));
    fenced(tx, step, &speaker, named, decide).await
}

/// A step of the live session that names a lease: decide, write.
async fn fenced<T>(
    tx: &Tx,
    step: &AttemptStep,
    speaker: &Speaker,
    named: Result<Named, Refusal>,
    decide: impl FnOnce(Held<'_>) -> Result<Result<(T, Change), Refusal>, Fault>,
) -> Decided<T, Refusal> {
    let session = match speaker.live(tx, &step.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let named = match named {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let held = Held { session, run: &named.run, attempt: &named.attempt, lease: named.lease.as_ref() };
    match decide(held)? {
        Ok((answer, change)) if change.is_empty() => Ok(Outcome::Replayed(answer)),
        Ok((answer, change)) => {
            apply(tx, &Loaded::named(&named), &change).await?;
            Ok(Outcome::Applied(answer))
        }
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}
