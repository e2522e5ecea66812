//! A claimed attempt starts and runs: two acknowledgements, none inferred from the other.

use leasehold_core::attempt::{self, Held, Starting};
use leasehold_core::lease::{LeaseProjection, not_held};
use leasehold_core::refusal::Refusal;

use super::Transaction;
use super::apply::outcome;
use crate::call::{AcknowledgeRunning, AttemptStep};
use crate::outcome::{Outcome, Stored};

pub(super) fn starting(tx: &mut Transaction<'_>, call: &AttemptStep) -> Stored<Starting, Refusal> {
    let session = match tx.live(&call.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let Some(loaded) = tx.load(call.lease.attempt)? else {
        return Ok(Outcome::Refused(not_held()));
    };
    let held = Held { session: &session, run: &loaded.run, attempt: &loaded.attempt, lease: loaded.lease.as_ref() };
    match attempt::starting(held, &call.lease, &loaded.revision.policy(), tx.now) {
        Ok((answer, change)) => Ok(outcome(tx.apply(change)?, answer)),
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}

pub(super) fn running(tx: &mut Transaction<'_>, call: &AcknowledgeRunning) -> Stored<LeaseProjection, Refusal> {
    let AcknowledgeRunning { step, call } = call;
    let session = match tx.live(&step.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let Some(loaded) = tx.load(step.lease.attempt)? else {
        return Ok(Outcome::Refused(not_held()));
    };
    let held = Held { session: &session, run: &loaded.run, attempt: &loaded.attempt, lease: loaded.lease.as_ref() };
    match attempt::running(held, &step.lease, call, tx.now) {
        Ok((answer, change)) => Ok(outcome(tx.apply(change)?, answer)),
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}
