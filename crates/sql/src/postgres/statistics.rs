//! What there is, counted: for metrics.
//!
//! Every count walks an index of what is not over, so an installation with a million ended runs is counted as quickly as a
//! new one.

use std::collections::BTreeMap;

use futures_util::future::try_join3;
use leasehold_core::run::RunState;
use leasehold_core::session::SessionState;
use leasehold_core::time::{LeaseInstant, Millis};
use leasehold_core::worker::WorkerState;
use leasehold_store::view::{Statistics, WorkerCounts};

use super::column::{list, values};
use super::rows;
use super::transaction::{Fault, Tx};

pub(super) async fn statistics(tx: &Tx) -> Result<Statistics, Fault> {
    let states: Vec<RunState> = Statistics::counted_states().collect();
    let counted = "SELECT state, count(*) FROM run WHERE state = ANY ($1) GROUP BY state";
    let oldest = "SELECT created_at FROM run WHERE state = $1 ORDER BY id LIMIT 1";
    let (counted, oldest_pending, (workers, heartbeat_lag)) = try_join3(
        tx.all(counted, [list(&states)], |columns| Ok((columns.next::<RunState>()?, columns.next::<u64>()?))),
        tx.first(oldest, values![RunState::Pending], rows::column),
        workers(tx),
    )
    .await?;
    let mut runs: BTreeMap<RunState, u64> = states.into_iter().map(|state| (state, 0)).collect();
    runs.extend(counted);
    Ok(Statistics { now: tx.now, runs, oldest_pending, workers, heartbeat_lag })
}

/// Every worker, a narrow row each; and how late the latest live session is.
async fn workers(tx: &Tx) -> Result<(WorkerCounts, Millis), Fault> {
    // One seek for each worker, whatever the planner believes: sessions are many, and all but a few of the past.
    let sql = "SELECT w.state, s.state, s.expires_lease > $1, s.spoke_lease + s.interval_millis FROM worker w \
               LEFT JOIN LATERAL (SELECT * FROM session WHERE id = w.current_session LIMIT 1) s ON true";
    let rows = tx
        .all(sql, values![tx.now.lease], |columns| {
            let states: (WorkerState, Option<SessionState>) = (columns.next()?, columns.next()?);
            let clocks: (Option<bool>, Option<LeaseInstant>) = (columns.next()?, columns.next()?);
            Ok((states, clocks))
        })
        .await?;
    let (mut counts, mut lag) = (WorkerCounts::default(), Millis::ZERO);
    for ((worker, session), (live, due)) in rows {
        let live = live.unwrap_or(false) && session != Some(SessionState::Offline);
        counts.add(worker, session.map(|session| (session, live)), 1);
        if let Some(due) = due.filter(|_| live) {
            lag = lag.max(tx.now.lease.since(due));
        }
    }
    Ok((counts, lag))
}
