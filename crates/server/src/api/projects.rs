//! Projects: listed, shown, made, limited, deleted.

use axum::extract::State;
use leasehold_control::project::ProjectChanged;
use leasehold_control::view::ProjectView;
use leasehold_core::project::Settings;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::project::{CreateProject, DeleteProjectAnswer, ProjectAnswer, ProjectItem, SetProject};
use leasehold_wire::api::request::Nothing;

use super::Api;
use super::access::By;
use super::answer::{Answered, Json, Made};
use super::etag::{Seen, Tagged};
use super::problem::ApiError;
use super::query::{Paged, Query};
use super::request::{AtProject, IdempotencyKey, JsonBody};

/// `GET /api/v1/projects`: in the order of their names.
pub(super) async fn list(State(api): State<Api>, query: Query<Paged>) -> Answered<Page<ProjectItem>> {
    let limit = query.limit()?;
    let projects = api.control.projects(query.one("after")?, limit).await?;
    let next = projects.last().filter(|_| projects.len() == limit).map(|last| last.project.name.to_string());
    Ok(Json(Page { items: projects.iter().map(item).collect(), next }))
}

/// `GET /api/v1/projects/{project}`.
pub(super) async fn get(
    State(api): State<Api>,
    AtProject(project): AtProject,
    _: Query<()>,
) -> Result<Tagged<Json<ProjectItem>>, ApiError> {
    let found = api.control.project(&project).await?;
    Ok(Tagged::new(&found.project.settings(), Json(item(&found))))
}

/// `POST /api/v1/projects`: 201 for a new project, 200 for one that is there just so, or that the same key made.
pub(super) async fn create(
    State(api): State<Api>,
    By(caller): By,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    JsonBody(CreateProject { name, concurrency }): JsonBody<CreateProject>,
) -> Result<Made<ProjectAnswer>, ApiError> {
    let created = api.control.create_project(&caller, name, concurrency, idempotency_key).await?;
    Ok(Made { new: created.changed, answer: answer(&created) })
}

/// `PUT /api/v1/projects/{project}`: its settings from now on; with `If-Match`, if nobody changed them since.
pub(super) async fn set(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    seen: Seen<Settings>,
    JsonBody(SetProject { concurrency }): JsonBody<SetProject>,
) -> Result<Tagged<Json<ProjectAnswer>>, ApiError> {
    let set = api.control.set_project(&caller, project, concurrency, seen.exactly()).await?;
    Ok(Tagged::new(&set.project.project.settings(), Json(answer(&set))))
}

/// `DELETE /api/v1/projects/{project}`: refused while a run of it is open; with `If-Match`, if somebody changed it since.
pub(super) async fn delete(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    seen: Seen<Settings>,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Answered<DeleteProjectAnswer> {
    let changed = api.control.delete_project(&caller, project, seen.exactly()).await?;
    Ok(Json(DeleteProjectAnswer { changed }))
}

fn item(found: &ProjectView) -> ProjectItem {
    ProjectItem::new(&found.project, found.occupied)
}

fn answer(changed: &ProjectChanged) -> ProjectAnswer {
    ProjectAnswer { changed: changed.changed, project: item(&changed.project) }
}
