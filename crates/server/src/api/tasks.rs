//! Tasks: planned, applied, listed, shown, run, deleted.

use axum::extract::State;
use leasehold_control::task::{Apply, RunTask};
use leasehold_control::view::TaskRevision;
use leasehold_core::crypto::Digest;
use leasehold_core::id::ProjectName;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::request::Nothing;
use leasehold_wire::api::run::RunDetail;
use leasehold_wire::api::task::{
    ApplyTasks, PlanAnswer, PutTask, RunTask as RunTaskBody, TaskDetail, TaskItem, TaskRevisionDetail,
    TaskRevisionItem, TasksAnswer,
};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json, Made};
use super::etag::{Base, Seen, Tagged};
use super::problem::ApiError;
use super::query::{Known, Paged, Param, Query};
use super::request::{AtProject, AtRevision, AtTask, IdempotencyKey, JsonBody};
use super::runs::detail;

/// `GET /api/v1/projects/{project}/tasks`: in the order of their names.
pub(super) async fn list(
    State(api): State<Api>,
    AtProject(project): AtProject,
    query: Query<Paged>,
) -> Answered<Page<TaskItem>> {
    let limit = query.limit()?;
    let tasks = api.control.tasks(&project, query.one("after")?, limit).await?;
    let next = tasks.last().filter(|_| tasks.len() == limit).map(|last| last.task.name.to_string());
    Ok(Json(Page { items: tasks.iter().map(|view| TaskItem::new(&view.task, &view.revision)).collect(), next }))
}

/// `POST /api/v1/projects/{project}/task-plan`: what applying would do; nothing changes.
pub(super) async fn plan(
    State(api): State<Api>,
    AtProject(project): AtProject,
    JsonBody(body): JsonBody<ApplyTasks>,
) -> Answered<PlanAnswer> {
    let planned = api.control.plan_tasks(apply_of(project, body)).await?;
    Ok(Json(PlanAnswer::new(&planned.plan, &planned.refused)))
}

/// `PUT /api/v1/projects/{project}/tasks`: what the named tasks are from now on; with `prune`, all there are.
pub(super) async fn apply(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    JsonBody(body): JsonBody<ApplyTasks>,
) -> Answered<TasksAnswer> {
    let changed = api.control.apply_tasks(&caller, apply_of(project, body)).await?;
    Ok(Json(TasksAnswer { changed }))
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
    _: Query<()>,
) -> Result<Tagged<Json<TaskDetail>>, ApiError> {
    let view = api.control.task(&project, &name).await?;
    Ok(Tagged::new(&view.task.revision, Json(TaskDetail::new(&view.task, &view.revision))))
}

/// `PUT /api/v1/projects/{project}/tasks/{task}`: what one task is from now on. 201 if it came to be, 200 if it was there.
pub(super) async fn put(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    base: Base<Digest>,
    JsonBody(body): JsonBody<PutTask>,
) -> Result<Tagged<Made<TaskDetail>>, ApiError> {
    let revision = body.of(&name)?;
    let seen = match base {
        Base::Nothing => None,
        Base::This(seen) => Some(seen),
        Base::Any => Some(api.control.task(&project, &name).await?.task.revision),
    };
    let (view, changed) = api.control.put_task(&caller, project, name, revision, seen).await?;
    let made = Made { new: changed && seen.is_none(), answer: TaskDetail::new(&view.task, &view.revision) };
    Ok(Tagged::new(&view.task.revision, made))
}

/// What a deletion's query names.
pub(super) struct Cascade;

impl Known for Cascade {
    const PARAMS: &'static [Param] =
        &[Param::switch("cascade", "Whether what waits of it is cancelled and what runs is told to stop.")];
}

/// `DELETE /api/v1/projects/{project}/tasks/{task}`: refused while a run of it is open, unless `?cascade=true`.
pub(super) async fn delete(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    query: Query<Cascade>,
    seen: Seen<Digest>,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Answered<TasksAnswer> {
    let cascade = query.switch("cascade")?;
    let changed = api.control.delete_task(&caller, project, name, cascade, seen.exactly()).await?;
    Ok(Json(TasksAnswer { changed }))
}

/// `GET /api/v1/projects/{project}/tasks/{task}/revisions`: newest first; those of a deleted task, too.
pub(super) async fn revisions(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    query: Query<Paged>,
) -> Answered<Page<TaskRevisionItem>> {
    let limit = query.limit()?;
    let before = query.one::<AtRevision>("after")?.map(|at| at.0);
    let history = api.control.task_history(&project, &name, before, limit).await?;
    let next = history.last().filter(|_| history.len() == limit).map(|last| last.number.to_string());
    Ok(Json(Page { items: history.iter().map(item).collect(), next }))
}

/// `GET /api/v1/projects/{project}/tasks/{task}/revisions/{number}`.
pub(super) async fn revision(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    AtRevision(number): AtRevision,
    _: Query<()>,
) -> Answered<TaskRevisionDetail> {
    let (one, revision) = api.control.task_revision(&project, &name, number).await?;
    Ok(Json(TaskRevisionDetail::new(item(&one), &revision)))
}

/// `POST /api/v1/projects/{project}/tasks/{task}/runs`: 201 for a new run, 200 for what the same key submitted before.
pub(super) async fn run(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(name): AtTask,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    JsonBody(RunTaskBody { params }): JsonBody<RunTaskBody>,
) -> Result<Made<RunDetail>, ApiError> {
    let ask = RunTask { project, name, parameters: params, idempotency_key };
    let admitted = api.control.run_task(&caller, ask).await?;
    Ok(Made { new: !admitted.replayed, answer: detail(&admitted.run) })
}

fn item(one: &TaskRevision) -> TaskRevisionItem {
    TaskRevisionItem {
        number: one.number.get(),
        revision_digest: one.revision,
        applied_at: one.at.into(),
        applied_by: one.by.clone(),
    }
}
