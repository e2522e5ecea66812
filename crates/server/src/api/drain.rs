//! `POST /api/v1/workers/{worker}/drain` and `…/resume`: whether a worker takes anything new.

use axum::extract::State;
use leasehold_control::worker::Drained;
use leasehold_wire::api::drain::{DrainAnswer, DrainWorker};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::request::{AtWorker, JsonBody};
use super::workers::detail;

pub(super) async fn drain(
    State(api): State<Api>,
    By(caller): By,
    AtWorker(worker): AtWorker,
    JsonBody(DrainWorker { why }): JsonBody<DrainWorker>,
) -> Answered<DrainAnswer> {
    Ok(answer(&api.control.drain_worker(&caller, worker, why).await?))
}

pub(super) async fn resume(
    State(api): State<Api>,
    By(caller): By,
    AtWorker(worker): AtWorker,
    JsonBody(DrainWorker { why }): JsonBody<DrainWorker>,
) -> Answered<DrainAnswer> {
    Ok(answer(&api.control.resume_worker(&caller, worker, why).await?))
}

fn answer(drained: &Drained) -> Json<DrainAnswer> {
    Json(DrainAnswer { changed: drained.changed, worker: detail(&drained.worker) })
}
