//! What a person does to a project, and how projects are shown.

use std::ops::Bound;

use leasehold_core::id::ProjectName;
use leasehold_core::project::{self, Project};

use super::{Transaction, places};
use crate::call::{CreateProject, DeleteProject, SetProject};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Unmet;
use crate::view::ProjectView;

pub(super) fn create(tx: &mut Transaction<'_>, call: &CreateProject) -> Stored<ProjectView, Unmet> {
    let known = tx.state.projects.get(&call.name);
    let key = call.idempotency_key.as_deref();
    match project::create(known, &call.name, call.concurrency, key, tx.now.utc) {
        Ok(Some(project)) => {
            let facts = call.concurrency.map(|limit| ("concurrency", limit.to_string()));
            tx.record(&call.actor, "create_project", format_args!("project/{}", call.name), facts);
            tx.state.projects.insert(call.name.clone(), project);
            written(tx, &call.name).map(Outcome::Applied)
        }
        Ok(None) => written(tx, &call.name).map(Outcome::Replayed),
        Err(not_made) => Ok(Outcome::Refused(not_made.into())),
    }
}

pub(super) fn set(tx: &mut Transaction<'_>, call: &SetProject) -> Stored<ProjectView, Unmet> {
    let Some(known) = tx.state.projects.get(&call.name).cloned().and_then(Project::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("project")));
    };
    let Some(next) = known.limited_to(call.concurrency) else {
        return written(tx, &call.name).map(Outcome::Replayed);
    };
    if call.seen.is_some_and(|seen| seen != known.settings()) {
        return Ok(Outcome::Refused(Unmet::Moved("project")));
    }
    let limit = |limit: Option<u32>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let facts = [("concurrency", limit(next.concurrency)), ("before", limit(known.concurrency))];
    tx.record(&call.actor, "set_project", format_args!("project/{}", call.name), facts);
    tx.state.projects.insert(call.name.clone(), next);
    written(tx, &call.name).map(Outcome::Applied)
}

pub(super) fn delete(tx: &mut Transaction<'_>, call: &DeleteProject) -> Outcome<(), Unmet> {
    let Some(known) = tx.state.projects.get(&call.name) else {
        return Outcome::Refused(Unmet::NotFound("project"));
    };
    if known.deleted_at.is_none() && call.seen.is_some_and(|seen| seen != known.settings()) {
        return Outcome::Refused(Unmet::Moved("project"));
    }
    let open = tx.state.runs.values().filter(|run| run.project == call.name && !run.state.is_terminal());
    let tasks = tx.state.tasks.values().filter(|task| task.project == call.name && task.deleted_at.is_none());
    match known.deleted(open.count() as u64, tasks.count() as u64, tx.now.utc) {
        Ok(Some(deleted)) => {
            tx.record(&call.actor, "delete_project", format_args!("project/{}", call.name), []);
            tx.state.projects.insert(call.name.clone(), deleted);
            Outcome::Applied(())
        }
        Ok(None) => Outcome::Replayed(()),
        Err(undeletable) => Outcome::Refused(undeletable.into()),
    }
}

/// The project of a submitted run is there from now on.
pub(super) fn ensure(tx: &mut Transaction<'_>, name: &ProjectName) {
    if let Some(project) = project::of_run(tx.state.projects.get(name), name, tx.now.utc) {
        tx.state.projects.insert(name.clone(), project);
    }
}

pub(super) fn project(tx: &Transaction<'_>, name: &ProjectName) -> Result<Option<ProjectView>, StoreError> {
    let project = tx.state.projects.get(name).cloned().and_then(Project::living);
    project.map(|project| view(tx, project)).transpose()
}

pub(super) fn projects(
    tx: &Transaction<'_>,
    after: Option<&ProjectName>,
    limit: usize,
) -> Result<Vec<ProjectView>, StoreError> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let page = tx.state.projects.range::<ProjectName, _>((from, Bound::Unbounded));
    let living = page.filter_map(|(_, project)| project.clone().living());
    living.take(limit).map(|project| view(tx, project)).collect()
}

fn view(tx: &Transaction<'_>, project: Project) -> Result<ProjectView, StoreError> {
    Ok(ProjectView { occupied: places::occupied(tx, &project.name, None, None)?, project })
}

fn written(tx: &Transaction<'_>, name: &ProjectName) -> Result<ProjectView, StoreError> {
    project(tx, name)?.ok_or_else(|| StoreError::Damaged { reason: format!("there is no project {name}") })
}
