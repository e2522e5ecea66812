//! Pages and single views. Changes nothing.

use std::collections::BTreeMap;
use std::ops::Bound;

use leasehold_core::event::Event;
use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::run::{Run, RunState};
use leasehold_core::time::Millis;
use leasehold_core::worker::WorkerState;

use super::lanes::refused;
use super::{Transaction, places};
use crate::call::{AuditPage, EventsAfter, RunFilter};
use crate::outcome::StoreError;
use crate::view::{AuditEntry, RunFacts, RunSummary, Statistics, WorkerCounts, WorkerView};

pub(super) fn runs_by_prefix(tx: &Transaction<'_>, prefix: &str) -> Vec<RunId> {
    tx.state.runs.keys().filter(|id| id.to_string().starts_with(prefix)).take(2).copied().collect()
}

fn fits(run: &Run, filter: &RunFilter) -> bool {
    filter.project.as_ref().is_none_or(|project| run.project == *project)
        && (filter.states.is_empty() || filter.states.contains(&run.state))
        && (filter.task.is_none() || run.task == filter.task)
        && filter.since.is_none_or(|since| run.created_at >= since)
        && filter.before.is_none_or(|before| run.id < before)
}

pub(super) fn runs(tx: &Transaction<'_>, filter: &RunFilter, limit: usize) -> Result<Vec<RunSummary>, StoreError> {
    let newest = tx.state.runs.values().rev().filter(|run| fits(run, filter)).take(limit);
    newest
        .map(|run| {
            let name = RunSummary::name_of(tx.revision(run)?);
            Ok(RunSummary { run: run.clone(), name, worker: tx.latest(run)?.worker.clone() })
        })
        .collect()
}

pub(super) fn events(tx: &Transaction<'_>, page: EventsAfter, limit: usize) -> Vec<Event> {
    let story = tx.state.events.get(&page.run).map_or(&[][..], Vec::as_slice);
    let rest = story.iter().map(|stored| &stored.event);
    rest.filter(|event| page.after.is_none_or(|after| event.sequence > after)).take(limit).cloned().collect()
}

pub(super) fn worker(tx: &Transaction<'_>, id: &WorkerId) -> Result<Option<WorkerView>, StoreError> {
    let Some(worker) = tx.state.workers.get(id).filter(|worker| worker.state != WorkerState::Deleted).cloned() else {
        return Ok(None);
    };
    let active = tx.active_leases(id).map(|lease| lease.attempt).collect();
    let faults = tx.state.faults.get(id).cloned().unwrap_or_default();
    let session = tx.current(id).cloned();
    let device_holders = match &session {
        Some(session) => places::device_holders(tx, session)?,
        None => BTreeMap::new(),
    };
    Ok(Some(WorkerView { session, worker, active, device_holders, faults, now: tx.now }))
}

pub(super) fn workers(
    tx: &Transaction<'_>,
    after: Option<&WorkerId>,
    limit: usize,
) -> Result<Vec<WorkerView>, StoreError> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let page = tx.state.workers.range::<WorkerId, _>((from, Bound::Unbounded));
    page.filter_map(|(id, _)| worker(tx, id).transpose()).take(limit).collect()
}

pub(super) fn run_facts(
    tx: &Transaction<'_>,
    run: RunId,
    after: Option<&WorkerId>,
    limit: usize,
) -> Result<Option<RunFacts>, StoreError> {
    let Some(view) = tx.run_view(run)? else { return Ok(None) };
    let limits = if view.run.state == RunState::Pending { places::facts(tx, &view.run)? } else { Vec::new() };
    Ok(Some(RunFacts { refused: refused(tx, run), limits, workers: workers(tx, after, limit)?, now: tx.now, view }))
}

pub(super) fn audit(tx: &Transaction<'_>, page: AuditPage, limit: usize) -> Vec<AuditEntry> {
    let rows = tx.state.audit.iter();
    match page {
        AuditPage::Oldest { after } => {
            rows.filter(|entry| after.is_none_or(|after| entry.sequence > after)).take(limit).cloned().collect()
        }
        AuditPage::Newest { before } => rows
            .rev()
            .filter(|entry| before.is_none_or(|before| entry.sequence < before))
            .take(limit)
            .cloned()
            .collect(),
    }
}

pub(super) fn statistics(tx: &Transaction<'_>) -> Statistics {
    let in_state = |state| tx.state.runs.values().filter(move |run| run.state == state);
    let mut workers = WorkerCounts::default();
    let mut heartbeat_lag = Millis::ZERO;
    for worker in tx.state.workers.values() {
        let session = tx.current(&worker.id);
        let live = session.is_some_and(|session| session.is_live(tx.now.lease));
        workers.add(worker.state, session.map(|session| (session.state, live)), 1);
        if let Some(session) = session.filter(|_| live) {
            heartbeat_lag = heartbeat_lag.max(tx.now.lease.since(session.spoke_at).minus(session.interval));
        }
    }
    Statistics {
        now: tx.now,
        runs: Statistics::counted_states().map(|state| (state, in_state(state).count() as u64)).collect(),
        oldest_pending: in_state(RunState::Pending).map(|run| run.created_at).min(),
        workers,
        heartbeat_lag,
    }
}
