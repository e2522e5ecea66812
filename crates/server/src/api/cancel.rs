//! `POST /api/v1/runs/{run}/cancel`: the run is to stop.

use axum::extract::State;
use leasehold_wire::api::cancel::{CancelAnswer, CancelRun};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::request::{AtRun, JsonBody};
use super::runs::detail;

pub(super) async fn cancel(
    State(api): State<Api>,
    By(caller): By,
    AtRun(run): AtRun,
    JsonBody(CancelRun { why }): JsonBody<CancelRun>,
) -> Answered<CancelAnswer> {
    let cancelled = api.control.cancel(&caller, run, why).await?;
    Ok(Json(CancelAnswer { outcome: (&cancelled.cancel).into(), run: detail(&cancelled.run) }))
}
