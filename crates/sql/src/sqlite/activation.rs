//! Starting and running: the two acknowledgements that move a claimed attempt.

use leasehold_core::attempt::{self, Held, Starting};
use leasehold_core::change::Change;
use leasehold_core::lease::LeaseProjection;
use leasehold_core::refusal::Refusal;
use leasehold_store::call::{AcknowledgeRunning, AttemptStep};
use leasehold_store::outcome::Outcome;

use super::apply::{Loaded, apply};
use super::load::{self, Named, Speaker};
use super::transaction::{Decided, Fault, Tx};

/// `claimed → starting`.
pub(super) fn starting(tx: &Tx<'_>, call: &AttemptStep) -> Decided<Starting, Refusal> {
    fenced(tx, call, |held| {
        let policy = load::revision(tx, held.run.revision)?.policy();
        Ok(attempt::starting(held, &call.lease, &policy, tx.now))
    })
}

/// `starting → running`.
pub(super) fn running(tx: &Tx<'_>, call: &AcknowledgeRunning) -> Decided<LeaseProjection, Refusal> {
    fenced(tx, &call.step, |held| Ok(attempt::running(held, &call.step.lease, &call.call, tx.now)))
}

/// A step of the live session that names a lease: load, decide, write.
pub(super) fn fenced<T>(
    tx: &Tx<'_>,
    step: &AttemptStep,
    decide: impl FnOnce(Held<'_>) -> Result<Result<(T, Change), Refusal>, Fault>,
) -> Decided<T, Refusal> {
    let speaker = Speaker::of(tx, &step.session)?;
    let session = match speaker.live(tx, &step.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let named = match Named::of(tx, &step.lease)? {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let held = Held { session, run: &named.run, attempt: &named.attempt, lease: named.lease.as_ref() };
    match decide(held)? {
        Ok((answer, change)) if change.is_empty() => Ok(Outcome::Replayed(answer)),
        Ok((answer, change)) => {
            apply(tx, &Loaded::named(&named), &change)?;
            Ok(Outcome::Applied(answer))
        }
        Err(refusal) => Ok(Outcome::Refused(refusal)),
    }
}
