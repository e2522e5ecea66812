//! Runs: submitted, listed, shown.

use axum::extract::State;
use leasehold_control::admit::Submit;
use leasehold_control::view::{RunFilter, RunSummary, RunView};
use leasehold_core::run::RunState;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::run::{RunDetail, RunItem};
use leasehold_wire::api::submit::SubmitRun;
use leasehold_wire::api::time::Time;
use serde_json::json;

use super::Api;
use super::access::By;
use super::answer::{Answered, Json, Made};
use super::problem::ApiError;
use super::query::{AFTER, Known, LIMIT, Param, Query};
use super::request::{AtRun, IdempotencyKey, JsonBody};

/// `POST /api/v1/runs`: 201 for a new run, 200 for what the same key submitted before.
pub(super) async fn submit(
    State(api): State<Api>,
    By(caller): By,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    JsonBody(SubmitRun { project, task, revision, params }): JsonBody<SubmitRun>,
) -> Result<Made<RunDetail>, ApiError> {
    let submit = Submit { project, task, revision, parameters: params, idempotency_key };
    let admitted = api.control.admit(&caller, submit).await?;
    Ok(Made { new: !admitted.replayed, answer: detail(&admitted.run) })
}

/// What a list of runs is asked by.
pub(super) struct Listed;

impl Known for Listed {
    const PARAMS: &'static [Param] = &[
        AFTER,
        LIMIT,
        Param::text("project", "Those of this project."),
        Param {
            name: "since",
            about: "Those submitted since.",
            schema: || json!({ "type": "string", "format": "date-time" }),
        },
        Param {
            name: "state",
            about: "Those in one of these states; may be said several times.",
            schema: || {
                let states: Vec<&str> = RunState::ALL.iter().map(|state| state.as_str()).collect();
                json!({ "type": "array", "items": { "type": "string", "enum": states } })
            },
        },
        Param::text("task", "Those of this task."),
    ];
}

/// `GET /api/v1/runs`: newest first.
pub(super) async fn list(State(api): State<Api>, query: Query<Listed>) -> Answered<Page<RunItem>> {
    let limit = query.limit()?;
    let filter = RunFilter {
        project: query.one("project")?,
        states: query.every("state")?,
        task: query.one("task")?,
        since: query.one::<Time>("since")?.map(|since| since.0),
        before: query.one("after")?,
    };
    let runs = api.control.runs(filter, limit).await?;
    let next = runs.last().filter(|_| runs.len() == limit).map(|last| last.run.id.to_string());
    let items = runs.into_iter().map(|found| RunItem::new(&found.run, found.name, found.worker)).collect();
    Ok(Json(Page { items, next }))
}

/// `GET /api/v1/runs/{run}`.
pub(super) async fn get(State(api): State<Api>, AtRun(run): AtRun, _: Query<()>) -> Answered<RunDetail> {
    Ok(Json(detail(&api.control.run_view(run).await?)))
}

/// A run as it is shown.
pub(super) fn detail(view: &RunView) -> RunDetail {
    let name = RunSummary::name_of(&view.revision);
    RunDetail::new(&view.run, name, &view.attempts, &view.revision, &view.logs)
}
