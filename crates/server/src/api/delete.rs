//! `DELETE /api/v1/workers/{worker}`: its identity ends.

use axum::extract::State;
use leasehold_wire::api::delete::{DeleteAnswer, DeleteWorker};

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::request::{AtWorker, JsonBody};

pub(super) async fn delete(
    State(api): State<Api>,
    By(caller): By,
    AtWorker(worker): AtWorker,
    JsonBody(DeleteWorker { destroyed, why }): JsonBody<DeleteWorker>,
) -> Answered<DeleteAnswer> {
    let deleted = api.control.delete_worker(&caller, worker, destroyed, why).await?;
    Ok(Json(DeleteAnswer { changed: deleted.changed, runs: u32::try_from(deleted.runs).unwrap_or(u32::MAX) }))
}
