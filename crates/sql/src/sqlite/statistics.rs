//! What there is, counted: for metrics.
//!
//! Every count walks an index of what is not over, so an installation with a million ended runs is counted as quickly as a
//! new one.

use leasehold_core::run::RunState;
use leasehold_core::session::SessionState;
use leasehold_core::time::{LeaseInstant, Millis};
use leasehold_core::worker::WorkerState;
use leasehold_store::view::{Statistics, WorkerCounts};

use super::column::values;
use super::rows;
use super::transaction::{Fault, Tx};

pub(super) fn statistics(tx: &Tx<'_>) -> Result<Statistics, Fault> {
    let counted = Statistics::counted_states().map(|state| {
        let sql = "SELECT count(*) FROM run INDEXED BY run_state WHERE state = ?1";
        Ok((state, tx.only(sql, values![state], rows::column)?))
    });
    let oldest_pending = tx.first(
        "SELECT created_at FROM run INDEXED BY run_state WHERE state = ?1 ORDER BY id LIMIT 1",
        values![RunState::Pending],
        rows::column,
    )?;
    let (workers, heartbeat_lag) = workers(tx)?;
    Ok(Statistics { now: tx.now, runs: counted.collect::<Result<_, Fault>>()?, oldest_pending, workers, heartbeat_lag })
}

/// Every worker, a narrow row each; and how late the latest live session is.
fn workers(tx: &Tx<'_>) -> Result<(WorkerCounts, Millis), Fault> {
    let mut counts = WorkerCounts::default();
    let mut lag = Millis::ZERO;
    tx.each(
        "SELECT worker.state, session.state, session.expires_lease > ?1, session.spoke_lease + session.interval_millis \
         FROM worker LEFT JOIN session ON session.id = worker.current_session",
        values![tx.now.lease],
        |columns| {
            let (worker, session): (WorkerState, Option<SessionState>) = (columns.next()?, columns.next()?);
            let (live, due): (Option<bool>, Option<LeaseInstant>) = (columns.next()?, columns.next()?);
            let live = live.unwrap_or(false) && session != Some(SessionState::Offline);
            counts.add(worker, session.map(|session| (session, live)), 1);
            if let Some(due) = due.filter(|_| live) {
                lag = lag.max(tx.now.lease.since(due));
            }
            Ok(true)
        },
    )?;
    Ok((counts, lag))
}
