//! Lanes: the pending runs that are blocked or served alike, a page at a time. A blocked lane costs one seek.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use leasehold_core::claim::Refused;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::occupancy::Places;
use leasehold_store::call::LaneAfter;
use leasehold_store::view::{Candidate, HeadKey, Lane, LaneKey};

use super::column::values;
use super::transaction::{Fault, Tx};
use super::{load, places, rows};

/// A lane's key as the index has it.
struct Key {
    project: ProjectName,
    placement: Digest,
    task: String,
}

impl Key {
    fn of(lane: &LaneKey) -> Result<Self, Fault> {
        let placement = lane.placement.parse();
        let placement = placement.map_err(|_| Fault::Damaged("a lane's key names no placement".to_owned()))?;
        let task = lane.task.as_ref().map_or_else(String::new, ToString::to_string);
        Ok(Self { project: lane.project.clone(), placement, task })
    }
}

/// The live lanes after `after`, each with its first runs.
pub(super) fn lanes(tx: &Tx<'_>, after: Option<&LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, Fault> {
    let mut found = Vec::new();
    let mut projects = BTreeMap::new();
    let mut key = match after {
        None => first(tx)?,
        Some(after) => next(tx, &Key::of(after)?)?,
    };
    while let Some(at) = key.filter(|_| found.len() < lanes) {
        key = next(tx, &at)?;
        found.extend(load::readable("lane", lane(tx, at, heads, &mut projects))?);
    }
    Ok(found)
}

/// Further runs of lanes, each in its order.
pub(super) fn heads(tx: &Tx<'_>, of: &[LaneAfter], limit: usize) -> Result<Vec<Vec<Candidate>>, Fault> {
    let page = |of: &LaneAfter| candidates(tx, &Key::of(&of.lane)?, of.after, limit);
    of.iter().map(|of| Ok(load::readable("lane", page(of))?.unwrap_or_default())).collect()
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

/// The limits of projects, as far as they were asked for.
type Projects = BTreeMap<ProjectName, Option<Places>>;

fn lane(tx: &Tx<'_>, key: Key, heads: usize, projects: &mut Projects) -> Result<Lane, Fault> {
    let placement = tx
        .first("SELECT canonical FROM placement WHERE digest = ?1", values![key.placement], rows::column)?
        .ok_or_else(|| Fault::Damaged(format!("there is no placement {}", key.placement)))?;
    let mut found = candidates(tx, &key, None, heads)?;
    let task = match key.task.as_str() {
        "" => None,
        task => Some(task.parse::<TaskName>().map_err(|error| Fault::Damaged(error.to_string()))?),
    };
    let task_occupied = match &task {
        Some(task) => places::occupied(tx, &key.project, Some(task), None)?,
        None => 0,
    };
    if !projects.contains_key(&key.project) {
        projects.insert(key.project.clone(), places::of_project(tx, &key.project, None)?);
    }
    let project = projects.get(&key.project).copied().flatten();
    if (task.is_some() || project.is_some())
        && let Some(holding) = holding(tx, &key)?
    {
        found.retain(|head| head.run != holding.run);
        found.insert(0, holding);
        found.truncate(heads);
    }
    let key = LaneKey { project: key.project, placement: key.placement.to_string(), task };
    Ok(Lane { key, placement, heads: found, task_occupied, project, now: tx.now })
}

/// The first run of a lane that holds a place itself.
fn holding(tx: &Tx<'_>, key: &Key) -> Result<Option<Candidate>, Fault> {
    let sql = "SELECT run.id, run.priority, run.concurrency FROM attempt INDEXED BY attempt_may_live \
               CROSS JOIN run ON run.id = attempt.run WHERE attempt.may_live = 1 AND run.state = 'pending' \
               AND run.project = ?1 AND run.placement = ?2 AND run.lane_task = ?3";
    let found = tx.all(sql, values![key.project, key.placement, key.task], |columns| {
        let (run, priority, concurrency) = (columns.next()?, columns.next()?, columns.next()?);
        // What holds a place was claimed before.
        Ok(Candidate { run, priority, concurrency, holds: true, submitted: None, refused: Vec::new() })
    })?;
    let first = found.into_iter().min_by_key(|head| (Reverse(head.priority), head.run));
    first.map(|head| Ok(Candidate { refused: refused(tx, head.run)?, ..head })).transpose()
}

macro_rules! candidates_where {
    ($behind:literal) => {
        concat!(
            "SELECT id, priority, concurrency, CASE WHEN fence IS NULL THEN created_at END FROM run \
             INDEXED BY run_pending WHERE state = 'pending' AND project = ?1 \
             AND placement = ?2 AND lane_task = ?3 AND ",
            $behind,
            " ORDER BY priority DESC, id LIMIT ?4"
        )
    };
}

/// The runs of a lane behind `after`, in its order.
fn candidates(tx: &Tx<'_>, key: &Key, after: Option<HeadKey>, limit: usize) -> Result<Vec<Candidate>, Fault> {
    let read = |columns: &mut rows::Columns<'_>| {
        let (run, priority, concurrency) = (columns.next()?, columns.next()?, columns.next()?);
        let submitted = columns.next()?;
        Ok(Candidate { run, priority, concurrency, holds: false, submitted, refused: Vec::new() })
    };
    let mut found = match after {
        None => {
            let sql = candidates_where!("TRUE");
            tx.all(sql, values![key.project, key.placement, key.task, limit], read)?
        }
        Some(HeadKey { priority, run }) => {
            // The rest of its priority, then the lower ones: two ranges of the index, where one condition would be a scan.
            let same = candidates_where!("priority = ?5 AND id > ?6");
            let mut found = tx.all(same, values![key.project, key.placement, key.task, limit, priority, run], read)?;
            let rest = limit.saturating_sub(found.len());
            if rest > 0 {
                let lower = candidates_where!("priority < ?5");
                found.extend(tx.all(lower, values![key.project, key.placement, key.task, rest, priority], read)?);
            }
            found
        }
    };
    for candidate in &mut found {
        candidate.refused = refused(tx, candidate.run)?;
        candidate.holds = places::holds(tx, candidate.run)?;
    }
    Ok(found)
}

/// The workers that gave a run back and are not asked again yet.
pub(super) fn refused(tx: &Tx<'_>, run: RunId) -> Result<Vec<(WorkerId, Refused)>, Fault> {
    let sql = "SELECT worker, times, until_lease FROM refused WHERE run = ?1 AND until_lease > ?2 ORDER BY worker";
    tx.all(sql, values![run, tx.now.lease], |columns| {
        Ok((columns.next()?, Refused { times: columns.next()?, until: columns.next()? }))
    })
}
