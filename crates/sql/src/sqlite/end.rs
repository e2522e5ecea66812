//! The end of an attempt: attempt, run, lease and events change together, or evidence is kept.

use leasehold_core::end::{self, EndCall, EndFacts, Ended};
use leasehold_core::refusal::Refusal;
use leasehold_store::outcome::Outcome;

use super::apply::{Loaded, apply};
use super::load::{self, Named, Speaker};
use super::transaction::{Decided, Tx};

/// Decides an `end`; a refusal may keep evidence.
pub(super) fn end(tx: &Tx<'_>, call: &EndCall) -> Decided<Ended, Refusal> {
    let speaker = Speaker::of(tx, &call.session)?;
    if let Err(refusal) = speaker.check_trusted() {
        return Ok(Outcome::Refused(refusal));
    }
    let named = match Named::of(tx, &call.lease)? {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let latest = load::latest_attempt(tx, &named.run)?;
    let policy = load::revision(tx, named.run.revision)?.policy();
    let facts = EndFacts {
        current: speaker.current.as_ref(),
        run: &named.run,
        attempt: &named.attempt,
        latest: &latest,
        lease: named.lease.as_ref(),
    };
    let (verdict, change) = end::end(facts, call, &policy, tx.now);
    let loaded = Loaded::of(&named.run, &[&named.attempt, &latest]).and_lease(named.lease.as_ref());
    apply(tx, &loaded, &change)?;
    Ok(match verdict {
        Ok(ended) if tx.wrote() => Outcome::Applied(ended),
        Ok(ended) => Outcome::Replayed(ended),
        Err(refusal) => Outcome::Refused(refusal),
    })
}
