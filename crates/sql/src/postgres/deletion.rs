//! A person deletes a worker: identity, tickets and enrollments end; with the word that the machine is gone, a page of what it
//! held is settled in the same transaction.

use leasehold_core::end::destroyed;
use leasehold_core::id::{AttemptId, WorkerId};
use leasehold_core::worker::Holds;
use leasehold_store::call::DeleteWorker;
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::Deletion;

use super::apply::{Loaded, apply};
use super::column::values;
use super::lock::Locks;
use super::transaction::{Connection, Decided, Fault, Tx, Unlocked};
use super::{audit, faults, load, recovery, rows, workers};

/// Deletes a worker, if what it holds allows.
pub(super) async fn delete(db: Unlocked, call: &DeleteWorker) -> Decided<Deletion, Unmet> {
    let found = if call.destroyed { held(&db, call).await? } else { Vec::new() };
    let tx = &db.lock(Locks::held(&call.worker, found.clone())).await?;
    let Some(worker) = load::worker(tx, &call.worker).await? else {
        return Ok(Outcome::Refused(Unmet::NotFound("worker")));
    };
    // A person's word that the machine is gone passes over what it holds; only a page of it is read then.
    let holds = if call.destroyed { Holds { live: 0, open: 0 } } else { holds(tx, &call.worker).await? };
    let deleted = match worker.deleted(holds, call.destroyed) {
        Ok(deleted) => deleted,
        Err(holds) => return Ok(Outcome::Refused(holds.into())),
    };
    let held = if call.destroyed { held(tx, call).await? } else { Vec::new() };
    // What came to it between the look and the locks is left to the next call.
    let mut settled: Vec<_> = held.iter().copied().filter(|attempt| found.contains(attempt)).collect();
    settled.truncate(call.limit);
    let more = held.len() > settled.len();
    if deleted.is_none() && held.is_empty() {
        return Ok(Outcome::Replayed(Deletion::default()));
    }
    let mut runs = Vec::new();
    for attempt in settled {
        let (named, policy) = recovery::of_attempt(tx, attempt).await?;
        let lease = named.lease.as_ref();
        if let Some(change) = destroyed(&named.run, &named.attempt, lease, &policy, &call.actor, tx.now) {
            apply(tx, &Loaded::named(&named), &change).await?;
            runs.push(named.run.id);
        }
    }
    if let Some(deleted) = deleted {
        let sql = "UPDATE enrollment SET expires_at = $2 WHERE worker = $1 AND expires_at > $2";
        tx.execute(sql, values![call.worker, tx.now.utc]).await?;
        faults::write(tx, &call.worker, &[]).await?;
        workers::write(tx, &deleted).await?;
    }
    let changed = runs.len();
    let mut facts: Vec<(&str, &(dyn std::fmt::Display + Sync))> =
        vec![("destroyed", &call.destroyed), ("runs", &changed)];
    if let Some(why) = &call.why {
        facts.push(("why", why));
    }
    audit::write(tx, &call.actor, "delete_worker", format!("worker/{}", call.worker), &facts).await?;
    Ok(Outcome::Applied(Deletion { runs, more }))
}

/// Attempts whose leases a worker holds.
macro_rules! live {
    () => {
        "FROM lease WHERE worker = $1 AND state = 'active'"
    };
}

/// Ended attempts of a worker whose question is open, or of which something may live: but for the word of a person that the
/// machine is gone, which is all that can be known of them.
macro_rules! open {
    () => {
        "FROM attempt WHERE worker = $1 \
         AND unsettled AND ended_at IS NOT NULL \
         AND (may_live OR (SELECT state FROM run WHERE run.id = attempt.run) = 'lost') \
         AND position(' destroyed ' IN ' ' || evidence || ' ') = 0"
    };
}

/// How much it holds.
async fn holds(tx: &Tx, worker: &WorkerId) -> Result<Holds, Fault> {
    let (live, open) = (concat!("SELECT count(*) ", live!()), concat!("SELECT count(*) ", open!()));
    // One after the other: what is no longer live is counted among the open.
    let live = tx.only(live, values![*worker], rows::column).await?;
    Ok(Holds { live, open: tx.only(open, values![*worker], rows::column).await? })
}

/// The first of what it holds, and one more than the limit if there is: live ones before open ones, in the order of ids.
async fn held(db: &Connection, call: &DeleteWorker) -> Result<Vec<AttemptId>, Fault> {
    let live = concat!("SELECT attempt ", live!(), " ORDER BY attempt LIMIT $2");
    let open = concat!("SELECT id ", open!(), " ORDER BY id LIMIT $2");
    let limit = call.limit.saturating_add(1);
    let mut held = db.all(live, values![call.worker, limit], rows::column).await?;
    let rest = limit.saturating_sub(held.len());
    held.extend(db.all(open, values![call.worker, rest], rows::column::<AttemptId, _>).await?);
    Ok(held)
}
