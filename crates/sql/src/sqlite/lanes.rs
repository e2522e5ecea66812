//! Lanes: the pending runs that are blocked or served alike, a page at a time. A blocked lane costs one seek.

use leasehold_core::claim::Refused;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_store::view::{Candidate, Lane, LaneKey};

use super::column::values;
use super::transaction::{Fault, Tx};
use super::{load, rows};

/// A lane's key as the index has it.
struct Key {
    project: ProjectName,
    placement: Digest,
    task: String,
}

/// The live lanes after `after`, each with its first runs.
pub(super) fn lanes(tx: &Tx<'_>, after: Option<&LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, Fault> {
    let mut found = Vec::new();
    let mut key = match after {
        None => first(tx)?,
        Some(after) => match after.placement.parse() {
            Ok(placement) => {
                let task = after.task.as_ref().map_or_else(String::new, ToString::to_string);
                next(tx, &Key { project: after.project.clone(), placement, task })?
            }
            Err(_) => return Err(Fault::Damaged("a lane's key names no placement".to_owned())),
        },
    };
    while let Some(at) = key.filter(|_| found.len() < lanes) {
        key = next(tx, &at)?;
        found.extend(load::readable("lane", lane(tx, at, heads))?);
    }
    Ok(found)
}

fn first(tx: &Tx<'_>) -> Result<Option<Key>, Fault> {
    let sql = "SELECT project, placement, lane_task FROM run INDEXED BY run_pending WHERE state = 'pending' \
               ORDER BY project, placement, lane_task LIMIT 1";
    tx.first(sql, values![], |columns| {
        Ok(Key { project: columns.next()?, placement: columns.next()?, task: columns.next()? })
    })
}

fn next(tx: &Tx<'_>, key: &Key) -> Result<Option<Key>, Fault> {
    let sql = "SELECT project, placement, lane_task FROM run INDEXED BY run_pending WHERE state = 'pending' \
               AND (project, placement, lane_task) > (?1, ?2, ?3) ORDER BY project, placement, lane_task LIMIT 1";
    tx.first(sql, values![key.project, key.placement, key.task], |columns| {
        Ok(Key { project: columns.next()?, placement: columns.next()?, task: columns.next()? })
    })
}

fn lane(tx: &Tx<'_>, key: Key, heads: usize) -> Result<Lane, Fault> {
    let placement = tx
        .first("SELECT canonical FROM placement WHERE digest = ?1", values![key.placement], rows::column)?
        .ok_or_else(|| Fault::Damaged(format!("there is no placement {}", key.placement)))?;
    let mut candidates = tx.all(
        "SELECT id, priority FROM run INDEXED BY run_pending WHERE state = 'pending' AND project = ?1 \
         AND placement = ?2 AND lane_task = ?3 ORDER BY priority DESC, id LIMIT ?4",
        values![key.project, key.placement, key.task, heads],
        |columns| Ok(Candidate { run: columns.next()?, priority: columns.next()?, refused: Vec::new() }),
    )?;
    for candidate in &mut candidates {
        candidate.refused = refused(tx, candidate.run)?;
    }
    let task = match key.task.as_str() {
        "" => None,
        task => Some(task.parse::<TaskName>().map_err(|error| Fault::Damaged(error.to_string()))?),
    };
    let key = LaneKey { project: key.project, placement: key.placement.to_string(), task };
    Ok(Lane { key, placement, heads: candidates, now: tx.now })
}

/// The workers that gave a run back and are not asked again yet.
pub(super) fn refused(tx: &Tx<'_>, run: RunId) -> Result<Vec<(WorkerId, Refused)>, Fault> {
    let sql = "SELECT worker, times, until_lease FROM refused WHERE run = ?1 AND until_lease > ?2 ORDER BY worker";
    tx.all(sql, values![run, tx.now.lease], |columns| {
        Ok((columns.next()?, Refused { times: columns.next()?, until: columns.next()? }))
    })
}
