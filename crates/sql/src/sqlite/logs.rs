//! Logs: framed bytes that only grow, as chunks keyed by attempt and offset.

use leasehold_core::attempt::Held;
use leasehold_core::id::AttemptId;
use leasehold_core::log::{self, other_bytes};
use leasehold_core::refusal::Refusal;
use leasehold_store::call::AppendLog;
use leasehold_store::outcome::Outcome;
use leasehold_store::view::LogPage;

use super::column::values;
use super::load::{self, Named, Speaker};
use super::rows;
use super::transaction::{Decided, Fault, Tx};

/// Stores what is new of a piece; answers the durable length.
pub(super) fn append(tx: &Tx<'_>, call: &AppendLog) -> Decided<u64, Refusal> {
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
    let held = Held { session, run: &named.run, attempt: &named.attempt, lease: named.lease.as_ref() };
    let attempt = named.attempt.id;
    let received = received(tx, attempt)?;
    let fit = match log::append(held, &call.step.lease, call.offset, call.bytes.len(), received, tx.now) {
        Ok(fit) => fit,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let (known, fresh) = call.bytes.split_at(fit.known);
    if stored(tx, attempt, call.offset, known.len())? != known {
        return Ok(Outcome::Refused(other_bytes()));
    }
    if fresh.is_empty() {
        return Ok(Outcome::Replayed(received));
    }
    tx.execute_one(
        "log chunk",
        "INSERT INTO log_chunk (attempt, log_offset, length, bytes) VALUES (?1, ?2, ?3, ?4)",
        values![attempt, received, fresh.len(), fresh.to_vec()],
    )?;
    Ok(Outcome::Applied(received.saturating_add(fresh.len() as u64)))
}

/// How many framed bytes of a log are stored.
pub(super) fn received(tx: &Tx<'_>, attempt: AttemptId) -> Result<u64, Fault> {
    let sql = "SELECT log_offset + length FROM log_chunk WHERE attempt = ?1 ORDER BY log_offset DESC LIMIT 1";
    Ok(tx.first(sql, values![attempt], rows::column)?.unwrap_or(0))
}

/// At most `limit` stored bytes from `offset` on.
fn stored(tx: &Tx<'_>, attempt: AttemptId, offset: u64, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    if limit == 0 {
        return Ok(bytes);
    }
    // From the chunk that covers the offset: the last one that begins at or before it.
    let sql = "SELECT log_offset, bytes FROM log_chunk WHERE attempt = ?1 AND log_offset >= \
               (SELECT coalesce(max(log_offset), 0) FROM log_chunk WHERE attempt = ?1 AND log_offset <= ?2) \
               ORDER BY log_offset";
    tx.each(sql, values![attempt, offset], |columns| {
        let (begin, chunk): (u64, Vec<u8>) = (columns.next()?, columns.next()?);
        let skipped = usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX).min(chunk.len());
        let wanted = (chunk.len() - skipped).min(limit - bytes.len());
        bytes.extend_from_slice(&chunk[skipped..skipped + wanted]);
        Ok(bytes.len() < limit)
    })?;
    Ok(bytes)
}

/// A piece of a stored log.
pub(super) fn read(tx: &Tx<'_>, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, Fault> {
    let Some(attempt) = load::attempt(tx, attempt)? else { return Ok(None) };
    Ok(Some(LogPage {
        bytes: stored(tx, attempt.id, offset, limit)?,
        received: received(tx, attempt.id)?,
        pinned: attempt.log.map(|log| log.length),
    }))
}
