//! Logs: framed bytes that only grow, as chunks keyed by attempt and offset.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::future::{try_join, try_join3};
use leasehold_core::attempt::Held;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::log::{self, other_bytes};
use leasehold_core::refusal::Refusal;
use leasehold_store::call::AppendLog;
use leasehold_store::outcome::Outcome;
use leasehold_store::view::LogPage;

use super::column::{Bound, Column as _, values};
use super::load::{self, Named, Speaker};
use super::lock::Locks;
use super::rows;
use super::transaction::{Connection, Decided, Fault, Tx, Unlocked};

/// Stores what is new of a piece; answers the durable length.
pub(super) async fn append(db: Unlocked, call: &AppendLog) -> Decided<u64, Refusal> {
    let (fence, attempt) = (&call.step.session, call.step.lease.attempt);
    let tx = &db.lock(Locks::step(fence, &call.step.lease)).await?;
    let (speaker, named, received) =
        try_join3(Speaker::of(tx, fence), Named::of(tx, &call.step.lease), received(tx, attempt)).await?;
    let session = match speaker.live(tx, fence) {
        Ok(session) => session,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let named = match named {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let held = Held { session, run: &named.run, attempt: &named.attempt, lease: named.lease.as_ref() };
    let fit = match log::append(held, &call.step.lease, call.offset, call.bytes.len(), received, tx.now) {
        Ok(fit) => fit,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let (known, fresh) = call.bytes.split_at(fit.known);
    if stored(tx, attempt, call.offset, known.len()).await? != known {
        return Ok(Outcome::Refused(other_bytes()));
    }
    if fresh.is_empty() {
        return Ok(Outcome::Replayed(received));
    }
    tx.execute_one(
        "log chunk",
        "INSERT INTO log_chunk (attempt, log_offset, length, bytes) VALUES ($1, $2, $3, $4)",
        [attempt.bind(), received.bind(), fresh.len().bind(), Bound::Bytes(Cow::Borrowed(fresh))],
    )
    .await?;
    Ok(Outcome::Applied(received.saturating_add(fresh.len() as u64)))
}

/// How many framed bytes of a log are stored.
pub(super) async fn received(db: &Connection, attempt: AttemptId) -> Result<u64, Fault> {
    let sql = "SELECT log_offset + length FROM log_chunk WHERE attempt = $1 ORDER BY log_offset DESC LIMIT 1";
    Ok(db.first(sql, values![attempt], rows::column).await?.unwrap_or(0))
}

/// How much of the log of each attempt of a run is stored, where anything is.
pub(super) async fn received_of(db: &Connection, run: RunId) -> Result<BTreeMap<AttemptId, u64>, Fault> {
    let sql = "SELECT a.id, c.received FROM attempt a CROSS JOIN LATERAL (SELECT log_offset + length AS received \
               FROM log_chunk WHERE attempt = a.id ORDER BY log_offset DESC LIMIT 1) c WHERE a.run = $1";
    let received = db.all(sql, values![run], |columns| Ok((columns.next()?, columns.next()?))).await?;
    Ok(received.into_iter().collect())
}

/// At most `limit` stored bytes from `offset` on.
async fn stored(db: &Connection, attempt: AttemptId, offset: u64, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    if limit == 0 {
        return Ok(bytes);
    }
    // From the chunk that covers the offset: the last one that begins at or before it.
    let sql = "SELECT log_offset, bytes FROM log_chunk WHERE attempt = $1 AND log_offset >= \
               (SELECT coalesce(max(log_offset), 0) FROM log_chunk WHERE attempt = $1 AND log_offset <= $2) \
               AND log_offset < $3 ORDER BY log_offset";
    let end = offset.saturating_add(limit as u64);
    let chunks: Vec<(u64, Vec<u8>)> =
        db.all(sql, values![attempt, offset, end], |columns| Ok((columns.next()?, columns.next()?))).await?;
    for (begin, chunk) in chunks {
        let skipped = usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX).min(chunk.len());
        let wanted = (chunk.len() - skipped).min(limit - bytes.len());
        bytes.extend_from_slice(&chunk[skipped..skipped + wanted]);
    }
    Ok(bytes)
}

/// A piece of a stored log.
pub(super) async fn read(tx: &Tx, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, Fault> {
    let Some(attempt) = load::attempt(tx, attempt).await? else { return Ok(None) };
    let (bytes, received) = try_join(stored(tx, attempt.id, offset, limit), received(tx, attempt.id)).await?;
    Ok(Some(LogPage { bytes, received, pinned: attempt.log.map(|log| log.length) }))
}
