//! What a person says of tasks, and how they are shown.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::actor::Actor;
use leasehold_core::cancel;
use leasehold_core::chain::Broken;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::revision::Revision;
use leasehold_core::run::{Run, RunState};
use leasehold_core::task::{self, Open, Plan, PlanMoved, Planned, Step, Task};
use leasehold_store::call::{ApplyTasks, DeleteTask};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::{PlanView, TaskRevision, TaskView};

use super::apply::{Loaded, apply as write_change};
use super::column::values;
use super::rows::{self, Columns, run_columns, task_columns};
use super::transaction::{Decided, Fault, Tx};
use super::{audit, chains, load, projects, triggers};

/// What applying would do, or why the tasks cannot follow each other so.
pub(super) fn plan(
    tx: &Tx<'_>,
    project: &ProjectName,
    wanted: &BTreeMap<TaskName, Revision>,
    prune: bool,
    cascade: bool,
) -> Result<Result<PlanView, Broken>, Fault> {
    let known = known(tx, project)?;
    let plan = Plan::of(&known, &digests(wanted), prune);
    if let Err(broken) = chains::edges(tx, project, &known)?.planned(&plan, wanted) {
        return Ok(Err(broken));
    }
    let mut refused = BTreeMap::new();
    for task in leaving(&plan, &known) {
        if let Err(why) = task::deleted(task, open(&open_runs(tx, task)?), cascade, tx.now.utc) {
            refused.insert(task.name.clone(), why);
        }
    }
    Ok(Ok(PlanView { plan, refused }))
}

/// The tasks that go by this plan.
fn leaving<'k>(plan: &Plan, known: &'k BTreeMap<TaskName, Task>) -> impl Iterator<Item = &'k Task> {
    plan.0.iter().filter(|line| line.step == Step::Remove).filter_map(|line| known.get(&line.name))
}

fn digests(tasks: &BTreeMap<TaskName, Revision>) -> BTreeMap<TaskName, Digest> {
    tasks.iter().map(|(name, revision)| (name.clone(), revision.digest())).collect()
}

/// Makes the tasks of a project what was said.
pub(super) fn apply(tx: &Tx<'_>, call: &ApplyTasks) -> Decided<(), Unmet> {
    let known = known(tx, &call.project)?;
    let plan = Plan::of(&known, &digests(&call.tasks), call.prune);
    if plan.is_settled() {
        return Ok(Outcome::Replayed(()));
    }
    if call.plan.is_some_and(|shown| shown != plan.digest()) {
        return Ok(Outcome::Refused(PlanMoved.into()));
    }
    let edges = chains::edges(tx, &call.project, &known)?;
    if let Err(broken) = edges.clone().planned(&plan, &call.tasks) {
        return Ok(Outcome::Refused(broken.into()));
    }
    let mut gone = Vec::new();
    for task in leaving(&plan, &known) {
        let runs = open_runs(tx, task)?;
        match task::deleted(task, open(&runs), call.cascade, tx.now.utc) {
            Ok(Some(next)) => gone.push((next, runs)),
            Ok(None) => {}
            Err(why) => return Ok(Outcome::Refused(Unmet::Task(task.name.clone(), why))),
        }
    }
    projects::ensure(tx, &call.project)?;
    for line in plan.0.iter().filter(|line| line.step != Step::Keep) {
        if let Some(revision) = call.tasks.get(&line.name) {
            write(tx, call, line, known.get(&line.name), revision)?;
        }
    }
    for (task, runs) in gone {
        remove(tx, &call.actor, &task, runs)?;
    }
    for line in plan.0.iter().filter(|line| line.step != Step::Keep) {
        if let Some(revision) = call.tasks.get(&line.name)
            && (edges.follows(&line.name) || !revision.after().is_empty())
        {
            chains::follow(tx, &call.project, &line.name, revision.after())?;
        }
    }
    Ok(Outcome::Applied(()))
}

/// Deletes a task.
pub(super) fn delete(tx: &Tx<'_>, call: &DeleteTask) -> Decided<(), Unmet> {
    let Some(known) = one(tx, &call.project, &call.name)? else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    if known.deleted_at.is_none() && call.seen.is_some_and(|seen| seen != known.revision) {
        return Ok(Outcome::Refused(Unmet::Moved("task")));
    }
    let runs = open_runs(tx, &known)?;
    match task::deleted(&known, open(&runs), call.cascade, tx.now.utc) {
        Ok(Some(task)) => {
            let followers = chains::followers(tx, &task)?;
            if !followers.is_empty() {
                return Ok(Outcome::Refused(Broken::Followed { task: task.name, followers }.into()));
            }
            remove(tx, &call.actor, &task, runs)?;
            Ok(Outcome::Applied(()))
        }
        Ok(None) => Ok(Outcome::Replayed(())),
        Err(why) => Ok(Outcome::Refused(Unmet::Task(call.name.clone(), why))),
    }
}

/// One task.
pub(super) fn task(tx: &Tx<'_>, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, Fault> {
    let task = one(tx, project, name)?.and_then(Task::living);
    task.map(|task| view(tx, task)).transpose()
}

/// The revision that a task has now; none of one that is not there.
pub(super) fn number(tx: &Tx<'_>, project: &ProjectName, name: &TaskName) -> Result<Option<RevisionNumber>, Fault> {
    Ok(one(tx, project, name)?.and_then(Task::living).map(|task| task.number))
}

/// A page of tasks, in the order of their names.
pub(super) fn tasks(
    tx: &Tx<'_>,
    project: &ProjectName,
    after: Option<&TaskName>,
    limit: usize,
) -> Result<Vec<TaskView>, Fault> {
    let after = after.map_or_else(String::new, ToString::to_string);
    let sql = concat!(
        "SELECT ",
        task_columns!(),
        " FROM task \
               WHERE project = ?1 AND name > ?2 AND deleted_at IS NULL ORDER BY name LIMIT ?3"
    );
    let page = tx.all(sql, values![*project, after, limit], rows::task)?;
    page.into_iter().map(|task| view(tx, task)).collect()
}

/// A page of a task's revisions, the newest first.
pub(super) fn history(
    tx: &Tx<'_>,
    project: &ProjectName,
    name: &TaskName,
    before: Option<RevisionNumber>,
    limit: usize,
) -> Result<Vec<TaskRevision>, Fault> {
    let before = before.map_or(i64::MAX, RevisionNumber::to_stored);
    let sql = "SELECT number, revision, applied_at, applied_by FROM task_revision \
               WHERE project = ?1 AND task = ?2 AND number < ?3 ORDER BY number DESC LIMIT ?4";
    tx.all(sql, values![*project, *name, before, limit], rows::task_revision)
}

/// One of a task's revisions.
pub(super) fn revision(
    tx: &Tx<'_>,
    project: &ProjectName,
    name: &TaskName,
    number: RevisionNumber,
) -> Result<Option<(TaskRevision, Revision)>, Fault> {
    let sql = "SELECT t.number, t.revision, t.applied_at, t.applied_by, r.canonical FROM task_revision t \
               JOIN revision r ON r.digest = t.revision WHERE t.project = ?1 AND t.task = ?2 AND t.number = ?3";
    let read = |columns: &mut Columns<'_>| Ok((rows::task_revision(columns)?, columns.next()?));
    tx.first(sql, values![*project, *name, number], read)
}

fn write(
    tx: &Tx<'_>,
    call: &ApplyTasks,
    line: &Planned,
    known: Option<&Task>,
    revision: &Revision,
) -> Result<(), Fault> {
    let digest = revision.digest();
    let Some(next) = task::applied(known, &call.project, &line.name, digest, tx.now.utc) else { return Ok(()) };
    let pause = next.pause.as_ref();
    let sql = "INSERT INTO revision (digest, canonical) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    tx.execute(sql, values![digest, *revision])?;
    tx.execute_one(
        "task",
        "INSERT INTO task (project, name, revision, number, created_at, changed_at, deleted_at, pause_by, pause_why, pause_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (project, name) DO UPDATE SET revision = excluded.revision, \
         number = excluded.number, created_at = excluded.created_at, changed_at = excluded.changed_at, \
         deleted_at = excluded.deleted_at, pause_by = excluded.pause_by, pause_why = excluded.pause_why, \
         pause_at = excluded.pause_at",
        values![
            next.project,
            next.name,
            next.revision,
            next.number,
            next.created_at,
            next.changed_at,
            next.deleted_at,
            pause.map(|pause| pause.by.clone()),
            pause.and_then(|pause| pause.why.clone()),
            pause.map(|pause| pause.at),
        ],
    )?;
    triggers::edit(tx, &next, line.before, revision)?;
    tx.execute_one(
        "task revision",
        "INSERT INTO task_revision (project, task, number, revision, applied_at, applied_by) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        values![next.project, next.name, next.number, digest, tx.now.utc, call.actor.to_string()],
    )?;
    let before = line.before.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
    let subject = format_args!("task/{}/{}", call.project, line.name);
    audit::write(tx, &call.actor, "apply_task", subject, &[("before", &before), ("after", &digest)])
}

/// Deletes a task of which [`task::deleted`] said so, and cancels its runs.
fn remove(tx: &Tx<'_>, actor: &Actor, task: &Task, runs: Vec<Run>) -> Result<(), Fault> {
    triggers::end(tx, task)?;
    let cancelled = runs.len();
    for run in runs {
        let attempt = load::latest_attempt(tx, &run)?;
        let (_, change) = cancel::cancel(&run, &attempt, actor, Some(task::CASCADE), tx.now)
            .map_err(|refused| Fault::Damaged(format!("run {}: {refused}", run.id)))?;
        write_change(tx, &Loaded::of(&run, &[&attempt]), &change)?;
    }
    let sql = "UPDATE task SET deleted_at = ?3 WHERE project = ?1 AND name = ?2";
    tx.execute_one("task", sql, values![task.project, task.name, task.deleted_at])?;
    chains::follow(tx, &task.project, &task.name, &BTreeSet::new())?;
    let subject = format_args!("task/{}/{}", task.project, task.name);
    audit::write(tx, actor, "delete_task", subject, &[("before", &task.revision), ("cancelled", &cancelled)])
}

fn open(runs: &[Run]) -> Open {
    let lost = runs.iter().filter(|run| run.state == RunState::Lost).count();
    Open { stoppable: runs.len().saturating_sub(lost), lost }
}

/// The runs of a task that have not ended; one more than a deletion may take is enough to know that it may not.
fn open_runs(tx: &Tx<'_>, task: &Task) -> Result<Vec<Run>, Fault> {
    // The states are the bounded side: what is open is bounded by what people wait for, what a task ever ran is not.
    let sql = concat!(
        "SELECT ",
        run_columns!(""),
        " FROM run INDEXED BY run_state WHERE state IN ('pending', 'dispatching', 'running', 'retry_wait', 'lost') \
          AND project = ?1 AND task = ?2 LIMIT ?3"
    );
    tx.all(sql, values![task.project, task.name, task::OPEN_RUNS], rows::run)
}

fn known(tx: &Tx<'_>, project: &ProjectName) -> Result<BTreeMap<TaskName, Task>, Fault> {
    let sql = concat!("SELECT ", task_columns!(), " FROM task WHERE project = ?1");
    let tasks = tx.all(sql, values![*project], rows::task)?;
    Ok(tasks.into_iter().map(|task| (task.name.clone(), task)).collect())
}

pub(super) fn one(tx: &Tx<'_>, project: &ProjectName, name: &TaskName) -> Result<Option<Task>, Fault> {
    let sql = concat!(
        "SELECT ",
        task_columns!(),
        " FROM task \
               WHERE project = ?1 AND name = ?2"
    );
    tx.first(sql, values![*project, *name], rows::task)
}

fn view(tx: &Tx<'_>, task: Task) -> Result<TaskView, Fault> {
    let sql = "SELECT canonical FROM revision WHERE digest = ?1";
    Ok(TaskView { revision: tx.only(sql, values![task.revision], rows::column)?, task })
}
