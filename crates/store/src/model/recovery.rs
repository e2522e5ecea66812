//! Scans: leases that ran out, attempts that are due, attempts whose time is up. Each page is bounded, each row checked again by
//! the decision.

use std::collections::BTreeSet;

use leasehold_core::attempt::Attempt;
use leasehold_core::cancel::overdue;
use leasehold_core::expiry::{expire, expired_before, retry_due};
use leasehold_core::id::{AttemptId, RunId, WorkerId};
use leasehold_core::lease::LeaseState;
use leasehold_core::limits;
use leasehold_core::run::RunState;
use leasehold_core::time::LeaseInstant;

use super::Transaction;
use crate::outcome::StoreError;
use crate::view::Scanned;

/// What is due, first the longest overdue, at most `limit`; and whether there was more.
fn page<T: Copy + Ord>(mut waiting: Vec<(LeaseInstant, T)>, now: LeaseInstant, limit: usize) -> (Vec<T>, bool) {
    waiting.retain(|(due, _)| *due <= now);
    waiting.sort_unstable();
    let more = waiting.len() > limit;
    (waiting.into_iter().take(limit).map(|(_, key)| key).collect(), more)
}

fn scanned<T>(tx: &Transaction<'_>, changed: Changed, more: bool, waiting: &[(LeaseInstant, T)]) -> Scanned {
    let Changed { runs, workers } = changed;
    Scanned { runs, workers, more, next: waiting.iter().map(|(due, _)| due.since(tx.now.lease)).min() }
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

/// The active leases with their ends.
fn leases(tx: &Transaction<'_>) -> Vec<(LeaseInstant, AttemptId)> {
    let active = tx.state.leases.values().filter(|lease| lease.state == LeaseState::Active);
    active.map(|lease| (lease.expires, lease.attempt)).collect()
}

pub(super) fn expire_leases(tx: &mut Transaction<'_>, limit: usize) -> Result<Scanned, StoreError> {
    let (due, more) = page(leases(tx), expired_before(tx.now.lease), limit);
    let mut changed = Changed::default();
    for attempt in due {
        let Some(loaded) = tx.load(attempt)? else { continue };
        let Some(lease) = &loaded.lease else { continue };
        if let Some(change) = expire(&loaded.run, &loaded.attempt, lease, &loaded.revision.policy(), tx.now) {
            tx.apply(change)?;
            changed.of_attempt(&loaded.attempt);
        }
    }
    // Declared later than they end.
    let waiting: Vec<_> =
        leases(tx).into_iter().map(|(end, attempt)| (end.plus(limits::LOST_GRACE), attempt)).collect();
    Ok(scanned(tx, changed, more, &waiting))
}

fn waits(tx: &Transaction<'_>) -> Vec<(LeaseInstant, RunId)> {
    let waiting = tx.state.runs.values().filter(|run| run.state == RunState::RetryWait);
    waiting.filter_map(|run| Some((run.due?, run.id))).collect()
}

pub(super) fn begin_retries(tx: &mut Transaction<'_>, ids: &[AttemptId]) -> Result<Scanned, StoreError> {
    let (due, more) = page(waits(tx), tx.now.lease, ids.len());
    let mut changed = Changed::default();
    for (run, next) in due.into_iter().zip(ids) {
        let Some(run) = tx.state.runs.get(&run) else { continue };
        if let Some(change) = retry_due(run, tx.latest(run)?, *next, tx.now) {
            changed.runs.push(run.id);
            tx.apply(change)?;
        }
    }
    Ok(scanned(tx, changed, more, &waits(tx)))
}

fn deadlines(tx: &Transaction<'_>) -> Vec<(LeaseInstant, AttemptId)> {
    let started = tx.state.attempts.values().filter(|attempt| attempt.state.is_started());
    let limited = started.filter_map(|attempt| Some((attempt.deadline?, attempt)));
    let unstopped =
        limited.filter(|(_, attempt)| tx.state.runs.get(&attempt.run).is_some_and(|run| run.intent.is_none()));
    unstopped.map(|(deadline, attempt)| (deadline, attempt.id)).collect()
}

pub(super) fn stop_overdue(tx: &mut Transaction<'_>, limit: usize) -> Result<Scanned, StoreError> {
    let (due, more) = page(deadlines(tx), tx.now.lease, limit);
    let mut changed = Changed::default();
    for attempt in due {
        let Some(loaded) = tx.load(attempt)? else { continue };
        if let Some(change) = overdue(&loaded.run, &loaded.attempt, tx.now) {
            tx.apply(change)?;
            changed.of_attempt(&loaded.attempt);
        }
    }
    Ok(scanned(tx, changed, more, &deadlines(tx)))
}
