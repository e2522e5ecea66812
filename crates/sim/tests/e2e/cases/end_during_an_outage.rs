//! End during an outage: a job ends with 7 while nobody can be told. (a) within the lease and (b) with a restart of the
//! worker in between it is failed with 7, at its true time, its log complete; (c) beyond the lease it is lost, and the late
//! receipt resolves it to the same.

use std::path::Path;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use serde_json::Value;

/// Says when it ends, to the millisecond, and ends with 7.
fn job(gate: &Path, ended: &Path) -> String {
    let wait = format!("until [ -e {} ]; do sleep 0.02; done", gate.display());
    format!("echo before; {wait}; echo after; date +%s%3N >{}; exit 7", ended.display())
}

fn wait_for_the_receipts(cluster: &Cluster, workers: &[usize]) -> Result<()> {
    eventually("every launcher to be done", || {
        let left: Vec<u32> = workers.iter().flat_map(|worker| cluster.worker(*worker).launchers()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
}

/// Failed with 7, when it said so itself, with everything it wrote.
fn check(cluster: &Cluster, run: &str, ended: &Path) -> Result<Value> {
    let found = cluster.wait_for_state(run, "failed")?;
    assert_eq!(found["outcome"]["exit_code"], 7, "{found}");
    assert_eq!(found["attempts"].as_array().map(Vec::len), Some(1), "{found}");
    let told = found["attempts"][0]["ended_at"].as_str().context("an end has a time")?;
    let told = process_time(told)?;
    let wrote: i64 = std::fs::read_to_string(ended)?.trim().parse()?;
    assert!((0..1000).contains(&(told - wrote)), "told {told}, ended {wrote}: {found}");
    eventually("the log to be complete", || {
        let state = cluster.json(&["runs", "get", run])["attempts"][0]["log"]["state"].clone();
        if state == "complete" { Ok(()) } else { Err(state.to_string()) }
    })?;
    assert_eq!(cluster.log(run), "before\nafter");
    Ok(found)
}

/// Milliseconds of an RFC 3339 time.
fn process_time(text: &str) -> Result<i64> {
    let ended = leasehold_sim::process::run(std::process::Command::new("date").args(["-d", text, "+%s%3N"]))?;
    Ok(ended.expect_code(0).answer().parse()?)
}

#[test]
fn an_end_that_nobody_could_be_told_is_told_later_and_as_it_was() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let mut workers = Vec::new();
    let mut runs = Vec::new();
    for (name, lease) in [("within", "10m"), ("restarted", "10m"), ("beyond", "25s")] {
        workers.push(cluster.join(WorkerOptions::named(name))?);
        let ended = cluster.directory().join(format!("{name}.ended"));
        let script = job(&cluster.directory().join(format!("{name}.gate")), &ended);
        let place = format!("worker={name}");
        let run = cluster.submit(&["--require", &place, "--lease", lease, "--", "sh", "-c", &script]);
        runs.push((run, ended));
    }
    let [(within, within_ended), (restarted, restarted_ended), (beyond, _)] = runs.as_slice() else {
        unreachable!("three were submitted")
    };
    for (run, _) in &runs {
        cluster.wait_for_state(run, "running")?;
    }
    let open = |cluster: &Cluster, name: &str| std::fs::write(cluster.directory().join(format!("{name}.gate")), "");

    // (c) begins: its agent is gone, the job ends, and nobody tells.
    cluster.kill_agent(workers[2])?;
    open(&cluster, "beyond")?;
    wait_for_the_receipts(&cluster, &workers[2..])?;

    // (a) and (b): the control plane is away.
    cluster.kill_control()?;
    open(&cluster, "within")?;
    open(&cluster, "restarted")?;
    wait_for_the_receipts(&cluster, &workers[..2])?;
    cluster.kill_agent(workers[1])?;
    cluster.spawn_agent(workers[1])?;
    cluster.start_control()?;
    check(&cluster, within, within_ended)?;
    check(&cluster, restarted, restarted_ended)?;

    let lost = cluster.wait_for_state(beyond, "lost")?;
    assert_eq!(lost["attempts"][0]["resolution"], "none", "{lost}");
    cluster.start_agent(workers[2])?;
    let resolved = cluster.wait_for_state(beyond, "failed")?;
    assert_eq!(
        (&resolved["attempts"][0]["state"], &resolved["attempts"][0]["resolution"]),
        (&"lost".into(), &"receipt".into())
    );
    assert_eq!(resolved["outcome"]["exit_code"], 7, "{resolved}");
    eventually("the log of a lost attempt to be complete", || {
        let found = cluster.json(&["runs", "get", beyond]);
        if found["attempts"][0]["log"]["state"] == "complete" { Ok(()) } else { Err(found.to_string()) }
    })?;
    assert_eq!(cluster.log(beyond), "before\nafter");
    cluster.shut_down()
}
