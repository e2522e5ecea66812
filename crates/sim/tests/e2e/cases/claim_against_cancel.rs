//! Claim against cancel: cancelled while it is claimed, before `starting`. The program never runs.
//!
//! The agent is frozen while its pull is open, so that the claim is made and nobody has read the answer.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::story;
use rustix::process::Signal;

use super::claim_unread;

#[test]
fn a_claim_that_was_cancelled_before_it_started_never_runs() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let started = cluster.directory().join("started");
    let job = format!("echo $LEASEHOLD_RUN_ID >>{}", started.display());
    let job = ["--", "sh", "-c", &job];

    // The agent wakes up and asks whether it may start.
    let asked = claim_unread(&cluster, near, &job)?;
    cluster.ask(&["cancel", &asked]);
    assert_eq!(cluster.json(&["runs", "get", &asked])["state"], "dispatching", "the wish is stored, the claim stands");
    cluster.signal_agent(near, Signal::CONT)?;
    cluster.wait_for_state(&asked, "cancelled")?;

    // The agent dies with the answer unread; the next one asks with the same asks.
    let orphaned = claim_unread(&cluster, near, &job)?;
    cluster.ask(&["cancel", &orphaned]);
    cluster.kill_agent(near)?;
    cluster.start_agent(near)?;
    cluster.wait_for_state(&orphaned, "cancelled")?;

    for run in [&asked, &orphaned] {
        let kinds = story::kinds(&cluster, run)?;
        assert!(!kinds.iter().any(|kind| kind == "attempt.starting" || kind == "attempt.running"), "{kinds:?}");
    }
    // What comes after both has run, so they had their time.
    let last = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&last, "succeeded")?;
    let started = std::fs::read_to_string(started).unwrap_or_default();
    assert!(!started.contains(&asked) && !started.contains(&orphaned), "nothing of them was ever started: {started}");
    cluster.shut_down()
}
