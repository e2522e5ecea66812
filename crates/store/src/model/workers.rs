//! What a person does to a worker: drain and resume.

use leasehold_core::worker::Worker;

use super::{Transaction, queries};
use crate::call::DrainWorker;
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Unmet;
use crate::view::WorkerView;

pub(super) fn drain(tx: &mut Transaction<'_>, call: &DrainWorker) -> Stored<WorkerView, Unmet> {
    let now = tx.now;
    changed(tx, call, "drain_worker", |worker| worker.drained(&call.actor, call.why.as_deref(), now))
}

pub(super) fn resume(tx: &mut Transaction<'_>, call: &DrainWorker) -> Stored<WorkerView, Unmet> {
    changed(tx, call, "resume_worker", Worker::resumed)
}

fn changed(
    tx: &mut Transaction<'_>,
    call: &DrainWorker,
    action: &str,
    decide: impl FnOnce(&Worker) -> Option<Worker>,
) -> Stored<WorkerView, Unmet> {
    let Some(worker) = tx.state.workers.get(&call.worker) else {
        return Ok(Outcome::Refused(Unmet::NotFound("worker")));
    };
    let Some(next) = decide(worker) else {
        return Ok(Outcome::Replayed(view(tx, call)?));
    };
    tx.state.workers.insert(next.id.clone(), next);
    let why = call.why.clone().map(|why| ("why", why));
    tx.record(&call.actor, action, format_args!("worker/{}", call.worker), why);
    Ok(Outcome::Applied(view(tx, call)?))
}

fn view(tx: &Transaction<'_>, call: &DrainWorker) -> Result<WorkerView, StoreError> {
    let view = queries::worker(tx, &call.worker);
    view.ok_or_else(|| StoreError::Damaged { reason: format!("there is no worker {}", call.worker) })
}
