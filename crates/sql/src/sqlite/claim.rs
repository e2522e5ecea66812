//! Asks and claims: what earlier claims say, the claim itself, and giving it back unstarted.

use std::collections::BTreeSet;

use leasehold_core::attempt::Held;
use leasehold_core::claim::{self, Ask, AskVerdict, NotClaimed, Refused, Waiting};
use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::lease::Lease;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::{Session, SessionFence};
use leasehold_store::call::{Claim, Release};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::ClaimRefused;
use leasehold_store::view::{AskState, Grant, PullState};

use super::apply::{Loaded, apply};
use super::column::values;
use super::load::{self, Named, Speaker};
use super::transaction::{Decided, Fault, Tx};
use super::{places, sessions};

/// What is known of each ask; rebinds what it holds.
pub(super) fn recover_asks(tx: &Tx<'_>, fence: &SessionFence, asks: &[Ask]) -> Decided<PullState, Refusal> {
    let speaker = Speaker::of(tx, fence)?;
    let session = match speaker.live(tx, fence) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let recovered = asks.iter().map(|ask| {
        // An offer that cannot be read can never be handed out: its ask is used up, the worker's others are not.
        Ok(load::readable("ask", recover(tx, session, ask))?.unwrap_or(AskState::Gone))
    });
    let asks = recovered.collect::<Result<_, Fault>>()?;
    let held = u16::try_from(load::active_leases(tx, &session.worker)?).unwrap_or(u16::MAX);
    let takes_work = speaker.worker.as_ref().is_some_and(|worker| worker.takes_work(session));
    let free_slots = if takes_work { session.max_runs.saturating_sub(held) } else { 0 };
    let directives = sessions::directives(tx, &speaker, session)?;
    let busy_devices = places::busy_devices(tx, session)?;
    let state = PullState { session: session.clone(), asks, directives, takes_work, free_slots, busy_devices };
    Ok(if tx.wrote() { Outcome::Applied(state) } else { Outcome::Replayed(state) })
}

/// What is known of one ask: whether it may be claimed with, its offer again, or that it is used up.
fn recover(tx: &Tx<'_>, session: &Session, ask: &Ask) -> Result<AskState, Fault> {
    let Some(lease) = load::lease_of_ask(tx, ask.offer, ask.token)? else {
        return Ok(AskState::Open);
    };
    let attempt = load::attempt(tx, lease.attempt)?
        .ok_or_else(|| Fault::Damaged(format!("a lease has no attempt {}", lease.attempt)))?;
    match claim::recover_ask(ask, Some((&lease, &attempt)), session, tx.now) {
        AskVerdict::Open => Ok(AskState::Open),
        AskVerdict::Gone => Ok(AskState::Gone),
        AskVerdict::Granted(granted) => {
            let (next, change) = *granted;
            apply(tx, &Loaded::default().and_lease(Some(&lease)), &change)?;
            Ok(AskState::Granted(Box::new(grant(tx, next)?)))
        }
    }
}

/// Everything an offer is built from, as this transaction left it.
fn grant(tx: &Tx<'_>, lease: Lease) -> Result<Grant, Fault> {
    let attempt = load::attempt(tx, lease.attempt)?
        .ok_or_else(|| Fault::Damaged(format!("a lease has no attempt {}", lease.attempt)))?;
    let run = load::run_of(tx, &attempt)?;
    let revision = load::revision(tx, run.revision)?;
    Ok(Grant { lease, run, attempt, revision, now: tx.now })
}

/// A live session claims a run.
pub(super) fn claim(tx: &Tx<'_>, call: &Claim) -> Decided<Grant, ClaimRefused> {
    let not_claimed = |why| Ok(Outcome::Refused(ClaimRefused::NotClaimed(why)));
    let speaker = Speaker::of(tx, &call.session)?;
    let session = match speaker.live(tx, &call.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(ClaimRefused::Refused(refusal))),
    };
    match recover(tx, session, &call.ask)? {
        AskState::Open => {}
        AskState::Granted(grant) if tx.wrote() => return Ok(Outcome::Applied(*grant)),
        AskState::Granted(grant) => return Ok(Outcome::Replayed(*grant)),
        AskState::Gone => return not_claimed(NotClaimed::AskGone),
    }
    let (Some(run), Some(worker)) = (load::run(tx, call.run)?, &speaker.worker) else {
        return not_claimed(NotClaimed::Taken);
    };
    let attempt = load::latest_attempt(tx, &run)?;
    let revision = load::revision(tx, run.revision)?;
    let policy = revision.policy();
    let limits = places::limits(tx, &run, &policy)?;
    let gpu = revision.placement().require().gpu.as_ref();
    let busy = if gpu.is_some() { places::busy_devices(tx, session)? } else { BTreeSet::new() };
    let waiting = Waiting { run: &run, attempt: &attempt, policy: &policy, limits, gpu, busy: &busy };
    let active = load::active_leases(tx, &session.worker)?;
    let (lease, change) = match claim::claim(worker, session, active, waiting, &call.ask, call.score, tx.now) {
        Ok(claimed) => claimed,
        Err(why) => return not_claimed(why),
    };
    apply(tx, &Loaded::of(&run, &[&attempt]), &change)?;
    let (run, attempt) = (change.run.unwrap_or(run), change.attempt.unwrap_or(attempt));
    Ok(Outcome::Applied(Grant { lease, run, attempt, revision, now: tx.now }))
}

/// `claimed → pending`, unstarted; the run is kept from this worker for a while.
pub(super) fn release(tx: &Tx<'_>, call: &Release) -> Decided<(), Refusal> {
    let fence = &call.step.session;
    let speaker = Speaker::of(tx, fence)?;
    let session = match speaker.live(tx, fence) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let named = match Named::of(tx, &call.step.lease)? {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let before = refused_before(tx, named.run.id, &session.worker)?;
    let held = Held { session, run: &named.run, attempt: &named.attempt, lease: named.lease.as_ref() };
    match claim::release(held, &call.step.lease, call.reason, before, tx.now) {
        Ok((_, change)) if change.is_empty() => Ok(Outcome::Replayed(())),
        Ok((refused, change)) => {
            apply(tx, &Loaded::named(&named), &change)?;
            tx.execute_one(
                "refused",
                "INSERT INTO refused (run, worker, times, until_lease) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (run, worker) DO UPDATE SET times = excluded.times, until_lease = excluded.until_lease",
                values![named.run.id, session.worker, refused.times, refused.until],
            )?;
            Ok(Outcome::Applied(()))
        }
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}

fn refused_before(tx: &Tx<'_>, run: RunId, worker: &WorkerId) -> Result<Option<Refused>, Fault> {
    let sql = "SELECT times, until_lease FROM refused WHERE run = ?1 AND worker = ?2";
    tx.first(sql, values![run, *worker], |columns| Ok(Refused { times: columns.next()?, until: columns.next()? }))
}
