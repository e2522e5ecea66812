//! The end of an attempt: attempt, run, lease and events change together, or evidence is kept.

use futures_util::future::try_join4;
use leasehold_core::end::{self, EndCall, EndFacts, Ended};
use leasehold_core::refusal::Refusal;
use leasehold_store::outcome::Outcome;

use super::apply::{Loaded, apply};
use super::load::{self, Named, Speaker};
use super::lock::Locks;
use super::transaction::{Decided, Fault, Unlocked};

/// Decides an `end`; a refusal may keep evidence.
pub(super) async fn end(db: Unlocked, call: &EndCall) -> Decided<Ended, Refusal> {
    let tx = &db.lock(Locks::step(&call.session, &call.lease)).await?;
    let attempt = call.lease.attempt;
    let (speaker, named, latest, revision) = try_join4(
        Speaker::of(tx, &call.session),
        Named::of(tx, &call.lease),
        load::latest_beside(tx, attempt),
        load::revision_of(tx, attempt),
    )
    .await?;
    if let Err(refusal) = speaker.check_trusted() {
        return Ok(Outcome::Refused(refusal));
    }
    let named = match named {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let (Some(latest), Some(revision)) = (latest, revision) else {
        return Err(Fault::Damaged(format!("run {} has not the attempt or revision that it names", named.run.id)));
    };
    let policy = revision.policy();
    let facts = EndFacts {
        current: speaker.current.as_ref(),
        run: &named.run,
        attempt: &named.attempt,
        latest: &latest,
        lease: named.lease.as_ref(),
    };
    let (verdict, change) = end::end(facts, call, &policy, tx.now);
    let loaded = Loaded::of(&named.run, &[&named.attempt, &latest]).and_lease(named.lease.as_ref());
    apply(tx, &loaded, &change).await?;
    Ok(match verdict {
        Ok(ended) if tx.wrote() => Outcome::Applied(ended),
        Ok(ended) => Outcome::Replayed(ended),
        Err(refusal) => Outcome::Refused(refusal),
    })
}
