//! Starting and running: the two acknowledgements that move a claimed attempt.

use futures_util::future::{try_join, try_join3};
use leasehold_core::attempt::{self, Held, Starting};
use leasehold_core::change::Change;
use leasehold_core::lease::LeaseProjection;
use leasehold_core::refusal::Refusal;
use leasehold_store::call::{AcknowledgeRunning, AttemptStep};
use leasehold_store::outcome::Outcome;

use super::apply::{Loaded, apply};
use super::load::{self, Named, Speaker};
use super::lock::Locks;
use super::transaction::{Decided, Fault, Tx, Unlocked};

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
