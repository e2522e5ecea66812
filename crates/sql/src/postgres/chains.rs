//! Chains: who follows whom, and the runs that successes become. That a success is kept for its followers stands in the
//! schema (`run_succeeded`), so that no way to succeed can leave it out.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join;
use leasehold_core::admission::{self, Submission};
use leasehold_core::chain::{self, Arrival, Edges};
use leasehold_core::change::Change;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::limits::CHAIN_ARRIVALS;
use leasehold_core::revision::Revision;
use leasehold_core::task::Task;
use leasehold_store::view::Chained;

use super::column::{Column as _, list, values};
use super::rows::Columns;
use super::transaction::{Fault, Tx, Unlocked};
use super::{admit, load, rows, tasks};

/// The edges of a project, whose tasks are `known`.
pub(super) async fn edges(tx: &Tx, project: &ProjectName, known: &BTreeMap<TaskName, Task>) -> Result<Edges, Fault> {
    let sql = "SELECT task, predecessor FROM task_edge WHERE project = $1";
    let pair = |row: &mut Columns<'_>| Ok((row.next()?, row.next()?));
    let edges: Vec<(TaskName, TaskName)> = tx.all(sql, values![*project], pair).await?;
    let living = known.values().filter(|task| task.deleted_at.is_none()).map(|task| task.name.clone());
    Ok(Edges::of(living, edges))
}

/// Who follows a task, in the order of names.
pub(super) async fn followers(tx: &Tx, task: &Task) -> Result<Vec<TaskName>, Fault> {
    let sql = "SELECT task FROM task_edge WHERE project = $1 AND predecessor = $2 ORDER BY task";
    tx.all(sql, values![task.project, task.name], rows::column).await
}

/// These tasks follow these from now on; what they have of others goes, and what is left is looked at anew. The edges go
/// first: an end that has one in its hands is waited for, and what it keeps by it is seen by what comes then.
pub(super) async fn follow(
    tx: &Tx,
    project: &ProjectName,
    tasks: &[(&TaskName, &BTreeSet<TaskName>)],
) -> Result<(), Fault> {
    if tasks.is_empty() {
        return Ok(());
    }
    let names = || list(tasks.iter().map(|(task, _)| *task));
    let edges: Vec<_> = tasks.iter().flat_map(|(task, after)| after.iter().map(move |on| (*task, on))).collect();
    let (followers, predecessors) = (list(edges.iter().map(|(task, _)| *task)), list(edges.iter().map(|(_, on)| *on)));
    let sql = "DELETE FROM task_edge WHERE project = $1 AND task = ANY ($2) AND (predecessor, task) NOT IN \
               (SELECT n.predecessor, n.task FROM unnest($3::text[], $4::text[]) AS n (predecessor, task))";
    tx.execute(sql, [project.bind(), names(), predecessors, followers]).await?;
    let (followers, predecessors) = (list(edges.iter().map(|(task, _)| *task)), list(edges.iter().map(|(_, on)| *on)));
    let sql = "INSERT INTO task_edge (project, predecessor, task) SELECT $1, n.predecessor, n.task \
               FROM unnest($2::text[], $3::text[]) AS n (predecessor, task) ON CONFLICT DO NOTHING";
    tx.execute(sql, [project.bind(), predecessors, followers]).await?;
    let sql = "DELETE FROM arrival a WHERE a.project = $1 AND a.task = ANY ($2) AND NOT EXISTS (SELECT 1 FROM task_edge e \
               WHERE e.project = a.project AND e.predecessor = a.predecessor AND e.task = a.task)";
    tx.execute(sql, [project.bind(), names()]).await?;
    let sql = "UPDATE arrival SET seen = false WHERE project = $1 AND task = ANY ($2) AND seen";
    tx.execute(sql, [project.bind(), names()]).await?;
    Ok(())
}

/// What a task has is looked at anew.
pub(super) async fn look_again(tx: &Tx, project: &ProjectName, task: &TaskName) -> Result<(), Fault> {
    let sql = "UPDATE arrival SET seen = false WHERE project = $1 AND task = $2 AND seen";
    tx.execute(sql, values![*project, *task]).await?;
    Ok(())
}

/// Settles a page of what is new.
pub(super) async fn settle(db: Unlocked, limit: usize) -> Result<Chained, Fault> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM arrival WHERE NOT seen ORDER BY at, run LIMIT $1) n";
    let new: usize = db.only(sql, values![limit.saturating_add(1)], rows::column).await?;
    if new == 0 {
        return Ok(Chained::default());
    }
    let (tx, (free, skipped)) = &db.lock_followers(limit).await?;
    let mut chained = Chained { more: new > limit && !free.is_empty(), skipped: *skipped, ..Chained::default() };
    let mut admits = Vec::new();
    for (project, follower) in free {
        let left = limit.saturating_sub(admits.len());
        chained.more |= settle_one(tx, project, follower, left, &mut admits).await?;
    }
    chained.runs.extend(admits.iter().filter_map(|(change, _)| Some(change.run.as_ref()?.id)));
    // In the order of their placements, as far as those are new: of two that write the same ones, one waits.
    admits.sort_by_key(|(change, _)| change.run.as_ref().map(|run| *run.placement.as_bytes()));
    for (change, revision) in &admits {
        admit::insert(tx, change, revision).await?;
    }
    Ok(chained)
}

/// A run of a follower, and what it executes.
type Admits = Vec<(Change, Revision)>;

/// Uses up what one follower has, for at most `left` runs; whether there is more.
async fn settle_one(
    tx: &Tx,
    project: &ProjectName,
    follower: &TaskName,
    left: usize,
    admits: &mut Admits,
) -> Result<bool, Fault> {
    let Some(Some(view)) = load::readable("follower", tasks::task(tx, project, follower).await)? else {
        // It is not lost: the next success, or an edit, brings it before this again.
        let sql = "UPDATE arrival SET seen = true WHERE project = $1 AND task = $2";
        tx.execute(sql, values![*project, *follower]).await?;
        return Ok(false);
    };
    let sql = "SELECT at, run, predecessor FROM arrival WHERE project = $1 AND task = $2 ORDER BY at, run LIMIT $3";
    let arrival = |row: &mut Columns<'_>| Ok(Arrival { at: row.next()?, run: row.next()?, predecessor: row.next()? });
    let arrivals = tx.all(sql, values![*project, *follower, CHAIN_ARRIVALS], arrival).await?;
    let full = arrivals.len() >= CHAIN_ARRIVALS;
    let settled = chain::settle(view.revision.after(), arrivals, view.task.pause.is_some(), left);
    for (place, after) in settled.admits.iter().enumerate() {
        let (run, attempt) = after.ids(project, follower, place, tx.now.utc);
        let submission = Submission { project, task: Some(follower), scheduled: None, revision: &view.revision };
        admits.push((admission::follow(submission, after, run, attempt, tx.now), view.revision.clone()));
    }
    let gone = "DELETE FROM arrival WHERE project = $1 AND task = $2 AND run = ANY ($3)";
    let seen = "UPDATE arrival SET seen = true WHERE project = $1 AND task = $2 AND run = ANY ($3) AND NOT seen";
    try_join(
        tx.execute(gone, [project.bind(), follower.bind(), list(&settled.gone)]),
        tx.execute(seen, [project.bind(), follower.bind(), list(&settled.waiting)]),
    )
    .await?;
    Ok(full || settled.more)
}
