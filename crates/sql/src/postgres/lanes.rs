//! Lanes: the pending runs that are blocked or served alike, a page at a time. A blocked lane costs one seek.
//!
//! While somebody's snapshot stays open, the index keeps an entry of every run that was served since, before the first that
//! waits. The seek that finds a lane steps over them; whatever is read of the lane after that begins where it ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{try_join, try_join_all, try_join3};
use leasehold_core::claim::Refused;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::occupancy::Places;
use leasehold_store::call::LaneAfter;
use leasehold_store::view::{Candidate, HeadKey, Lane, LaneKey};

use super::column::{Column as _, list, values};
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

/// Where in a lane's order reading begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    /// With its first run, wherever that is.
    First,
    /// With this run, which was the first a moment ago: what came before it since then came after that look.
    At(HeadKey),
    /// Behind this run.
    Behind(HeadKey),
}

/// The live lanes after `after`, each with its first runs.
pub(super) async fn lanes(tx: &Tx, after: Option<&LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, Fault> {
    let keys = keys(tx, after, lanes).await?;
    let names: BTreeSet<ProjectName> = keys.iter().map(|(key, _)| key.project.clone()).collect();
    let projects = names.into_iter().map(|name| async {
        let places = places::of_project(tx, &name, None).await?;
        Ok::<_, Fault>((name, places))
    });
    let each = keys
        .into_iter()
        .map(|(key, first)| async move { load::readable("lane", lane(tx, key, Begin::At(first), heads).await) });
    let (projects, found) = try_join(try_join_all(projects), try_join_all(each)).await?;
    let projects: BTreeMap<ProjectName, Option<Places>> = projects.into_iter().collect();
    let mut found: Vec<Lane> = found.into_iter().flatten().collect();
    for lane in &mut found {
        lane.project = projects.get(&lane.key.project).copied().flatten();
    }
    let limited = found.iter_mut().filter(|lane| lane.key.task.is_some() || lane.project.is_some());
    try_join_all(limited.map(|lane| holder_first(tx, lane, heads))).await?;
    judge_heads(tx, found.iter_mut().flat_map(|lane| &mut lane.heads).collect()).await?;
    Ok(found)
}

/// Puts the first run of a lane that holds a place itself before all others.
async fn holder_first(tx: &Tx, lane: &mut Lane, heads: usize) -> Result<(), Fault> {
    let key = Key::of(&lane.key)?;
    let sql = "SELECT run.id, run.priority, run.concurrency FROM attempt JOIN run ON run.id = attempt.run \
               WHERE attempt.may_live AND run.state = 'pending' AND run.project = $1 AND run.placement = $2 \
               AND run.lane_task = $3";
    let holding = tx.all(sql, values![key.project, key.placement, key.task], |columns| {
        let (run, priority, concurrency) = (columns.next()?, columns.next()?, columns.next()?);
        // What holds a place was claimed before.
        Ok(Candidate { run, priority, concurrency, holds: true, submitted: None, refused: Vec::new() })
    });
    if let Some(first) = holding.await?.into_iter().min_by_key(|head| (Reverse(head.priority), head.run)) {
        lane.heads.retain(|head| head.run != first.run);
        lane.heads.insert(0, first);
        lane.heads.truncate(heads);
    }
    Ok(())
}

/// Further runs of lanes, each in its order.
pub(super) async fn heads(tx: &Tx, of: &[LaneAfter], limit: usize) -> Result<Vec<Vec<Candidate>>, Fault> {
    let page = |of: &LaneAfter| {
        let (key, begin) = (Key::of(&of.lane), of.after.map_or(Begin::First, Begin::Behind));
        async move {
            let page = match key {
                Ok(key) => candidates(tx, &key, begin, limit).await,
                Err(fault) => Err(fault),
            };
            Ok::<_, Fault>(load::readable("lane", page)?.unwrap_or_default())
        }
    };
    let mut pages: Vec<Vec<Candidate>> = try_join_all(of.iter().map(page)).await?;
    judge_heads(tx, pages.iter_mut().flatten().collect()).await?;
    Ok(pages)
}

/// What else is told of candidates: who gave them back, and whether they hold a place themselves.
async fn judge_heads(tx: &Tx, heads: Vec<&mut Candidate>) -> Result<(), Fault> {
    let runs: Vec<RunId> = heads.iter().map(|head| head.run).collect();
    let holding = "SELECT DISTINCT run FROM attempt WHERE may_live AND run = ANY ($1)";
    let (refused, holding) =
        try_join(refused(tx, &runs), tx.all(holding, [list(&runs)], rows::column::<RunId, _>)).await?;
    let mut by_run: BTreeMap<RunId, Vec<(WorkerId, Refused)>> = BTreeMap::new();
    for (run, worker, refused) in refused {
        by_run.entry(run).or_default().push((worker, refused));
    }
    for head in heads {
        head.refused = by_run.remove(&head.run).unwrap_or_default();
        head.holds = holding.contains(&head.run);
    }
    Ok(())
}

/// The keys of live lanes, and the first run of each: one seek of the index of what waits for each, however many runs it has.
async fn keys(tx: &Tx, after: Option<&LaneKey>, lanes: usize) -> Result<Vec<(Key, HeadKey)>, Fault> {
    // Nothing sorts before the empty key.
    let (mut project, mut placement, mut task) = (String::new(), Vec::new(), String::new());
    if let Some(after) = after {
        let digest: Digest =
            after.placement.parse().map_err(|_| Fault::Damaged("a lane's key names no placement".to_owned()))?;
        (project, placement) = (after.project.to_string(), digest.as_bytes().to_vec());
        task = after.task.as_ref().map_or_else(String::new, ToString::to_string);
    }
    tx.all(
        "WITH RECURSIVE live AS ( \
             (SELECT project, placement, lane_task, priority, id FROM run WHERE state = 'pending' \
              AND (project, placement, lane_task) > ($1, $2, $3) \
              ORDER BY project, placement, lane_task, priority DESC, id LIMIT 1) \
             UNION ALL \
             SELECT following.* FROM live CROSS JOIN LATERAL \
             (SELECT project, placement, lane_task, priority, id FROM run WHERE state = 'pending' \
              AND (project, placement, lane_task) > (live.project, live.placement, live.lane_task) \
              ORDER BY project, placement, lane_task, priority DESC, id LIMIT 1) AS following \
         ) SELECT project, placement, lane_task, priority, id FROM live LIMIT $4",
        values![project, placement, task, lanes],
        |columns| {
            let key = Key { project: columns.next()?, placement: columns.next()?, task: columns.next()? };
            Ok((key, HeadKey { priority: columns.next()?, run: columns.next()? }))
        },
    )
    .await
}

/// One lane; what is told of its project and of its heads comes later, for many at once.
async fn lane(tx: &Tx, key: Key, begin: Begin, heads: usize) -> Result<Lane, Fault> {
    let task = match key.task.as_str() {
        "" => None,
        task => Some(task.parse::<TaskName>().map_err(|error| Fault::Damaged(error.to_string()))?),
    };
    let occupied = async {
        match &task {
            Some(task) => places::occupied(tx, &key.project, Some(task), None).await,
            None => Ok(0),
        }
    };
    let placement = "SELECT canonical FROM placement WHERE digest = $1";
    let (placement, heads, task_occupied) = try_join3(
        tx.first(placement, values![key.placement], rows::column),
        candidates(tx, &key, begin, heads),
        occupied,
    )
    .await?;
    let placement = placement.ok_or_else(|| Fault::Damaged(format!("there is no placement {}", key.placement)))?;
    let key = LaneKey { project: key.project, placement: key.placement.to_string(), task };
    Ok(Lane { key, placement, heads, task_occupied, project: None, now: tx.now })
}

macro_rules! candidates_where {
    ($behind:literal) => {
        concat!(
            "SELECT id, priority, concurrency, CASE WHEN fence IS NULL THEN created_at END FROM run \
             WHERE state = 'pending' AND project = $1 \
             AND placement = $2 AND lane_task = $3 AND ",
            $behind,
            " ORDER BY priority DESC, id LIMIT $4"
        )
    };
}

/// The runs of a lane, in its order.
async fn candidates(tx: &Tx, key: &Key, begin: Begin, limit: usize) -> Result<Vec<Candidate>, Fault> {
    let read = |columns: &mut rows::Columns<'_>| {
        let (run, priority, concurrency) = (columns.next()?, columns.next()?, columns.next()?);
        let submitted = columns.next()?;
        Ok(Candidate { run, priority, concurrency, holds: false, submitted, refused: Vec::new() })
    };
    let (same, HeadKey { priority, run }) = match begin {
        Begin::First => {
            let sql = candidates_where!("TRUE");
            return tx.all(sql, values![key.project, key.placement, key.task, limit], read).await;
        }
        Begin::At(head) => (candidates_where!("priority = $5 AND id >= $6"), head),
        Begin::Behind(head) => (candidates_where!("priority = $5 AND id > $6"), head),
    };
    // The rest of its priority, then the lower ones: two ranges of the index, where one condition would be a scan.
    let mut found = tx.all(same, values![key.project, key.placement, key.task, limit, priority, run], read).await?;
    let rest = limit.saturating_sub(found.len());
    if rest > 0 {
        let lower = candidates_where!("priority < $5");
        found.extend(tx.all(lower, values![key.project, key.placement, key.task, rest, priority], read).await?);
    }
    Ok(found)
}

/// The workers that gave runs back and are not asked again yet, by run.
pub(super) async fn refused(tx: &Tx, runs: &[RunId]) -> Result<Vec<(RunId, WorkerId, Refused)>, Fault> {
    let sql = "SELECT run, worker, times, until_lease FROM refused WHERE run = ANY ($1) AND until_lease > $2 \
               ORDER BY run, worker";
    tx.all(sql, [list(runs), tx.now.lease.bind()], |columns| {
        let (run, worker) = (columns.next()?, columns.next()?);
        Ok((run, worker, Refused { times: columns.next()?, until: columns.next()? }))
    })
    .await
}
