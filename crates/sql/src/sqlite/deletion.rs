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
use super::transaction::{Decided, Fault, Tx};
use super::{audit, faults, load, recovery, rows, workers};

/// Deletes a worker, if what it holds allows.
pub(super) fn delete(tx: &Tx<'_>, call: &DeleteWorker) -> Decided<Deletion, Unmet> {
    let Some(worker) = load::worker(tx, &call.worker)? else {
        return Ok(Outcome::Refused(Unmet::NotFound("worker")));
    };
    // A person's word that the machine is gone passes over what it holds; only a page of it is read then.
    let holds = if call.destroyed { Holds { live: 0, open: 0 } } else { holds(tx, &call.worker)? };
    let deleted = match worker.deleted(holds, call.destroyed) {
        Ok(deleted) => deleted,
        Err(holds) => return Ok(Outcome::Refused(holds.into())),
    };
    let mut settled = if call.destroyed { held(tx, call)? } else { Vec::new() };
    let more = settled.len() > call.limit;
    settled.truncate(call.limit);
    if deleted.is_none() && settled.is_empty() {
        return Ok(Outcome::Replayed(Deletion::default()));
    }
    let mut runs = Vec::new();
    for attempt in settled {
        let (named, policy) = recovery::of_attempt(tx, attempt)?;
        let lease = named.lease.as_ref();
        if let Some(change) = destroyed(&named.run, &named.attempt, lease, &policy, &call.actor, tx.now) {
            apply(tx, &Loaded::named(&named), &change)?;
            runs.push(named.run.id);
        }
    }
    if let Some(deleted) = deleted {
        let sql = "UPDATE enrollment SET expires_at = ?2 WHERE worker = ?1 AND expires_at > ?2";
        tx.execute(sql, values![call.worker, tx.now.utc])?;
        faults::write(tx, &call.worker, &[])?;
        workers::write(tx, &deleted)?;
    }
    let changed = runs.len();
    let mut facts: Vec<(&str, &dyn std::fmt::Display)> = vec![("destroyed", &call.destroyed), ("runs", &changed)];
    if let Some(why) = &call.why {
        facts.push(("why", why));
    }
    audit::write(tx, &call.actor, "delete_worker", format_args!("worker/{}", call.worker), &facts)?;
    Ok(Outcome::Applied(Deletion { runs, more }))
}

/// Attempts whose leases a worker holds.
macro_rules! live {
    () => {
        "FROM lease INDEXED BY lease_active_worker WHERE worker = ?1 AND state = 'active'"
    };
}

/// Ended attempts of a worker whose question is open, or of which something may live: but for the word of a person that the
/// machine is gone, which is all that can be known of them.
macro_rules! open {
    () => {
        "FROM attempt INDEXED BY attempt_open WHERE worker = ?1 \
         AND (may_live = 1 OR (state = 'lost' AND resolution = 'none')) AND ended_at IS NOT NULL \
         AND (may_live = 1 OR (SELECT state FROM run WHERE run.id = attempt.run) = 'lost') \
         AND instr(' ' || evidence || ' ', ' destroyed ') = 0"
    };
}

/// How much it holds.
fn holds(tx: &Tx<'_>, worker: &WorkerId) -> Result<Holds, Fault> {
    let count = |sql: &'static str| tx.only(sql, values![*worker], rows::column);
    Ok(Holds { live: count(concat!("SELECT count(*) ", live!()))?, open: count(concat!("SELECT count(*) ", open!()))? })
}

/// The first of what it holds, and one more than the limit if there is: live ones before open ones, in the order of ids.
fn held(tx: &Tx<'_>, call: &DeleteWorker) -> Result<Vec<AttemptId>, Fault> {
    let page = |sql: &'static str, limit: usize| tx.all(sql, values![call.worker, limit], rows::column);
    let limit = call.limit.saturating_add(1);
    let mut held: Vec<AttemptId> = page(concat!("SELECT attempt ", live!(), " ORDER BY attempt LIMIT ?2"), limit)?;
    let rest = limit.saturating_sub(held.len());
    held.extend(page(concat!("SELECT id ", open!(), " ORDER BY id LIMIT ?2"), rest)?);
    Ok(held)
}
