//! What a person does to a worker: drain, resume, grant a takeover.

use leasehold_core::actor::Actor;
use leasehold_core::id::WorkerId;
use leasehold_core::worker::{Worker, WorkerState};

use super::{Transaction, queries};
use crate::call::{DrainWorker, GrantTakeover};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Unmet;
use crate::view::WorkerView;

pub(super) fn drain(tx: &mut Transaction<'_>, call: &DrainWorker) -> Stored<WorkerView, Unmet> {
    let now = tx.now;
    let by = By { actor: &call.actor, worker: &call.worker, why: call.why.as_ref(), action: "drain_worker" };
    changed(tx, &by, |worker| worker.drained(&call.actor, call.why.as_deref(), now))
}

pub(super) fn resume(tx: &mut Transaction<'_>, call: &DrainWorker) -> Stored<WorkerView, Unmet> {
    let by = By { actor: &call.actor, worker: &call.worker, why: call.why.as_ref(), action: "resume_worker" };
    changed(tx, &by, Worker::resumed)
}

pub(super) fn grant_takeover(tx: &mut Transaction<'_>, call: &GrantTakeover) -> Stored<WorkerView, Unmet> {
    let by = By { actor: &call.actor, worker: &call.worker, why: call.why.as_ref(), action: "grant_takeover" };
    changed(tx, &by, |worker| worker.takeover_granted(&call.actor, call.why.as_deref(), call.expires_at))
}

/// Who does what to which worker.
struct By<'a> {
    actor: &'a Actor,
    worker: &'a WorkerId,
    why: Option<&'a String>,
    action: &'a str,
}

fn changed(
    tx: &mut Transaction<'_>,
    by: &By<'_>,
    decide: impl FnOnce(&Worker) -> Option<Worker>,
) -> Stored<WorkerView, Unmet> {
    let known = tx.state.workers.get(by.worker).filter(|worker| worker.state != WorkerState::Deleted);
    let Some(worker) = known else {
        return Ok(Outcome::Refused(Unmet::NotFound("worker")));
    };
    let Some(next) = decide(worker) else {
        return Ok(Outcome::Replayed(view(tx, by.worker)?));
    };
    tx.state.workers.insert(next.id.clone(), next);
    let why = by.why.cloned().map(|why| ("why", why));
    tx.record(by.actor, by.action, format_args!("worker/{}", by.worker), why);
    Ok(Outcome::Applied(view(tx, by.worker)?))
}

fn view(tx: &Transaction<'_>, worker: &WorkerId) -> Result<WorkerView, StoreError> {
    let view = queries::worker(tx, worker)?;
    view.ok_or_else(|| StoreError::Damaged { reason: format!("there is no worker {worker}") })
}
