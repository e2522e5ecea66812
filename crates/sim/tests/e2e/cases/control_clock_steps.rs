//! The control host's clock steps by 3 h, both ways: no lease ends, no job stops, and the worker stays.
//!
//! The wall clock of the control plane alone is stepped, while it lives and across a restart; the shortest run lease (25 s)
//! and cadence (5 s). After each step the worker speaks, and renews its lease.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::is_root_or_skip;
use leasehold_sim::story;
use leasehold_sim::wall_clock::WallClock;

const STEP: i64 = 3 * 60 * 60;

fn version(cluster: &Cluster) -> u64 {
    cluster.json(&["worker", "get", "near"])["session"]["version"].as_u64().unwrap_or_default()
}

fn wait_for_a_beat(cluster: &Cluster) -> Result<()> {
    let before = version(cluster);
    eventually("a beat", || if version(cluster) > before { Ok(()) } else { Err(before.to_string()) })
}

#[test]
fn steps_of_the_control_planes_wall_clock_end_no_lease_and_stop_no_job() -> Result<()> {
    if !is_root_or_skip("steps_of_the_control_planes_wall_clock_end_no_lease_and_stop_no_job") {
        return Ok(());
    }
    let mut cluster = Cluster::prepare()?;
    let clock = WallClock::new(cluster.directory().join("offset"))?;
    cluster.control_variables(clock.variables());
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo through", gate.display());
    let run = cluster.submit(&["--lease", "25s", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;
    let session = cluster.json(&["worker", "get", "near"])["session"]["id"].clone();

    for seconds in [STEP, -STEP, STEP, 0] {
        clock.step(seconds)?;
        wait_for_a_beat(&cluster)?;
        let between = cluster.submit(&["--", "true"]);
        cluster.wait_for_state(&between, "succeeded")?;
        assert_eq!(cluster.json(&["runs", "get", &run])["state"], "running", "after a step to {seconds} s");
    }
    // Stepped while it was down.
    cluster.kill_control()?;
    clock.step(-STEP)?;
    cluster.start_control()?;
    wait_for_a_beat(&cluster)?;
    assert_eq!(
        cluster.json(&["worker", "get", "near"])["session"]["id"],
        session,
        "the worker never had to start over"
    );

    std::fs::write(gate, "")?;
    let ended = cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(ended["attempts"].as_array().map(Vec::len), Some(1), "{ended}");
    assert_eq!(cluster.log(&run), "through");
    let kinds = story::kinds(&cluster, &run)?;
    assert!(!kinds.iter().any(|kind| kind == "lease.rebound" || kind.ends_with("lost")), "{kinds:?}");
    assert!(cluster.agent_runs(near));
    cluster.shut_down()
}
