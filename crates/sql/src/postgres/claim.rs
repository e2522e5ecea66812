//! Asks and claims: what earlier claims say, the claim itself, and giving it back unstarted.

use std::collections::BTreeSet;

use futures_util::future::{try_join, try_join3, try_join4};
use leasehold_core::actor::Actor;
use leasehold_core::attempt::{Attempt, Held};
use leasehold_core::claim::{self, Ask, AskVerdict, NotClaimed, Refused, Waiting};
use leasehold_core::id::{AttemptId, WorkerId};
use leasehold_core::lease::Lease;
use leasehold_core::limits::CLAIM_WINDOW;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::{Session, SessionFence};
use leasehold_core::time::Now;
use leasehold_store::call::{Claim, Release};
use leasehold_store::observe::Fact;
use leasehold_store::outcome::Outcome;
use leasehold_store::port::ClaimRefused;
use leasehold_store::view::{AskState, Grant, PullState};

use super::apply::{Loaded, apply};
use super::column::{list, values};
use super::load::{self, Named, Speaker};
use super::lock::Locks;
use super::rows::{Columns, attempt_columns, lease_columns, run_columns};
use super::transaction::{Connection, Decided, Fault, Tx, Undone, Unlocked};
use super::{places, rows, sessions};

/// What is known of each ask; rebinds what it holds. Where nothing was ever claimed with them, which is what an idle worker's
/// pull finds, nothing is locked and nothing written.
pub(super) async fn recover_asks(db: Unlocked, fence: &SessionFence, asks: &[Ask]) -> Decided<PullState, Refusal> {
    let tx = &if any_used(&db, asks).await? {
        db.lock(Locks::Asks(fence, asks, None)).await?
    } else {
        db.snapshot().await?
    };
    let (speaker, held, wished) = try_join3(
        Speaker::of(tx, fence),
        load::active_leases(tx, &fence.worker),
        sessions::wished_stops(tx, &fence.worker),
    )
    .await?;
    let session = match speaker.live(tx, fence) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let mut recovered = Vec::with_capacity(asks.len());
    for ask in asks {
        let known = load::readable("ask", load::lease_of_ask(tx, ask.offer, ask.token).await)?;
        let state = match known {
            Some(known) => load::readable("ask", recover(tx, session, ask, known).await)?,
            None => None,
        };
        // An offer that cannot be read can never be handed out: its ask is used up, the worker's others are not.
        recovered.push(state.unwrap_or(AskState::Gone));
    }
    let held = u16::try_from(held).unwrap_or(u16::MAX);
    let takes_work = speaker.worker.as_ref().is_some_and(|worker| worker.takes_work(session));
    let free_slots = if takes_work { session.max_runs.saturating_sub(held) } else { 0 };
    let directives = sessions::directives(&speaker, session, wished);
    let busy_devices = places::busy_devices(tx, session).await?;
    let state =
        PullState { session: session.clone(), asks: recovered, directives, takes_work, free_slots, busy_devices };
    Ok(if tx.wrote() { Outcome::Applied(state) } else { Outcome::Replayed(state) })
}

/// Whether a lease was ever claimed with one of them.
async fn any_used(db: &Connection, asks: &[Ask]) -> Result<bool, Fault> {
    let (offers, tokens): (Vec<_>, Vec<_>) = asks.iter().map(|ask| (ask.offer, ask.token)).unzip();
    let sql = "SELECT EXISTS (SELECT 1 FROM lease WHERE offer = ANY ($1)) \
               OR EXISTS (SELECT 1 FROM lease WHERE token = ANY ($2))";
    db.only(sql, [list(&offers), list(&tokens)], rows::column).await
}

/// What is known of one ask: whether it may be claimed with, its offer again, or that it is used up.
async fn recover(tx: &Tx, session: &Session, ask: &Ask, known: Option<(Lease, Attempt)>) -> Result<AskState, Fault> {
    let Some((lease, attempt)) = known else { return Ok(AskState::Open) };
    match claim::recover_ask(ask, Some((&lease, &attempt)), session, tx.now) {
        AskVerdict::Open => Ok(AskState::Open),
        AskVerdict::Gone => Ok(AskState::Gone),
        AskVerdict::Granted(granted) => {
            let (next, change) = *granted;
            apply(tx, &Loaded::default().and_lease(Some(&lease)), &change).await?;
            Ok(AskState::Granted(Box::new(grant(tx, next, attempt).await?)))
        }
    }
}

/// Everything an offer is built from, as this transaction left it.
async fn grant(tx: &Tx, lease: Lease, attempt: Attempt) -> Result<Grant, Fault> {
    let (run, revision) = try_join(load::run(tx, lease.run), load::revision_of(tx, lease.attempt)).await?;
    match (run, revision) {
        (Some(run), Some(revision)) => Ok(Grant { lease, run, attempt, revision, now: tx.now }),
        _ => Err(Fault::Damaged(format!("a lease has no run {}", lease.run))),
    }
}

/// A claim that nothing speaks against, in one statement; none: nothing was written, and [`claim()`] has to ask why.
pub(super) async fn plainly(db: Unlocked, call: &Claim) -> Result<Option<Outcome<Grant, ClaimRefused>>, Undone> {
    let Claim { session, ask, run, score } = call;
    let worker =
        Actor::Worker { worker: session.worker.clone(), session: Some(session.session), origin: None }.to_string();
    let (lease_now, utc_now) = db.told();
    let values = values![
        session.worker,
        session.session,
        session.generation,
        ask.offer,
        ask.token,
        *run,
        *score,
        CLAIM_WINDOW,
        worker,
        lease_now,
        utc_now,
    ];
    let claimed = db.at_once(CLAIM_PLAINLY, values, grant_of).await?.pop();
    if claimed.is_some() {
        db.note(Fact::Claimed);
    }
    Ok(claimed.map(Outcome::Applied))
}

/// The statement of a plain claim.
const CLAIM_PLAINLY: &str = concat!(
    "SELECT ",
    lease_columns!("l."),
    ", ",
    run_columns!("r."),
    ", ",
    attempt_columns!("a."),
    ", c.executes, c.lease_now, c.utc_now FROM claim_plainly($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) c, \
     LATERAL (SELECT (c.the_lease).*) l, LATERAL (SELECT (c.the_run).*) r, LATERAL (SELECT (c.the_attempt).*) a"
);

/// What it answers.
fn grant_of(columns: &mut Columns<'_>) -> Result<Grant, Fault> {
    Ok(Grant {
        lease: rows::lease(columns)?,
        run: rows::run(columns)?,
        attempt: rows::attempt(columns)?,
        revision: columns.next()?,
        now: Now { lease: columns.next()?, utc: columns.next()? },
    })
}

/// A live session claims a run.
pub(super) async fn claim(db: Unlocked, call: &Claim) -> Decided<Grant, ClaimRefused> {
    let not_claimed = |why| Ok(Outcome::Refused(ClaimRefused::NotClaimed(why)));
    let tx = &db.lock(Locks::Asks(&call.session, std::slice::from_ref(&call.ask), Some(call.run))).await?;
    let (speaker, known, latest, active) = try_join4(
        Speaker::of(tx, &call.session),
        load::lease_of_ask(tx, call.ask.offer, call.ask.token),
        load::Latest::of(tx, call.run),
        load::active_leases(tx, &call.session.worker),
    )
    .await?;
    let session = match speaker.live(tx, &call.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(ClaimRefused::Refused(refusal))),
    };
    match recover(tx, session, &call.ask, known).await? {
        AskState::Open => {}
        AskState::Granted(grant) if tx.wrote() => return Ok(Outcome::Applied(*grant)),
        AskState::Granted(grant) => return Ok(Outcome::Replayed(*grant)),
        AskState::Gone => return not_claimed(NotClaimed::AskGone),
    }
    let (Some(load::Latest { run, attempt, revision }), Some(worker)) = (latest, &speaker.worker) else {
        return not_claimed(NotClaimed::Taken);
    };
    let policy = revision.policy();
    let limits = places::limits(tx, &run, &policy).await?;
    let gpu = revision.placement().require().gpu.as_ref();
    let busy = if gpu.is_some() { places::busy_devices(tx, session).await? } else { BTreeSet::new() };
    let waiting = Waiting { run: &run, attempt: &attempt, policy: &policy, limits, gpu, busy: &busy };
    let (lease, change) = match claim::claim(worker, session, active, waiting, &call.ask, call.score, tx.now) {
        Ok(claimed) => claimed,
        Err(why) => return not_claimed(why),
    };
    apply(tx, &Loaded::of(&run, &[&attempt]), &change).await?;
    let (run, attempt) = (change.run.unwrap_or(run), change.attempt.unwrap_or(attempt));
    Ok(Outcome::Applied(Grant { lease, run, attempt, revision, now: tx.now }))
}

/// `claimed → pending`, unstarted; the run is kept from this worker for a while.
pub(super) async fn release(db: Unlocked, call: &Release) -> Decided<(), Refusal> {
    let (fence, attempt) = (&call.step.session, call.step.lease.attempt);
    let tx = &db.lock(Locks::step(fence, &call.step.lease)).await?;
    let (speaker, named, before) =
        try_join3(Speaker::of(tx, fence), Named::of(tx, &call.step.lease), refused_before(tx, attempt, &fence.worker))
            .await?;
    let session = match speaker.live(tx, fence) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let named = match named {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let held = Held { session, run: &named.run, attempt: &named.attempt, lease: named.lease.as_ref() };
    match claim::release(held, &call.step.lease, call.reason, before, tx.now) {
        Ok((_, change)) if change.is_empty() => Ok(Outcome::Replayed(())),
        Ok((refused, change)) => {
            apply(tx, &Loaded::named(&named), &change).await?;
            tx.execute_one(
                "refused",
                "INSERT INTO refused (run, worker, times, until_lease) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (run, worker) DO UPDATE SET times = excluded.times, until_lease = excluded.until_lease",
                values![named.run.id, session.worker, refused.times, refused.until],
            )
            .await?;
            Ok(Outcome::Applied(()))
        }
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}

async fn refused_before(db: &Connection, attempt: AttemptId, worker: &WorkerId) -> Result<Option<Refused>, Fault> {
    let sql = "SELECT f.times, f.until_lease FROM attempt a JOIN refused f ON f.run = a.run \
               WHERE a.id = $1 AND f.worker = $2";
    db.first(sql, values![attempt, *worker], |columns| Ok(Refused { times: columns.next()?, until: columns.next()? }))
        .await
}
