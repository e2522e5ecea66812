//! What a person says of tasks, and how they are shown.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use leasehold_core::cancel;
use leasehold_core::chain::Broken;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::revision::Revision;
use leasehold_core::run::{Run, RunState};
use leasehold_core::task::{self, Open, Plan, PlanMoved, Planned, Step, Task, Undeletable};

use super::{Transaction, chains, projects, triggers};
use crate::call::{ApplyTasks, DeleteTask};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Unmet;
use crate::view::{TaskRevision, TaskView};

pub(super) fn plan(
    tx: &Transaction<'_>,
    project: &ProjectName,
    wanted: &BTreeMap<TaskName, Revision>,
    prune: bool,
) -> Plan {
    let known = all(tx, project).map(|task| (task.name.clone(), task.clone())).collect();
    Plan::of(&known, &wanted.iter().map(|(name, revision)| (name.clone(), revision.digest())).collect(), prune)
}

/// The tasks that would go by this plan and may not.
pub(super) fn refused(
    tx: &Transaction<'_>,
    project: &ProjectName,
    plan: &Plan,
    cascade: bool,
) -> BTreeMap<TaskName, Undeletable> {
    let leaving = plan.0.iter().filter(|line| line.step == Step::Remove);
    let known = leaving.filter_map(|line| living(tx, project, &line.name));
    let refused = known.filter_map(|task| {
        let why = task::deleted(task, open(tx, task), cascade, tx.now.utc).err()?;
        Some((task.name.clone(), why))
    });
    refused.collect()
}

pub(super) fn apply(tx: &mut Transaction<'_>, call: &ApplyTasks) -> Stored<(), Unmet> {
    let plan = plan(tx, &call.project, &call.tasks, call.prune);
    if plan.is_settled() {
        return Ok(Outcome::Replayed(()));
    }
    if call.plan.is_some_and(|shown| shown != plan.digest()) {
        return Ok(Outcome::Refused(PlanMoved.into()));
    }
    if let Err(broken) = chains::edges(tx, &call.project).planned(&plan, &call.tasks) {
        return Ok(Outcome::Refused(broken.into()));
    }
    if let Some((name, why)) = refused(tx, &call.project, &plan, call.cascade).pop_first() {
        return Ok(Outcome::Refused(Unmet::Task(name, why)));
    }
    projects::ensure(tx, &call.project);
    for line in plan.0.iter().filter(|line| line.step != Step::Keep) {
        if line.step == Step::Remove {
            let delete = DeleteTask {
                actor: call.actor.clone(),
                project: call.project.clone(),
                name: line.name.clone(),
                cascade: call.cascade,
                seen: None,
            };
            delete_checked(tx, &delete)?;
        } else if let Some(revision) = call.tasks.get(&line.name) {
            write(tx, call, line, revision)?;
        }
    }
    Ok(Outcome::Applied(()))
}

fn write(tx: &mut Transaction<'_>, call: &ApplyTasks, line: &Planned, revision: &Revision) -> Result<(), StoreError> {
    let key = (call.project.clone(), line.name.clone());
    let digest = revision.digest();
    let Some(next) = task::applied(tx.state.tasks.get(&key), &call.project, &line.name, digest, tx.now.utc) else {
        return Ok(());
    };
    let (number, at, by) = (next.number, tx.now.utc, call.actor.to_string());
    triggers::edit(tx, &next, line.before, revision)?;
    tx.state.revisions.insert(*digest.as_bytes(), revision.clone());
    let history = tx.state.task_revisions.entry(key.clone()).or_default();
    history.push(TaskRevision { number, revision: digest, at, by });
    tx.state.tasks.insert(key, next);
    chains::follow(tx, &call.project, &line.name, revision.after());
    let before = line.before.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
    let facts = [("before", before), ("after", digest.to_string())];
    tx.record(&call.actor, "apply_task", format_args!("task/{}/{}", call.project, line.name), facts);
    Ok(())
}

pub(super) fn delete(tx: &mut Transaction<'_>, call: &DeleteTask) -> Stored<(), Unmet> {
    let Some(known) = tx.state.tasks.get(&(call.project.clone(), call.name.clone())) else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    if known.deleted_at.is_none() && call.seen.is_some_and(|seen| seen != known.revision) {
        return Ok(Outcome::Refused(Unmet::Moved("task")));
    }
    match task::deleted(known, open(tx, known), call.cascade, tx.now.utc) {
        Ok(None) => Ok(Outcome::Replayed(())),
        Ok(Some(_)) => match chains::edges(tx, &call.project).followers(&call.name) {
            followers if followers.is_empty() => delete_checked(tx, call).map(Outcome::Applied),
            followers => Ok(Outcome::Refused(Broken::Followed { task: call.name.clone(), followers }.into())),
        },
        Err(why) => Ok(Outcome::Refused(Unmet::Task(call.name.clone(), why))),
    }
}

/// Deletes a task of which [`task::deleted`] said that it can be, and cancels its runs.
fn delete_checked(tx: &mut Transaction<'_>, call: &DeleteTask) -> Result<(), StoreError> {
    let key = (call.project.clone(), call.name.clone());
    let Some(known) = tx.state.tasks.get(&key).cloned() else { return Ok(()) };
    triggers::end(tx, &known)?;
    let runs: Vec<Run> = open_runs(tx, &known).cloned().collect();
    let mut cancelled = 0_usize;
    for run in runs {
        let (_, change) = match cancel::cancel(&run, tx.latest(&run)?, &call.actor, Some(task::CASCADE), tx.now) {
            Ok(decided) => decided,
            Err(refused) => return Err(StoreError::Damaged { reason: format!("run {}: {refused}", run.id) }),
        };
        cancelled += usize::from(tx.apply(change)?);
    }
    chains::follow(tx, &call.project, &call.name, &BTreeSet::new());
    let deleted_at = Some(tx.now.utc);
    if let btree_map::Entry::Occupied(mut task) = tx.state.tasks.entry(key) {
        task.get_mut().deleted_at = deleted_at;
    }
    let facts = [("before", known.revision.to_string()), ("cancelled", cancelled.to_string())];
    tx.record(&call.actor, "delete_task", format_args!("task/{}/{}", call.project, call.name), facts);
    Ok(())
}

fn open(tx: &Transaction<'_>, task: &Task) -> Open {
    let (lost, stoppable): (Vec<_>, Vec<_>) = open_runs(tx, task).partition(|run| run.state == RunState::Lost);
    Open { stoppable: stoppable.len(), lost: lost.len() }
}

fn open_runs<'t>(tx: &'t Transaction<'_>, task: &'t Task) -> impl Iterator<Item = &'t Run> {
    let of_task = |run: &&Run| run.project == task.project && run.task.as_ref() == Some(&task.name);
    tx.state.runs.values().filter(move |run| of_task(run) && !run.state.is_terminal())
}

fn all<'t>(tx: &'t Transaction<'_>, project: &'t ProjectName) -> impl Iterator<Item = &'t Task> {
    tx.state.tasks.values().filter(move |task| task.project == *project)
}

/// The task of this name that is here now.
pub(super) fn living<'t>(tx: &'t Transaction<'_>, project: &ProjectName, name: &TaskName) -> Option<&'t Task> {
    tx.state.tasks.get(&(project.clone(), name.clone())).filter(|task| task.deleted_at.is_none())
}

pub(super) fn task(
    tx: &Transaction<'_>,
    project: &ProjectName,
    name: &TaskName,
) -> Result<Option<TaskView>, StoreError> {
    living(tx, project, name).map(|task| view(tx, task)).transpose()
}

pub(super) fn tasks(
    tx: &Transaction<'_>,
    project: &ProjectName,
    after: Option<&TaskName>,
    limit: usize,
) -> Result<Vec<TaskView>, StoreError> {
    let page =
        all(tx, project).filter(|task| task.deleted_at.is_none() && after.is_none_or(|after| task.name > *after));
    page.take(limit).map(|task| view(tx, task)).collect()
}

pub(super) fn history(
    tx: &Transaction<'_>,
    project: &ProjectName,
    name: &TaskName,
    before: Option<RevisionNumber>,
    limit: usize,
) -> Vec<TaskRevision> {
    let history = tx.state.task_revisions.get(&(project.clone(), name.clone()));
    let newest = history.into_iter().flatten().rev();
    newest.filter(|one| before.is_none_or(|before| one.number < before)).take(limit).cloned().collect()
}

pub(super) fn revision(
    tx: &Transaction<'_>,
    project: &ProjectName,
    name: &TaskName,
    number: RevisionNumber,
) -> Result<Option<(TaskRevision, Revision)>, StoreError> {
    let mut history = tx.state.task_revisions.get(&(project.clone(), name.clone())).into_iter().flatten();
    let found = history.find(|one| one.number == number);
    found.map(|one| Ok((one.clone(), stored(tx, one.revision)?))).transpose()
}

fn view(tx: &Transaction<'_>, task: &Task) -> Result<TaskView, StoreError> {
    Ok(TaskView { task: task.clone(), revision: stored(tx, task.revision)? })
}

pub(super) fn stored(tx: &Transaction<'_>, digest: Digest) -> Result<Revision, StoreError> {
    let revision = tx.state.revisions.get(digest.as_bytes()).cloned();
    revision.ok_or_else(|| StoreError::Damaged { reason: format!("there is no revision {digest}") })
}
