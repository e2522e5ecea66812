//! Workers: listed and shown.

use axum::extract::State;
use leasehold_control::view::WorkerView;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::worker::{WorkerDetail, WorkerItem};

use super::Api;
use super::answer::{Answered, Json};
use super::query::{Paged, Query};
use super::request::AtWorker;

/// `GET /api/v1/workers`: in the order of their names.
pub(super) async fn list(State(api): State<Api>, query: Query<Paged>) -> Answered<Page<WorkerItem>> {
    let limit = query.limit()?;
    let workers = api.control.workers(query.one("after")?, limit).await?;
    let next = workers.last().filter(|_| workers.len() == limit).map(|last| last.worker.id.to_string());
    let items = workers
        .iter()
        .map(|found| {
            WorkerItem::new(
                &found.worker,
                found.session.as_ref(),
                found.active.len(),
                found.faults.len(),
                found.now.lease,
            )
        })
        .collect();
    Ok(Json(Page { items, next }))
}

/// `GET /api/v1/workers/{worker}`.
pub(super) async fn get(State(api): State<Api>, AtWorker(worker): AtWorker, _: Query<()>) -> Answered<WorkerDetail> {
    let found = api.control.worker(&worker).await?;
    Ok(Json(detail(&found)))
}

/// Everything about a worker.
pub(super) fn detail(found: &WorkerView) -> WorkerDetail {
    let WorkerView { worker, session, active, device_holders, faults, now } = found;
    WorkerDetail::new(worker, session.as_ref(), active, device_holders, faults, now.lease)
}
