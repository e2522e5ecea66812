//! Asks and offers: what earlier claims say about an ask, the claim, and giving it back.

use leasehold_core::attempt::Held;
use leasehold_core::claim::{self, Ask, AskVerdict, NotClaimed, Waiting, recover_ask};
use leasehold_core::lease::{Lease, not_held};
use leasehold_core::refusal::Refusal;
use leasehold_core::session::{Session, SessionFence};

use super::apply::outcome;
use super::{Transaction, places};
use crate::call::{Claim, Release};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::ClaimRefused;
use crate::view::{AskState, Grant, PullState};

/// What the store knows of an ask: whether it may be claimed with, its offer again, or that it is used up. A granted one
/// is rebound on the way, which the flag says.
fn recover(tx: &mut Transaction<'_>, session: &Session, ask: &Ask) -> Result<(AskState, bool), StoreError> {
    let known = tx.state.leases.values().find(|lease| lease.offer == ask.offer || lease.token == ask.token).cloned();
    let attempt = known.as_ref().and_then(|lease| tx.state.attempts.get(&lease.attempt)).cloned();
    match recover_ask(ask, known.as_ref().zip(attempt.as_ref()), session, tx.now) {
        AskVerdict::Open => Ok((AskState::Open, false)),
        AskVerdict::Gone => Ok((AskState::Gone, false)),
        AskVerdict::Granted(granted) => {
            let (lease, change) = *granted;
            let wrote = tx.apply(change)?;
            Ok((AskState::Granted(Box::new(tx.grant(&lease)?)), wrote))
        }
    }
}

pub(super) fn recover_asks(tx: &mut Transaction<'_>, fence: &SessionFence, asks: &[Ask]) -> Stored<PullState, Refusal> {
    let session = match tx.live(fence) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let mut states = Vec::with_capacity(asks.len());
    let mut wrote = false;
    for ask in asks {
        let (state, rebound) = recover(tx, &session, ask)?;
        states.push(state);
        wrote |= rebound;
    }
    let held = u16::try_from(tx.active_leases(&session.worker).count()).unwrap_or(u16::MAX);
    let takes_work = tx.worker_of(&session)?.takes_work(&session);
    let free_slots = if takes_work { session.max_runs.saturating_sub(held) } else { 0 };
    let directives = tx.directives(&session);
    let busy_devices = places::busy_devices(tx, &session)?;
    Ok(outcome(wrote, PullState { session, asks: states, directives, takes_work, free_slots, busy_devices }))
}

pub(super) fn claim(tx: &mut Transaction<'_>, call: &Claim) -> Stored<Grant, ClaimRefused> {
    let session = match tx.live(&call.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(ClaimRefused::Refused(refusal))),
    };
    match recover(tx, &session, &call.ask)? {
        (AskState::Open, _) => {}
        (AskState::Granted(grant), wrote) => return Ok(outcome(wrote, *grant)),
        (AskState::Gone, _) => return Ok(Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::AskGone))),
    }
    match fresh(tx, &session, call)? {
        Ok(lease) => Ok(Outcome::Applied(tx.grant(&lease)?)),
        Err(not_claimed) => Ok(Outcome::Refused(ClaimRefused::NotClaimed(not_claimed))),
    }
}

fn fresh(tx: &mut Transaction<'_>, session: &Session, call: &Claim) -> Result<Result<Lease, NotClaimed>, StoreError> {
    let Some(run) = tx.state.runs.get(&call.run) else {
        return Ok(Err(NotClaimed::Taken));
    };
    let revision = tx.revision(run)?;
    let policy = revision.policy();
    let limits = places::limits(tx, run, &policy)?;
    let (gpu, busy) = (revision.placement().require().gpu.as_ref(), places::busy_devices(tx, session)?);
    let waiting = Waiting { run, attempt: tx.latest(run)?, policy: &policy, limits, gpu, busy: &busy };
    let active = tx.active_leases(&session.worker).count();
    match claim::claim(tx.worker_of(session)?, session, active, waiting, &call.ask, call.score, tx.now) {
        Ok((lease, change)) => {
            tx.apply(change)?;
            Ok(Ok(lease))
        }
        Err(not_claimed) => Ok(Err(not_claimed)),
    }
}

pub(super) fn release(tx: &mut Transaction<'_>, call: &Release) -> Stored<(), Refusal> {
    let session = match tx.live(&call.step.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let Some(loaded) = tx.load(call.step.lease.attempt)? else {
        return Ok(Outcome::Refused(not_held()));
    };
    let key = (loaded.run.id, session.worker.clone());
    let before = tx.state.refused.get(&key).copied();
    let held = Held { session: &session, run: &loaded.run, attempt: &loaded.attempt, lease: loaded.lease.as_ref() };
    match claim::release(held, &call.step.lease, call.reason, before, tx.now) {
        Ok((refused, change)) => {
            let wrote = tx.apply(change)?;
            tx.state.refused.insert(key, refused);
            Ok(outcome(wrote, ()))
        }
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}
