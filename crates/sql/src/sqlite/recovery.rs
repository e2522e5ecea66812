//! Recovery: leases that ran out, retries that are due, attempts whose time is up. Bounded pages, each row decided on its own.
//!
//! A damaged row is logged and passed over: one broken run must not keep every other run of the installation waiting.

use std::collections::BTreeSet;

use leasehold_core::attempt::Attempt;
use leasehold_core::cancel::overdue;
use leasehold_core::expiry::{expire, expired_before, retry_due};
use leasehold_core::id::{AttemptId, RunId, WorkerId};
use leasehold_core::limits::LOST_GRACE;
use leasehold_core::time::{LeaseInstant, Millis};
use leasehold_store::view::Scanned;

use super::apply::{Loaded, apply};
use super::column::values;
use super::load::{self, Named};
use super::rows;
use super::transaction::{Fault, Tx};

/// The keys of a page, and whether there were more.
fn page<T>(mut due: Vec<T>, limit: usize) -> (Vec<T>, bool) {
    let more = due.len() > limit;
    due.truncate(limit);
    (due, more)
}

/// What a scan answers. Where every row of a full page was passed over, the next page would be the same one: wait instead.
fn scanned(tx: &Tx<'_>, changed: Changed, more: bool, next: Option<LeaseInstant>) -> Scanned {
    let Changed { runs, workers } = changed;
    let more = more && !runs.is_empty();
    let next = if more { Some(Millis::ZERO) } else { next.map(|due| due.since(tx.now.lease)) };
    Scanned { runs, workers, more, next }
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

/// Declares leases that ran out.
pub(super) fn expire_leases(tx: &Tx<'_>, limit: usize) -> Result<Scanned, Fault> {
    let due = tx.all(
        "SELECT attempt FROM lease INDEXED BY lease_active_expiry WHERE state = 'active' AND expires_lease <= ?1 \
         ORDER BY expires_lease, attempt LIMIT ?2",
        values![expired_before(tx.now.lease), limit.saturating_add(1)],
        rows::column::<AttemptId, _>,
    )?;
    let (due, more) = page(due, limit);
    let mut changed = Changed::default();
    for attempt in due {
        let Some((named, policy)) = load::readable("lease", of_attempt(tx, attempt))? else { continue };
        let Some(lease) = &named.lease else { continue };
        if let Some(change) = expire(&named.run, &named.attempt, lease, &policy, tx.now) {
            apply(tx, &Loaded::named(&named), &change)?;
            changed.of_attempt(&named.attempt);
        }
    }
    let next: Option<LeaseInstant> = tx.only(
        "SELECT min(expires_lease) FROM lease INDEXED BY lease_active_expiry WHERE state = 'active' AND expires_lease > ?1",
        values![expired_before(tx.now.lease)],
        rows::column,
    )?;
    Ok(scanned(tx, changed, more, next.map(|expires| expires.plus(LOST_GRACE))))
}

/// An attempt with what is decided about it.
pub(super) fn of_attempt(tx: &Tx<'_>, id: AttemptId) -> Result<(Named, leasehold_core::run::Policy), Fault> {
    let attempt = load::attempt(tx, id)?.ok_or_else(|| Fault::Damaged(format!("there is no attempt {id}")))?;
    let run = load::run_of(tx, &attempt)?;
    let lease = load::latest_lease(tx, &attempt)?;
    let policy = load::revision(tx, run.revision)?.policy();
    Ok((Named { run, attempt, lease }, policy))
}

/// Begins the attempts that are due, one per id.
pub(super) fn begin_retries(tx: &Tx<'_>, ids: &[AttemptId]) -> Result<Scanned, Fault> {
    let due = tx.all(
        "SELECT id FROM run INDEXED BY run_due WHERE state = 'retry_wait' AND due_lease <= ?1 \
         ORDER BY due_lease, id LIMIT ?2",
        values![tx.now.lease, ids.len().saturating_add(1)],
        rows::column::<RunId, _>,
    )?;
    let (due, more) = page(due, ids.len());
    let mut changed = Changed::default();
    for (run, next) in due.into_iter().zip(ids) {
        let loaded = load::run(tx, run).and_then(|run| {
            let run = run.ok_or_else(|| Fault::Damaged("a scanned run is not there".to_owned()))?;
            let latest = load::latest_attempt(tx, &run)?;
            Ok((run, latest))
        });
        let Some((run, latest)) = load::readable("run", loaded)? else { continue };
        if let Some(change) = retry_due(&run, &latest, *next, tx.now) {
            apply(tx, &Loaded::of(&run, &[&latest]), &change)?;
            changed.runs.push(run.id);
        }
    }
    let next = tx.only(
        "SELECT min(due_lease) FROM run INDEXED BY run_due WHERE state = 'retry_wait' AND due_lease > ?1",
        values![tx.now.lease],
        rows::column,
    )?;
    Ok(scanned(tx, changed, more, next))
}

/// Stores the wish to stop attempts whose time is up.
pub(super) fn stop_overdue(tx: &Tx<'_>, limit: usize) -> Result<Scanned, Fault> {
    let due = tx.all(
        "SELECT attempt.id FROM attempt INDEXED BY attempt_deadline JOIN run ON run.id = attempt.run \
         WHERE attempt.state IN ('starting', 'running') AND attempt.deadline_lease IS NOT NULL \
         AND attempt.deadline_lease <= ?1 AND run.intent_reason IS NULL \
         ORDER BY attempt.deadline_lease, attempt.id LIMIT ?2",
        values![tx.now.lease, limit.saturating_add(1)],
        rows::column::<AttemptId, _>,
    )?;
    let (due, more) = page(due, limit);
    let mut changed = Changed::default();
    for attempt in due {
        let Some((named, _)) = load::readable("attempt", of_attempt(tx, attempt))? else { continue };
        if let Some(change) = overdue(&named.run, &named.attempt, tx.now) {
            apply(tx, &Loaded::named(&named), &change)?;
            changed.of_attempt(&named.attempt);
        }
    }
    let next = tx.first(
        "SELECT attempt.deadline_lease FROM attempt INDEXED BY attempt_deadline JOIN run ON run.id = attempt.run \
         WHERE attempt.state IN ('starting', 'running') AND attempt.deadline_lease IS NOT NULL \
         AND attempt.deadline_lease > ?1 AND run.intent_reason IS NULL ORDER BY attempt.deadline_lease LIMIT 1",
        values![tx.now.lease],
        rows::column,
    )?;
    Ok(scanned(tx, changed, more, next))
}
