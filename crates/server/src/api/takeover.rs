//! `POST /api/v1/workers/{worker}/grant-takeover`: one registration that would be kept out is let in.

use axum::extract::State;
use leasehold_wire::api::takeover::GrantTakeover;
use leasehold_wire::api::worker::WorkerDetail;

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::request::{AtWorker, JsonBody};
use super::workers::detail;

pub(super) async fn grant(
    State(api): State<Api>,
    By(caller): By,
    AtWorker(worker): AtWorker,
    JsonBody(GrantTakeover { ttl, why }): JsonBody<GrantTakeover>,
) -> Answered<WorkerDetail> {
    Ok(Json(detail(&api.control.grant_takeover(&caller, worker, Some(ttl), why).await?)))
}
