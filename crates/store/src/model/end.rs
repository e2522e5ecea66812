//! An attempt ends, or says again that it ended.

use leasehold_core::end::{self, EndCall, EndFacts, Ended};
use leasehold_core::lease::not_held;
use leasehold_core::refusal::Refusal;

use super::Transaction;
use super::apply::outcome;
use crate::outcome::{Outcome, Stored};

pub(super) fn end(tx: &mut Transaction<'_>, call: &EndCall) -> Stored<Ended, Refusal> {
    if let Err(refusal) = tx.check_trusted(&call.session.worker) {
        return Ok(Outcome::Refused(refusal));
    }
    let Some(loaded) = tx.load(call.lease.attempt)? else {
        return Ok(Outcome::Refused(not_held()));
    };
    let facts = EndFacts {
        current: tx.current(&call.session.worker),
        run: &loaded.run,
        attempt: &loaded.attempt,
        latest: &loaded.latest,
        lease: loaded.lease.as_ref(),
    };
    let (verdict, change) = end::end(facts, call, &loaded.revision.policy(), tx.now);
    let wrote = tx.apply(change)?;
    Ok(match verdict {
        Ok(ended) => outcome(wrote, ended),
        Err(refusal) => Outcome::Refused(refusal),
    })
}
