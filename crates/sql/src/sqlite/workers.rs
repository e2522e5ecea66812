//! Workers: the row itself, and what a person does to it: drain, resume, grant a takeover.

use leasehold_core::actor::Actor;
use leasehold_core::id::WorkerId;
use leasehold_core::worker::{Worker, WorkerState};
use leasehold_store::call::{DrainWorker, GrantTakeover};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::WorkerView;

use super::column::{Bound, Column as _};
use super::transaction::{Decided, Fault, Tx};
use super::{audit, load, queries};

/// A person drains a worker.
pub(super) fn drain(tx: &Tx<'_>, call: &DrainWorker) -> Decided<WorkerView, Unmet> {
    let by = By { actor: &call.actor, worker: &call.worker, why: call.why.as_ref(), action: "drain_worker" };
    changed(tx, &by, |worker| worker.drained(&call.actor, call.why.as_deref(), tx.now))
}

/// The person's drain is over.
pub(super) fn resume(tx: &Tx<'_>, call: &DrainWorker) -> Decided<WorkerView, Unmet> {
    let by = By { actor: &call.actor, worker: &call.worker, why: call.why.as_ref(), action: "resume_worker" };
    changed(tx, &by, Worker::resumed)
}

/// A person lets the next registration in that would be kept out otherwise.
pub(super) fn grant_takeover(tx: &Tx<'_>, call: &GrantTakeover) -> Decided<WorkerView, Unmet> {
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

fn changed(tx: &Tx<'_>, by: &By<'_>, decide: impl FnOnce(&Worker) -> Option<Worker>) -> Decided<WorkerView, Unmet> {
    let worker = load::worker(tx, by.worker)?.filter(|worker| worker.state != WorkerState::Deleted);
    let Some(worker) = worker else {
        return Ok(Outcome::Refused(Unmet::NotFound("worker")));
    };
    let Some(next) = decide(&worker) else {
        return Ok(Outcome::Replayed(queries::worker_view(tx, worker)?));
    };
    write(tx, &next)?;
    let why = by.why.map(|why| ("why", why as &dyn std::fmt::Display));
    let why: Vec<_> = why.into_iter().collect();
    audit::write(tx, by.actor, by.action, format_args!("worker/{}", next.id), &why)?;
    Ok(Outcome::Applied(queries::worker_view(tx, next)?))
}

/// Writes a worker whole, new or known.
pub(super) fn write(tx: &Tx<'_>, worker: &Worker) -> Result<(), Fault> {
    // Two statements: SQLite plans an upsert as if the key could change, and would look for its children everywhere.
    let update = "UPDATE worker SET enrollment = ?2, state = ?3, labels = ?4, current_session = ?5, generation = ?6, \
                  rival_session = ?7, rival_heard = ?8, rival_audited = ?9, drain_by = ?10, drain_why = ?11, \
                  drain_at = ?12, takeover_by = ?13, takeover_why = ?14, takeover_expires_at = ?15, enrolled_at = ?16, \
                  certificate_expires_at = ?17 WHERE id = ?1";
    let insert = "INSERT INTO worker (id, enrollment, state, labels, current_session, generation, rival_session, \
                  rival_heard, rival_audited, drain_by, drain_why, drain_at, takeover_by, takeover_why, \
                  takeover_expires_at, enrolled_at, certificate_expires_at) \
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
    let (rival, drain, takeover) = (worker.rival.as_ref(), worker.drain.as_ref(), worker.takeover.as_ref());
    let values = || {
        [
            worker.id.bind(),
            worker.enrollment.bind(),
            worker.state.bind(),
            worker.labels.bind(),
            worker.current.bind(),
            worker.generation.bind(),
            rival.map_or(Bound::Null, |rival| rival.session.bind()),
            rival.map_or(Bound::Null, |rival| rival.heard.bind()),
            rival.map_or(Bound::Null, |rival| rival.audited.bind()),
            drain.map_or(Bound::Null, |drain| drain.by.bind()),
            drain.map_or(Bound::Null, |drain| drain.why.bind()),
            drain.map_or(Bound::Null, |drain| drain.at.bind()),
            takeover.map_or(Bound::Null, |takeover| takeover.by.bind()),
            takeover.map_or(Bound::Null, |takeover| takeover.why.bind()),
            takeover.map_or(Bound::Null, |takeover| takeover.expires_at.bind()),
            worker.enrolled_at.bind(),
            worker.certificate_expires_at.bind(),
        ]
    };
    match tx.execute(update, values())? {
        0 => tx.execute_one("worker", insert, values()),
        _ => Ok(()),
    }
}
