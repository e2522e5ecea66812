//! Chains: who follows whom, and the runs that successes become. That a success is kept for its followers stands in the
//! schema (`run_succeeded`), so that no way to succeed can leave it out.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::admission::{self, Submission};
use leasehold_core::chain::{self, Arrival, Edges};
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::limits::CHAIN_ARRIVALS;
use leasehold_core::task::Task;
use leasehold_store::view::Chained;

use super::column::values;
use super::rows::Columns;
use super::transaction::{Fault, Tx};
use super::{admit, load, rows, tasks};

/// The edges of a project, whose tasks are `known`.
pub(super) fn edges(tx: &Tx<'_>, project: &ProjectName, known: &BTreeMap<TaskName, Task>) -> Result<Edges, Fault> {
    let sql = "SELECT task, predecessor FROM task_edge WHERE project = ?1";
    let edges: Vec<(TaskName, TaskName)> = tx.all(sql, values![*project], |row| Ok((row.next()?, row.next()?)))?;
    let living = known.values().filter(|task| task.deleted_at.is_none()).map(|task| task.name.clone());
    Ok(Edges::of(living, edges))
}

/// Who follows a task, in the order of names.
pub(super) fn followers(tx: &Tx<'_>, task: &Task) -> Result<Vec<TaskName>, Fault> {
    let sql = "SELECT task FROM task_edge WHERE project = ?1 AND predecessor = ?2 ORDER BY task";
    tx.all(sql, values![task.project, task.name], rows::column)
}

/// A task follows these from now on; what it has of others goes, and what is left is looked at anew.
pub(super) fn follow(
    tx: &Tx<'_>,
    project: &ProjectName,
    task: &TaskName,
    after: &BTreeSet<TaskName>,
) -> Result<(), Fault> {
    tx.execute("DELETE FROM task_edge WHERE project = ?1 AND task = ?2", values![*project, *task])?;
    for predecessor in after {
        let sql = "INSERT INTO task_edge (project, predecessor, task) VALUES (?1, ?2, ?3)";
        tx.execute_one("task edge", sql, values![*project, *predecessor, *task])?;
    }
    let sql = "DELETE FROM arrival WHERE project = ?1 AND task = ?2 AND predecessor NOT IN \
               (SELECT predecessor FROM task_edge WHERE project = ?1 AND task = ?2)";
    tx.execute(sql, values![*project, *task])?;
    look_again(tx, project, task)
}

/// What a task has is looked at anew.
pub(super) fn look_again(tx: &Tx<'_>, project: &ProjectName, task: &TaskName) -> Result<(), Fault> {
    tx.execute("UPDATE arrival SET seen = 0 WHERE project = ?1 AND task = ?2 AND seen = 1", values![*project, *task])?;
    Ok(())
}

/// Settles a page of what is new.
pub(super) fn settle(tx: &Tx<'_>, limit: usize) -> Result<Chained, Fault> {
    let sql = "SELECT project, task FROM arrival INDEXED BY arrival_new WHERE seen = 0 ORDER BY at, run LIMIT ?1";
    let pair = |row: &mut Columns<'_>| Ok((row.next()?, row.next()?));
    let mut new: Vec<(ProjectName, TaskName)> = tx.all(sql, values![limit.saturating_add(1)], pair)?;
    let mut chained = Chained { more: new.len() > limit, ..Chained::default() };
    new.truncate(limit);
    for (project, follower) in new.into_iter().collect::<BTreeSet<_>>() {
        settle_one(tx, &project, &follower, limit, &mut chained)?;
    }
    Ok(chained)
}

fn settle_one(
    tx: &Tx<'_>,
    project: &ProjectName,
    follower: &TaskName,
    limit: usize,
    chained: &mut Chained,
) -> Result<(), Fault> {
    let Some(Some(view)) = load::readable("follower", tasks::task(tx, project, follower))? else {
        // It is not lost: the next success, or an edit, brings it before this again.
        let sql = "UPDATE arrival SET seen = 1 WHERE project = ?1 AND task = ?2";
        tx.execute(sql, values![*project, *follower])?;
        return Ok(());
    };
    let sql = "SELECT at, run, predecessor FROM arrival WHERE project = ?1 AND task = ?2 ORDER BY at, run LIMIT ?3";
    let arrival = |row: &mut Columns<'_>| Ok(Arrival { at: row.next()?, run: row.next()?, predecessor: row.next()? });
    let arrivals = tx.all(sql, values![*project, *follower, CHAIN_ARRIVALS], arrival)?;
    chained.more |= arrivals.len() >= CHAIN_ARRIVALS;
    let left = limit.saturating_sub(chained.runs.len());
    let settled = chain::settle(view.revision.after(), arrivals, view.task.pause.is_some(), left);
    chained.more |= settled.more;
    for (place, after) in settled.admits.iter().enumerate() {
        let (run, attempt) = after.ids(project, follower, place, tx.now.utc);
        let submission = Submission { project, task: Some(follower), scheduled: None, revision: &view.revision };
        admit::insert(tx, &admission::follow(submission, after, run, attempt, tx.now), &view.revision)?;
        chained.runs.push(run);
    }
    for run in settled.gone {
        let sql = "DELETE FROM arrival WHERE project = ?1 AND task = ?2 AND run = ?3";
        tx.execute_one("arrival", sql, values![*project, *follower, run])?;
    }
    for run in settled.waiting {
        let sql = "UPDATE arrival SET seen = 1 WHERE project = ?1 AND task = ?2 AND run = ?3";
        tx.execute_one("arrival", sql, values![*project, *follower, run])?;
    }
    Ok(())
}
