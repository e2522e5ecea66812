//! Registration answer lost and the worker killed: it comes back by itself, and nobody is told of a copied credential.
//!
//! Ten rounds with real processes; a hundred with the real engine in its simulated world (`leasehold-worker`,
//! `engine::tests`).

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::story;

use super::{session, wait_for_another_session};

#[test]
fn a_worker_whose_registration_was_answered_to_nobody_comes_back_by_itself() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    for round in 0..10 {
        let before = session(&cluster, near);
        // The answer is lost with the process, or twice without it.
        let fault = ["call.register.after:kill", "call.register.after:lost@1-2"][round % 2];
        cluster.spawn_agent_with(near, "LEASEHOLD_FAULT", fault)?;
        if fault.contains("kill") {
            eventually("the agent to die", || if cluster.agent_runs(near) { Err(String::new()) } else { Ok(()) })?;
            let registered = session(&cluster, near);
            assert_ne!(registered, before, "the control plane has accepted it");
            cluster.kill_agent(near)?;
            cluster.spawn_agent(near)?;
        }
        wait_for_another_session(&cluster, near, &before)?;
        let run = cluster.submit(&["--", "true"]);
        cluster.wait_for_state(&run, "succeeded")?;
        cluster.kill_agent(near)?;
    }
    let alarms = story::audit(&cluster)?.into_iter().filter(|row| row["action"] == "credential_replayed");
    assert_eq!(alarms.count(), 0, "nobody copied anything");
    cluster.start_agent(near)?;
    cluster.shut_down()
}
