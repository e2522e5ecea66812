//! `POST /api/v1/runs/{run}/cancel`: the run is to stop.

use axum::extract::State;
use leasehold_core::limits;
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
    JsonBody(body): JsonBody<{ limits::JSON_BODY }>,
) -> Answered<CancelAnswer> {
    let CancelRun { why } = CancelRun::parse(&body)?;
    let cancelled = api.control.cancel(&caller, run, why).await?;
    Ok(Json::ok(CancelAnswer { outcome: (&cancelled.cancel).into(), run: detail(&cancelled.run) }))
}
