//! Logs: framed bytes that only grow.

use leasehold_core::attempt::Held;
use leasehold_core::id::AttemptId;
use leasehold_core::lease::not_held;
use leasehold_core::log::{self, other_bytes};
use leasehold_core::refusal::Refusal;

use super::Transaction;
use super::apply::outcome;
use crate::call::AppendLog;
use crate::outcome::{Outcome, Stored};
use crate::view::LogPage;

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

pub(super) fn append(tx: &mut Transaction<'_>, call: &AppendLog) -> Stored<u64, Refusal> {
    let session = match tx.live(&call.step.session) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let attempt = call.step.lease.attempt;
    let Some(loaded) = tx.load(attempt)? else {
        return Ok(Outcome::Refused(not_held()));
    };
    let held = Held { session: &session, run: &loaded.run, attempt: &loaded.attempt, lease: loaded.lease.as_ref() };
    let stored = tx.state.logs.get(&attempt).map_or(&[][..], Vec::as_slice);
    let fit = match log::append(held, &call.step.lease, call.offset, call.bytes.len(), length(stored), tx.now) {
        Ok(fit) => fit,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let (known, fresh) = call.bytes.split_at(fit.known);
    let place = usize::try_from(call.offset).unwrap_or(usize::MAX);
    if stored.get(place..).is_none_or(|there| !there.starts_with(known)) {
        return Ok(Outcome::Refused(other_bytes()));
    }
    if fresh.is_empty() {
        return Ok(Outcome::Replayed(length(stored)));
    }
    let log = tx.state.logs.entry(attempt).or_default();
    log.extend_from_slice(fresh);
    Ok(outcome(true, length(log)))
}

pub(super) fn read(tx: &Transaction<'_>, attempt: AttemptId, offset: u64, limit: usize) -> Option<LogPage> {
    let pinned = tx.state.attempts.get(&attempt)?.log.map(|pin| pin.length);
    let stored = tx.state.logs.get(&attempt).map_or(&[][..], Vec::as_slice);
    let rest = usize::try_from(offset).ok().and_then(|offset| stored.get(offset..)).unwrap_or_default();
    let bytes = rest[..limit.min(rest.len())].to_vec();
    Some(LogPage { bytes, received: length(stored), pinned })
}
