//! Tasks: planned, applied, listed, shown, run, deleted.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use leasehold_control::task::{Apply, RunTask};
use leasehold_control::view::TaskRevision;
use leasehold_core::id::ProjectName;
use leasehold_core::limits;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::run::RunDetail;
use leasehold_wire::api::task::{
    ApplyTasks, PlanAnswer, RunTask as RunTaskBody, TaskDetail, TaskItem, TaskRevisionDetail, TaskRevisionItem,
    TasksAnswer,
};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::query::Query;
use super::request::{AtProject, AtRevision, AtTask, JsonBody};
use super::runs::{detail, idempotency_key};

/// `GET /api/v1/projects/{project}/tasks`: in the order of their names.
pub(super) async fn list(
    State(api): State<Api>,
    AtProject(project): AtProject,
    query: Query,
) -> Answered<Page<TaskItem>> {
    let query = query.only(&["after", "limit"])?;
    let limit = query.limit()?;
    let tasks = api.control.tasks(&project, query.one("after")?, limit).await?;
    let next = tasks.last().filter(|_| tasks.len() == limit).map(|last| last.task.name.to_string());
    Ok(Json::ok(Page { items: tasks.iter().map(|view| TaskItem::new(&view.task, &view.revision)).collect(), next }))
}

/// `POST /api/v1/projects/{project}/task-plan`: what applying would do; nothing changes.
pub(super) async fn plan(
    State(api): State<Api>,
    AtProject(project): AtProject,
    JsonBody(body): JsonBody<{ limits::APPLY_BODY }>,
) -> Answered<PlanAnswer> {
    let plan = api.control.plan_tasks(&apply_of(project, ApplyTasks::parse(&body)?)).await?;
    Ok(Json::ok(PlanAnswer::new(&plan)))
}

/// `PUT /api/v1/projects/{project}/tasks`: what the named tasks are from now on; with `prune`, all there are.
pub(super) async fn apply(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    JsonBody(body): JsonBody<{ limits::APPLY_BODY }>,
) -> Answered<TasksAnswer> {
    let changed = api.control.apply_tasks(&caller, apply_of(project, ApplyTasks::parse(&body)?)).await?;
    Ok(Json::ok(TasksAnswer { changed }))
}

fn apply_of(project: ProjectName, body: ApplyTasks) -> Apply {
    let ApplyTasks { tasks, prune, cascade, plan } = body;
    Apply { project, tasks, prune, cascade, plan }
}

/// `GET /api/v1/projects/{project}/tasks/{task}`.
pub(super) async fn get(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    query: Query,
) -> Answered<TaskDetail> {
    query.only(&[])?;
    let view = api.control.task(&project, &name).await?;
    Ok(Json::ok(TaskDetail::new(&view.task, &view.revision)))
}

/// `DELETE /api/v1/projects/{project}/tasks/{task}`: refused while a run of it is open, unless `?cascade=true`.
pub(super) async fn delete(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    query: Query,
) -> Answered<TasksAnswer> {
    let cascade = query.only(&["cascade"])?.switch("cascade")?;
    let changed = api.control.delete_task(&caller, project, name, cascade).await?;
    Ok(Json::ok(TasksAnswer { changed }))
}

/// `GET /api/v1/projects/{project}/tasks/{task}/revisions`: newest first; those of a deleted task, too.
pub(super) async fn revisions(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    query: Query,
) -> Answered<Page<TaskRevisionItem>> {
    let query = query.only(&["after", "limit"])?;
    let limit = query.limit()?;
    let before = query.one::<AtRevision>("after")?.map(|at| at.0);
    let history = api.control.task_history(&project, &name, before, limit).await?;
    let next = history.last().filter(|_| history.len() == limit).map(|last| last.number.to_string());
    Ok(Json::ok(Page { items: history.iter().map(item).collect(), next }))
}

/// `GET /api/v1/projects/{project}/tasks/{task}/revisions/{number}`.
pub(super) async fn revision(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    AtRevision(number): AtRevision,
    query: Query,
) -> Answered<TaskRevisionDetail> {
    query.only(&[])?;
    let (one, revision) = api.control.task_revision(&project, &name, number).await?;
    Ok(Json::ok(TaskRevisionDetail::new(item(&one), &revision)))
}

/// `POST /api/v1/projects/{project}/tasks/{task}/runs`: 201 for a new run, 200 for what the same key submitted before.
pub(super) async fn run(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    headers: HeaderMap,
    JsonBody(body): JsonBody<{ limits::REVISION_BODY }>,
) -> Answered<RunDetail> {
    let idempotency_key = idempotency_key(&headers)?;
    let RunTaskBody { params } = if body.is_empty() { RunTaskBody::default() } else { RunTaskBody::parse(&body)? };
    let ask = RunTask { project, name, parameters: params, idempotency_key };
    let admitted = api.control.run_task(&caller, ask).await?;
    let status = if admitted.replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok(Json(status, detail(&admitted.run)))
}

fn item(one: &TaskRevision) -> TaskRevisionItem {
    TaskRevisionItem {
        number: one.number.get(),
        revision_digest: one.revision,
        applied_at: one.at.into(),
        applied_by: one.by.clone(),
    }
}
