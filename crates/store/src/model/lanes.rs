//! Lanes: the pending runs that are blocked or served alike, and the order in each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use leasehold_core::claim::Refused;
use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::run::{Run, RunState};

use super::{Transaction, places};
use crate::call::LaneAfter;
use crate::outcome::StoreError;
use crate::view::{Candidate, Lane, LaneKey};

/// The lane that a run waits in.
fn key(tx: &Transaction<'_>, run: &Run) -> Result<LaneKey, StoreError> {
    let limited = tx.revision(run)?.limits().concurrency.is_some();
    let task = run.task.clone().filter(|_| limited);
    Ok(LaneKey { project: run.project.clone(), placement: run.placement.to_string(), task })
}

/// The live lanes, each with its runs in order.
fn live<'a>(tx: &'a Transaction<'_>) -> Result<BTreeMap<LaneKey, Vec<&'a Run>>, StoreError> {
    let mut live: BTreeMap<LaneKey, Vec<&Run>> = BTreeMap::new();
    for run in tx.state.runs.values().filter(|run| run.state == RunState::Pending) {
        live.entry(key(tx, run)?).or_default().push(run);
    }
    for runs in live.values_mut() {
        runs.sort_by_key(|run| (Reverse(run.priority), run.id));
    }
    Ok(live)
}

pub(super) fn lanes(
    tx: &Transaction<'_>,
    after: Option<&LaneKey>,
    lanes: usize,
    heads: usize,
) -> Result<Vec<Lane>, StoreError> {
    let pages = live(tx)?.into_iter().filter(|(key, _)| after.is_none_or(|after| key > after)).take(lanes);
    pages
        .map(|(key, runs)| {
            let first = runs.first().ok_or_else(|| StoreError::Damaged { reason: "an empty lane".to_owned() })?;
            let placement = tx.revision(first)?.placement().clone();
            let project = places::of_project(tx, &key.project, None)?;
            let mut first = runs.iter().map(|run| candidate(tx, run)).collect::<Result<Vec<_>, _>>()?;
            let limited = key.task.is_some() || project.is_some();
            if let Some(place) = first.iter().position(|head| limited && head.holds) {
                first[..=place].rotate_right(1);
            }
            first.truncate(heads);
            let task_occupied = match &key.task {
                Some(task) => places::occupied(tx, &key.project, Some(task), None)?,
                None => 0,
            };
            Ok(Lane { key, placement, heads: first, task_occupied, project, now: tx.now })
        })
        .collect()
}

pub(super) fn heads(tx: &Transaction<'_>, of: &LaneAfter, limit: usize) -> Result<Vec<Candidate>, StoreError> {
    let runs = live(tx)?.remove(&of.lane).unwrap_or_default();
    let behind = runs.into_iter().filter(|run| {
        of.after.is_none_or(|after| (Reverse(run.priority), run.id) > (Reverse(after.priority), after.run))
    });
    behind.take(limit).map(|run| candidate(tx, run)).collect()
}

fn candidate(tx: &Transaction<'_>, run: &Run) -> Result<Candidate, StoreError> {
    Ok(Candidate {
        run: run.id,
        priority: run.priority,
        concurrency: tx.revision(run)?.policy().concurrency.filter(|_| run.task.is_some()),
        holds: tx.attempts(run.id).any(|attempt| attempt.may_live),
        submitted: run.fence.is_none().then_some(run.created_at),
        refused: refused(tx, run.id),
    })
}

/// The workers that gave a run back and are not asked again yet.
pub(super) fn refused(tx: &Transaction<'_>, run: RunId) -> Vec<(WorkerId, Refused)> {
    let rows = tx.state.refused.iter().filter(|((of, _), refused)| *of == run && refused.until > tx.now.lease);
    rows.map(|((_, worker), refused)| (worker.clone(), *refused)).collect()
}
