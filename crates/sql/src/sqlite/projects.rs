//! What a person does to a project, and how projects are shown.

use leasehold_core::id::ProjectName;
use leasehold_core::project::{self, Project};
use leasehold_store::call::{CreateProject, DeleteProject, SetProject};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::ProjectView;

use super::column::values;
use super::rows::{self, project_columns};
use super::transaction::{Decided, Fault, Tx};
use super::{audit, places};

/// Makes a project.
pub(super) fn create(tx: &Tx<'_>, call: &CreateProject) -> Decided<ProjectView, Unmet> {
    let known = load(tx, &call.name)?;
    let key = call.idempotency_key.as_deref();
    let made = match project::create(known.as_ref(), &call.name, call.concurrency, key, tx.now.utc) {
        Ok(Some(made)) => made,
        Ok(None) => return Ok(Outcome::Replayed(written(tx, &call.name)?)),
        Err(not_made) => return Ok(Outcome::Refused(not_made.into())),
    };
    write(tx, &made)?;
    let mut facts: Vec<(&str, &dyn std::fmt::Display)> = Vec::new();
    if let Some(limit) = &call.concurrency {
        facts.push(("concurrency", limit));
    }
    audit::write(tx, &call.actor, "create_project", format_args!("project/{}", call.name), &facts)?;
    Ok(Outcome::Applied(written(tx, &call.name)?))
}

/// Sets a project's limit.
pub(super) fn set(tx: &Tx<'_>, call: &SetProject) -> Decided<ProjectView, Unmet> {
    let Some(known) = load(tx, &call.name)?.and_then(Project::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("project")));
    };
    let Some(next) = known.limited_to(call.concurrency) else {
        return Ok(Outcome::Replayed(written(tx, &call.name)?));
    };
    if call.seen.is_some_and(|seen| seen != known.settings()) {
        return Ok(Outcome::Refused(Unmet::Moved("project")));
    }
    write(tx, &next)?;
    let limit = |limit: Option<u32>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let facts: [(&str, &dyn std::fmt::Display); 2] =
        [("concurrency", &limit(next.concurrency)), ("before", &limit(known.concurrency))];
    audit::write(tx, &call.actor, "set_project", format_args!("project/{}", call.name), &facts)?;
    Ok(Outcome::Applied(written(tx, &call.name)?))
}

/// Deletes a project.
pub(super) fn delete(tx: &Tx<'_>, call: &DeleteProject) -> Decided<(), Unmet> {
    let Some(known) = load(tx, &call.name)? else {
        return Ok(Outcome::Refused(Unmet::NotFound("project")));
    };
    if known.deleted_at.is_none() && call.seen.is_some_and(|seen| seen != known.settings()) {
        return Ok(Outcome::Refused(Unmet::Moved("project")));
    }
    // Reads what is open of every project: a rare question, and what is open is bounded by what people wait for.
    let sql = "SELECT count(*) FROM run INDEXED BY run_state WHERE state IN ('pending', 'dispatching', 'running', \
               'retry_wait', 'lost') AND project = ?1";
    let open = tx.only(sql, values![call.name], rows::column)?;
    let sql = "SELECT count(*) FROM task WHERE project = ?1 AND deleted_at IS NULL";
    let tasks = tx.only(sql, values![call.name], rows::column)?;
    match known.deleted(open, tasks, tx.now.utc) {
        Ok(Some(deleted)) => {
            write(tx, &deleted)?;
            audit::write(tx, &call.actor, "delete_project", format_args!("project/{}", call.name), &[])?;
            Ok(Outcome::Applied(()))
        }
        Ok(None) => Ok(Outcome::Replayed(())),
        Err(undeletable) => Ok(Outcome::Refused(undeletable.into())),
    }
}

/// The project of a submitted run is there from now on.
pub(super) fn ensure(tx: &Tx<'_>, name: &ProjectName) -> Result<(), Fault> {
    match project::of_run(load(tx, name)?.as_ref(), name, tx.now.utc) {
        Some(project) => write(tx, &project),
        None => Ok(()),
    }
}

/// One project.
pub(super) fn project(tx: &Tx<'_>, name: &ProjectName) -> Result<Option<ProjectView>, Fault> {
    let project = load(tx, name)?.and_then(Project::living);
    project.map(|project| view(tx, project)).transpose()
}

/// A page of projects, in the order of their names.
pub(super) fn projects(tx: &Tx<'_>, after: Option<&ProjectName>, limit: usize) -> Result<Vec<ProjectView>, Fault> {
    let after = after.map_or_else(String::new, ToString::to_string);
    let sql = concat!(
        "SELECT ",
        project_columns!(),
        " FROM project WHERE name > ?1 AND deleted_at IS NULL ORDER BY name LIMIT ?2"
    );
    let page = tx.all(sql, values![after, limit], rows::project)?;
    page.into_iter().map(|project| view(tx, project)).collect()
}

fn load(tx: &Tx<'_>, name: &ProjectName) -> Result<Option<Project>, Fault> {
    let sql = concat!("SELECT ", project_columns!(), " FROM project WHERE name = ?1");
    tx.first(sql, values![*name], rows::project)
}

fn write(tx: &Tx<'_>, project: &Project) -> Result<(), Fault> {
    tx.execute_one(
        "project",
        "INSERT INTO project (name, concurrency, created_at, deleted_at, made_key, made_limit) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency, created_at = excluded.created_at, \
         deleted_at = excluded.deleted_at, made_key = excluded.made_key, made_limit = excluded.made_limit",
        values![
            project.name,
            project.concurrency,
            project.created_at,
            project.deleted_at,
            project.made.as_ref().map(|made| made.key.clone()),
            project.made.as_ref().and_then(|made| made.concurrency),
        ],
    )
}

fn view(tx: &Tx<'_>, project: Project) -> Result<ProjectView, Fault> {
    Ok(ProjectView { occupied: places::occupied(tx, &project.name, None, None)?, project })
}

fn written(tx: &Tx<'_>, name: &ProjectName) -> Result<ProjectView, Fault> {
    project(tx, name)?.ok_or_else(|| Fault::Damaged(format!("there is no project {name}")))
}
