//! Runs: submitted, listed, shown.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use leasehold_control::admit::Submit;
use leasehold_control::view::{RunFilter, RunSummary, RunView};
use leasehold_core::limits;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::run::{RunDetail, RunItem};
use leasehold_wire::api::submit::SubmitRun;
use leasehold_wire::api::time::Time;

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::problem::ApiError;
use super::query::Query;
use super::request::{AtRun, JsonBody};

/// `POST /api/v1/runs`: 201 for a new run, 200 for what the same key submitted before.
pub(super) async fn submit(
    State(api): State<Api>,
    By(caller): By,
    headers: HeaderMap,
    JsonBody(body): JsonBody<{ limits::REVISION_BODY }>,
) -> Answered<RunDetail> {
    let idempotency_key = idempotency_key(&headers)?;
    let SubmitRun { project, task, revision, params } = SubmitRun::parse(&body)?;
    let submit = Submit { project, task, revision, parameters: params, idempotency_key };
    let admitted = api.control.admit(&caller, submit).await?;
    let status = if admitted.replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok(Json(status, detail(&admitted.run)))
}

/// The key that makes a submission safe to repeat, if the caller sent one.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(route::IDEMPOTENCY_KEY).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::field(route::IDEMPOTENCY_KEY, "the header twice", "the header once"));
    }
    match first.to_str() {
        Ok(key) => Ok(Some(key.to_owned())),
        Err(_) => Err(ApiError::field(route::IDEMPOTENCY_KEY, "bytes", "printable ASCII characters")),
    }
}

/// `GET /api/v1/runs`: newest first.
pub(super) async fn list(State(api): State<Api>, query: Query) -> Answered<Page<RunItem>> {
    let query = query.only(&["after", "limit", "project", "since", "state", "task"])?;
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
    Ok(Json::ok(Page { items, next }))
}

/// `GET /api/v1/runs/{run}`.
pub(super) async fn get(State(api): State<Api>, AtRun(run): AtRun, query: Query) -> Answered<RunDetail> {
    query.only(&[])?;
    Ok(Json::ok(detail(&api.control.run_view(run).await?)))
}

/// A run as it is shown.
pub(super) fn detail(view: &RunView) -> RunDetail {
    let name = RunSummary::name_of(&view.revision);
    RunDetail::new(&view.run, name, &view.attempts, &view.revision, &view.logs)
}
