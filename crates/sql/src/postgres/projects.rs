//! What a person does to a project, and how projects are shown.

use futures_util::future::try_join_all;
use leasehold_core::id::ProjectName;
use leasehold_core::project::{self, Project};
use leasehold_store::call::{CreateProject, DeleteProject, SetProject};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::ProjectView;

use super::column::values;
use super::lock::Locks;
use super::rows::{self, project_columns};
use super::transaction::{Decided, Fault, Tx, Unlocked};
use super::{audit, places};

/// Makes a project.
pub(super) async fn create(db: Unlocked, call: &CreateProject) -> Decided<ProjectView, Unmet> {
    let tx = &db.lock(Locks::Project(&call.name)).await?;
    let known = load(tx, &call.name).await?;
    let key = call.idempotency_key.as_deref();
    let made = match project::create(known.as_ref(), &call.name, call.concurrency, key, tx.now.utc) {
        Ok(Some(made)) => made,
        Ok(None) => return Ok(Outcome::Replayed(written(tx, &call.name).await?)),
        Err(not_made) => return Ok(Outcome::Refused(not_made.into())),
    };
    write(tx, &made).await?;
    let mut facts: Vec<(&str, &(dyn std::fmt::Display + Sync))> = Vec::new();
    if let Some(limit) = &call.concurrency {
        facts.push(("concurrency", limit));
    }
    audit::write(tx, &call.actor, "create_project", format!("project/{}", call.name), &facts).await?;
    Ok(Outcome::Applied(written(tx, &call.name).await?))
}

/// Sets a project's limit.
pub(super) async fn set(db: Unlocked, call: &SetProject) -> Decided<ProjectView, Unmet> {
    let tx = &db.lock(Locks::Project(&call.name)).await?;
    let Some(known) = load(tx, &call.name).await?.and_then(Project::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("project")));
    };
    let Some(next) = known.limited_to(call.concurrency) else {
        return Ok(Outcome::Replayed(written(tx, &call.name).await?));
    };
    if call.seen.is_some_and(|seen| seen != known.settings()) {
        return Ok(Outcome::Refused(Unmet::Moved("project")));
    }
    write(tx, &next).await?;
    let limit = |limit: Option<u32>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let facts: [(&str, &(dyn std::fmt::Display + Sync)); 2] =
        [("concurrency", &limit(next.concurrency)), ("before", &limit(known.concurrency))];
    audit::write(tx, &call.actor, "set_project", format!("project/{}", call.name), &facts).await?;
    Ok(Outcome::Applied(written(tx, &call.name).await?))
}

/// Deletes a project.
pub(super) async fn delete(db: Unlocked, call: &DeleteProject) -> Decided<(), Unmet> {
    let tx = &db.lock(Locks::Project(&call.name)).await?;
    let Some(known) = load(tx, &call.name).await? else {
        return Ok(Outcome::Refused(Unmet::NotFound("project")));
    };
    if known.deleted_at.is_none() && call.seen.is_some_and(|seen| seen != known.settings()) {
        return Ok(Outcome::Refused(Unmet::Moved("project")));
    }
    // Reads what is open of every project: a rare question, and what is open is bounded by what people wait for.
    let sql = "SELECT count(*) FROM run WHERE state IN ('pending', 'dispatching', 'running', \
               'retry_wait', 'lost') AND project = $1";
    let open = tx.only(sql, values![call.name], rows::column).await?;
    let sql = "SELECT count(*) FROM task WHERE project = $1 AND deleted_at IS NULL";
    let tasks = tx.only(sql, values![call.name], rows::column).await?;
    match known.deleted(open, tasks, tx.now.utc) {
        Ok(Some(deleted)) => {
            write(tx, &deleted).await?;
            audit::write(tx, &call.actor, "delete_project", format!("project/{}", call.name), &[]).await?;
            Ok(Outcome::Applied(()))
        }
        Ok(None) => Ok(Outcome::Replayed(())),
        Err(undeletable) => Ok(Outcome::Refused(undeletable.into())),
    }
}

/// The project of a submitted run is there from now on.
pub(super) async fn ensure(tx: &Tx, name: &ProjectName) -> Result<(), Fault> {
    match project::of_run(load(tx, name).await?.as_ref(), name, tx.now.utc) {
        Some(project) => write(tx, &project).await,
        None => Ok(()),
    }
}

/// One project.
pub(super) async fn project(tx: &Tx, name: &ProjectName) -> Result<Option<ProjectView>, Fault> {
    let project = load(tx, name).await?.and_then(Project::living);
    match project {
        Some(project) => view(tx, project).await.map(Some),
        None => Ok(None),
    }
}

/// A page of projects, in the order of their names.
pub(super) async fn projects(tx: &Tx, after: Option<&ProjectName>, limit: usize) -> Result<Vec<ProjectView>, Fault> {
    let after = after.map_or_else(String::new, ToString::to_string);
    let sql = concat!(
        "SELECT ",
        project_columns!(),
        " FROM project WHERE name > $1 AND deleted_at IS NULL ORDER BY name LIMIT $2"
    );
    let page = tx.all(sql, values![after, limit], rows::project).await?;
    try_join_all(page.into_iter().map(|project| view(tx, project))).await
}

async fn load(tx: &Tx, name: &ProjectName) -> Result<Option<Project>, Fault> {
    let sql = concat!("SELECT ", project_columns!(), " FROM project WHERE name = $1");
    tx.first(sql, values![*name], rows::project).await
}

async fn write(tx: &Tx, project: &Project) -> Result<(), Fault> {
    tx.execute_one(
        "project",
        "INSERT INTO project (name, concurrency, created_at, deleted_at, made_key, made_limit) \
         VALUES ($1, $2, $3, $4, $5, $6) \
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
    .await
}

async fn view(tx: &Tx, project: Project) -> Result<ProjectView, Fault> {
    Ok(ProjectView { occupied: places::occupied(tx, &project.name, None, None).await?, project })
}

async fn written(tx: &Tx, name: &ProjectName) -> Result<ProjectView, Fault> {
    project(tx, name).await?.ok_or_else(|| Fault::Damaged(format!("there is no project {name}")))
}
