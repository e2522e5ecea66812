//! `POST /api/v1/runs/{run}/resolve`: a person's word on a lost run.

use axum::extract::State;
use leasehold_control::resolve::Said;
use leasehold_wire::api::resolve::{ResolveAnswer, ResolveRun};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::request::{AtRun, JsonBody};
use super::runs::detail;

pub(super) async fn resolve(
    State(api): State<Api>,
    By(caller): By,
    AtRun(run): AtRun,
    JsonBody(ResolveRun { verb, why, attempt }): JsonBody<ResolveRun>,
) -> Answered<ResolveAnswer> {
    let resolved = api.control.resolve(&caller, run, Said { verb, why, attempt }).await?;
    Ok(Json(ResolveAnswer { outcome: resolved.resolve.into(), run: detail(&resolved.run) }))
}
