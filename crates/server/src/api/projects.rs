//! Projects: listed, shown, made, limited, deleted.

use axum::extract::State;
use leasehold_control::project::ProjectChanged;
use leasehold_control::view::ProjectView;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::project::{CreateProject, DeleteProjectAnswer, ProjectAnswer, ProjectItem, SetProject};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json, Made};
use super::problem::ApiError;
use super::query::{Paged, Query};
use super::request::{AtProject, JsonBody};

/// `GET /api/v1/projects`: in the order of their names.
pub(super) async fn list(State(api): State<Api>, query: Query<Paged>) -> Answered<Page<ProjectItem>> {
    let limit = query.limit()?;
    let projects = api.control.projects(query.one("after")?, limit).await?;
    let next = projects.last().filter(|_| projects.len() == limit).map(|last| last.project.name.to_string());
    Ok(Json(Page { items: projects.iter().map(item).collect(), next }))
}

/// `GET /api/v1/projects/{project}`.
pub(super) async fn get(State(api): State<Api>, AtProject(project): AtProject, _: Query<()>) -> Answered<ProjectItem> {
    Ok(Json(item(&api.control.project(&project).await?)))
}

/// `POST /api/v1/projects`: 201 for a new project, 200 for one that is there just so.
pub(super) async fn create(
    State(api): State<Api>,
    By(caller): By,
    JsonBody(CreateProject { name, concurrency }): JsonBody<CreateProject>,
) -> Result<Made<ProjectAnswer>, ApiError> {
    let created = api.control.create_project(&caller, name, concurrency).await?;
    Ok(Made { new: created.changed, answer: answer(&created) })
}

/// `PUT /api/v1/projects/{project}`: its settings from now on.
pub(super) async fn set(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    JsonBody(SetProject { concurrency }): JsonBody<SetProject>,
) -> Answered<ProjectAnswer> {
    Ok(Json(answer(&api.control.set_project(&caller, project, concurrency).await?)))
}

/// `DELETE /api/v1/projects/{project}`: refused while a run of it is open.
pub(super) async fn delete(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
) -> Answered<DeleteProjectAnswer> {
    let changed = api.control.delete_project(&caller, project).await?;
    Ok(Json(DeleteProjectAnswer { changed }))
}

fn item(found: &ProjectView) -> ProjectItem {
    ProjectItem::new(&found.project, found.occupied)
}

fn answer(changed: &ProjectChanged) -> ProjectAnswer {
    ProjectAnswer { changed: changed.changed, project: item(&changed.project) }
}
