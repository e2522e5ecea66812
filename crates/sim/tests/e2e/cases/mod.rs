//! The cases: situations in which systems of this kind have hurt their users, one file per situation.
//!
//! Each is played with real processes and told by what the jobs wrote down themselves; where a case would take minutes,
//! its bounds are the shortest that the product allows, and the file says so. They are examples of kinds: what one of
//! them finds is fixed as a kind.

mod bad_log_endpoint;
mod bytes;
mod claim_against_cancel;
mod claim_answer_lost;
mod cloned_state;
mod control_clock_steps;
mod control_plane_killed;
mod cut_off_while_running;
mod edited_and_deleted;
mod end_during_an_outage;
mod frozen_agent;
mod full_disks;
mod late_loser;
mod limits;
mod long_outage;
mod registration_answer_lost;
mod restarts;
mod run_as;
mod service_manager;
pub(crate) mod skip_that_never_ends;
mod stubborn_tree;

use anyhow::{Result, bail};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::eventually::eventually;
use rustix::process::Signal;
use serde_json::Value;

/// Freezes an agent whose pull is open and submits a run: it is claimed, and nobody has read the answer. What was submitted
/// while no pull was open yet runs as usual; the run that is answered is claimed and unread.
fn claim_unread(cluster: &Cluster, worker: usize, run: &[&str]) -> Result<String> {
    for _ in 0..20 {
        wait_for_open_asks(cluster, worker)?;
        cluster.signal_agent(worker, Signal::STOP)?;
        let run = cluster.submit(run);
        // Claimed within milliseconds, or not before the agent asks.
        for _ in 0..25 {
            if cluster.json(&["runs", "get", &run])["state"] == "dispatching" {
                return Ok(run);
            }
        }
        cluster.signal_agent(worker, Signal::CONT)?;
        cluster.wait_for_state(&run, "succeeded")?;
    }
    bail!("no pull was ever open")
}

/// Waits until a worker has asks that nothing was granted to, and nothing in hand: its pull is open, or about to be.
fn wait_for_open_asks(cluster: &Cluster, worker: usize) -> Result<()> {
    let asks = cluster.worker(worker).state().join("pending-claims.json");
    eventually("asks that nothing was granted to", || {
        let asks = std::fs::read_to_string(&asks).unwrap_or_default();
        let told: Value = serde_json::from_str(&asks).unwrap_or_default();
        let open = told["asks"].as_array().is_some_and(|asks| !asks.is_empty());
        if open && cluster.worker(worker).files_in("inbox").is_empty() { Ok(()) } else { Err(asks) }
    })
}

/// The id of a worker's session; empty before its first.
pub(crate) fn session(cluster: &Cluster, worker: usize) -> String {
    let told = cluster.json(&["worker", "get", &cluster.worker(worker).name]);
    told["session"]["id"].as_str().unwrap_or_default().to_owned()
}

/// Waits until a worker has a live session, and another one than `before`.
pub(crate) fn wait_for_another_session(cluster: &Cluster, worker: usize, before: &str) -> Result<()> {
    eventually("another session", || {
        let told = cluster.json(&["worker", "get", &cluster.worker(worker).name]);
        let another = told["session"]["id"].as_str().is_some_and(|id| id != before);
        if another && told["status"] == "online" { Ok(()) } else { Err(told.to_string()) }
    })
}
