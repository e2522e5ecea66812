//! Recovery: leases that ran out, retries that are due, attempts whose time is up. Bounded pages, each row decided on its own.
//!
//! Every replica scans. Keys are read without a lock; then what nobody else has is locked, and looked at again: a run in the
//! hands of another call is left to the next scan, so that no scan waits for another.
//!
//! A damaged row is logged and passed over: one broken run must not keep every other run of the installation waiting.

use std::collections::BTreeSet;

use futures_util::future::{try_join, try_join_all};
use leasehold_core::attempt::Attempt;
use leasehold_core::cancel::overdue;
use leasehold_core::expiry::{expire, expired_before, retry_due};
use leasehold_core::id::{AttemptId, RunId, WorkerId};
use leasehold_core::limits::LOST_GRACE;
use leasehold_core::run::Policy;
use leasehold_core::time::{LeaseInstant, Millis};
use leasehold_store::view::Scanned;

use super::apply::{Loaded, apply};
use super::column::values;
use super::load::{self, Latest, Named};
use super::rows;
use super::transaction::{Fault, Tx, Unlocked};

/// The keys of a page, and whether there were more.
fn page<T>(mut due: Vec<T>, limit: usize) -> (Vec<T>, bool) {
    let more = due.len() > limit;
    due.truncate(limit);
    (due, more)
}

/// How soon a scan looks again at what another call had in its hands.
const SKIPPED: Millis = Millis::new(100);

/// What a scan answers. Where every row of a full page was passed over, the next page would be the same one: wait instead.
fn scanned(tx: &Tx, changed: Changed, page: &Page, next: Option<LeaseInstant>) -> Scanned {
    let Changed { runs, workers } = changed;
    let more = page.more && !runs.is_empty();
    let next = if more { Some(Millis::ZERO) } else { next.map(|due| due.since(tx.now.lease)) };
    let next = if page.skipped { Some(next.unwrap_or(SKIPPED).min(SKIPPED)) } else { next };
    Scanned { runs, workers, more, next }
}

/// What is told of a page of keys.
struct Page {
    /// There were more.
    more: bool,
    /// Another call had some of them.
    skipped: bool,
}

/// What a scan has changed so far.
#[derive(Default)]
struct Changed {
    runs: Vec<RunId>,
    workers: BTreeSet<WorkerId>,
}

impl Changed {
    /// The run of `attempt`, with news for the worker that has or had it.
    fn of_attempt(&mut self, attempt: &Attempt) {
        self.runs.push(attempt.run);
        self.workers.extend(attempt.worker.clone());
    }
}

/// What a scan answers that can call nobody late for this long.
fn in_doubt(for_now: Millis) -> Scanned {
    Scanned { runs: Vec::new(), workers: BTreeSet::new(), more: false, next: Some(for_now) }
}

/// Declares leases that ran out.
pub(super) async fn expire_leases(db: Unlocked, limit: usize) -> Result<Scanned, Fault> {
    let (now, doubt) = db.peek_clock_closely().await?;
    if doubt > Millis::ZERO {
        return Ok(in_doubt(doubt));
    }
    let due = db
        .all(
            "SELECT attempt FROM lease WHERE state = 'active' AND expires_lease <= $1 \
             ORDER BY expires_lease, attempt LIMIT $2",
            values![expired_before(now.lease), limit.saturating_add(1)],
            rows::column::<AttemptId, _>,
        )
        .await?;
    let (due, more) = page(due, limit);
    let (tx, free) = &db.lock_free(&due).await?;
    let mut changed = Changed::default();
    for (named, policy) in readable_attempts(tx, free).await? {
        let Some(lease) = &named.lease else { continue };
        if let Some(change) = expire(&named.run, &named.attempt, lease, &policy, tx.now) {
            apply(tx, &Loaded::named(&named), &change).await?;
            changed.of_attempt(&named.attempt);
        }
    }
    let sql = "SELECT min(expires_lease) FROM lease WHERE state = 'active' AND expires_lease > $1";
    let next: Option<LeaseInstant> = tx.only(sql, values![expired_before(tx.now.lease)], rows::column).await?;
    let page = Page { more, skipped: free.len() < due.len() };
    Ok(scanned(tx, changed, &page, next.map(|expires| expires.plus(LOST_GRACE))))
}

/// Attempts with what is decided about each; damaged ones are passed over.
async fn readable_attempts(tx: &Tx, ids: &[AttemptId]) -> Result<Vec<(Named, Policy)>, Fault> {
    let each = ids.iter().map(|id| async move { load::readable("attempt", of_attempt(tx, *id).await) });
    Ok(try_join_all(each).await?.into_iter().flatten().collect())
}

/// An attempt with what is decided about it.
pub(super) async fn of_attempt(tx: &Tx, id: AttemptId) -> Result<(Named, Policy), Fault> {
    let (named, revision) = try_join(Named::attempt(tx, id), load::revision_of(tx, id)).await?;
    match (named, revision) {
        (Some(named), Some(revision)) => Ok((named, revision.policy())),
        _ => Err(Fault::Damaged(format!("there is no attempt {id}, or its run has no revision"))),
    }
}

/// Begins the attempts that are due, one per id.
pub(super) async fn begin_retries(db: Unlocked, ids: &[AttemptId]) -> Result<Scanned, Fault> {
    let due = db
        .all(
            "SELECT id FROM run WHERE state = 'retry_wait' AND due_lease <= $1 ORDER BY due_lease, id LIMIT $2",
            values![db.peek_clock().await?.lease, ids.len().saturating_add(1)],
            rows::column::<RunId, _>,
        )
        .await?;
    let (due, more) = page(due, ids.len());
    let (tx, free) = &db.lock_free_runs(&due).await?;
    let each = free.iter().map(|run| async move { load::readable("run", Latest::of(tx, *run).await) });
    let mut changed = Changed::default();
    for (latest, next) in try_join_all(each).await?.into_iter().zip(ids) {
        let Some(Some(Latest { run, attempt, .. })) = latest else { continue };
        if let Some(change) = retry_due(&run, &attempt, *next, tx.now) {
            apply(tx, &Loaded::of(&run, &[&attempt]), &change).await?;
            changed.runs.push(run.id);
        }
    }
    let sql = "SELECT min(due_lease) FROM run WHERE state = 'retry_wait' AND due_lease > $1";
    let next = tx.only(sql, values![tx.now.lease], rows::column).await?;
    Ok(scanned(tx, changed, &Page { more, skipped: free.len() < due.len() }, next))
}

/// Stores the wish to stop attempts whose time is up.
pub(super) async fn stop_overdue(db: Unlocked, limit: usize) -> Result<Scanned, Fault> {
    let (now, doubt) = db.peek_clock_closely().await?;
    if doubt > Millis::ZERO {
        return Ok(in_doubt(doubt));
    }
    let due = db
        .all(
            "SELECT a.id FROM attempt a JOIN run r ON r.id = a.run \
             WHERE a.passing_lease <= $1 AND r.intent_reason IS NULL ORDER BY a.passing_lease, a.id LIMIT $2",
            values![now.lease, limit.saturating_add(1)],
            rows::column::<AttemptId, _>,
        )
        .await?;
    let (due, more) = page(due, limit);
    let (tx, free) = &db.lock_free(&due).await?;
    let mut changed = Changed::default();
    for (named, _) in readable_attempts(tx, free).await? {
        if let Some(change) = overdue(&named.run, &named.attempt, tx.now) {
            apply(tx, &Loaded::named(&named), &change).await?;
            changed.of_attempt(&named.attempt);
        }
    }
    let next = tx
        .first(
            "SELECT a.passing_lease FROM attempt a JOIN run r ON r.id = a.run \
             WHERE a.passing_lease > $1 AND r.intent_reason IS NULL ORDER BY a.passing_lease LIMIT 1",
            values![tx.now.lease],
            rows::column,
        )
        .await?;
    Ok(scanned(tx, changed, &Page { more, skipped: free.len() < due.len() }, next))
}
