//! A person deletes a worker.

use leasehold_core::attempt::{AttemptState, EvidenceKind, Resolution};
use leasehold_core::end::destroyed;
use leasehold_core::id::{AttemptId, WorkerId};
use leasehold_core::run::RunState;
use leasehold_core::worker::Holds;

use super::Transaction;
use crate::call::DeleteWorker;
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::Deletion;

pub(super) fn delete(tx: &mut Transaction<'_>, call: &DeleteWorker) -> Stored<Deletion, Unmet> {
    let Some(worker) = tx.state.workers.get(&call.worker).cloned() else {
        return Ok(Outcome::Refused(Unmet::NotFound("worker")));
    };
    let live: Vec<_> = tx.active_leases(&call.worker).map(|lease| lease.attempt).collect();
    let open = open(tx, &call.worker);
    let count = |attempts: &[AttemptId]| u64::try_from(attempts.len()).unwrap_or(u64::MAX);
    let deleted = match worker.deleted(Holds { live: count(&live), open: count(&open) }, call.destroyed) {
        Ok(deleted) => deleted,
        Err(holds) => return Ok(Outcome::Refused(holds.into())),
    };
    let mut settled = if call.destroyed { [live, open].concat() } else { Vec::new() };
    let more = settled.len() > call.limit;
    settled.truncate(call.limit);
    if deleted.is_none() && settled.is_empty() {
        return Ok(Outcome::Replayed(Deletion::default()));
    }
    let mut runs = Vec::new();
    for attempt in settled {
        let Some(loaded) = tx.load(attempt)? else { continue };
        let lease = loaded.lease.as_ref();
        let policy = loaded.revision.policy();
        if let Some(change) = destroyed(&loaded.run, &loaded.attempt, lease, &policy, &call.actor, tx.now) {
            tx.apply(change)?;
            runs.push(loaded.run.id);
        }
    }
    if let Some(deleted) = deleted {
        let now = tx.now.utc;
        for enrollment in tx.state.enrollments.values_mut().filter(|enrollment| enrollment.worker == call.worker) {
            enrollment.expires_at = enrollment.expires_at.min(now);
        }
        tx.state.faults.remove(&call.worker);
        tx.state.workers.insert(deleted.id.clone(), deleted);
    }
    let why = call.why.clone().map(|why| ("why", why));
    let facts = [("destroyed", call.destroyed.to_string()), ("runs", runs.len().to_string())].into_iter().chain(why);
    tx.record(&call.actor, "delete_worker", format_args!("worker/{}", call.worker), facts);
    Ok(Outcome::Applied(Deletion { runs, more }))
}

/// Ended attempts of the worker whose question is open, or of which something may live: but for the word of a person that
/// the machine is gone, which is all that can be known of them.
fn open(tx: &Transaction<'_>, worker: &WorkerId) -> Vec<AttemptId> {
    let of_worker = tx.state.attempts.values().filter(|attempt| attempt.worker.as_ref() == Some(worker));
    let open = of_worker.filter(|attempt| {
        let lost = attempt.state == AttemptState::Lost && attempt.resolution == Resolution::None;
        let run = tx.state.runs.get(&attempt.run);
        let open = attempt.may_live || lost && run.is_some_and(|run| run.state == RunState::Lost);
        open && attempt.ended_at.is_some() && !attempt.evidence.contains(&EvidenceKind::Destroyed)
    });
    open.map(|attempt| attempt.id).collect()
}
