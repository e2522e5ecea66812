//! What a person does to a worker, with real processes: drain and resume.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use serde_json::Value;

fn worker(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["worker", "get", name])
}

/// Waits until the agent says by a beat that it obeys: it would take nothing.
fn wait_for_slots(cluster: &Cluster, name: &str, slots: u64) -> Result<Value> {
    eventually(&format!("{name} to offer {slots} slots"), || {
        let found = worker(cluster, name);
        if found["session"]["slots"] == slots { Ok(found) } else { Err(found.to_string()) }
    })
}

#[test]
fn a_drained_worker_keeps_what_runs_and_takes_nothing_across_restarts_of_both_sides() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    let go = cluster.directory().join("go");
    let job = format!("while [ ! -e {} ]; do sleep 0.05; done; echo whole", go.display());
    let running = cluster.submit(&["--", "sh", "-c", &job]);
    cluster.wait_for_state(&running, "running")?;

    let told = cluster.ask(&["worker", "drain", "near", "--reason", "new disk"]);
    assert!(told.contains("takes nothing new") && told.contains("1 run go"), "{told}");
    let shown = wait_for_slots(&cluster, "near", 0)?;
    assert_eq!((&shown["status"], &shown["drain"]["why"]), (&"draining".into(), &"new disk".into()));
    let waiting = cluster.submit(&["--", "echo", "late"]);
    let explained = cluster.json(&["explain", &waiting]);
    assert_eq!(explained["explanation"]["leading"], "draining", "{explained}");

    // The wish is stored: a new agent and a new control plane find it.
    cluster.kill_agent(index)?;
    cluster.start_agent(index)?;
    cluster.kill_control()?;
    cluster.start_control()?;
    wait_for_slots(&cluster, "near", 0)?;
    assert!(cluster.ask(&["worker", "drain", "near"]).contains("drained before"));
    std::fs::write(&go, b"")?;
    cluster.wait_for_state(&running, "succeeded")?;
    assert_eq!(cluster.ask(&["logs", &running]), "whole");
    assert_eq!(cluster.json(&["runs", "get", &waiting])["state"], "pending", "nothing new");

    assert!(cluster.ask(&["worker", "resume", "near"]).contains("takes work again"));
    cluster.wait_for_state(&waiting, "succeeded")?;
    wait_for_slots(&cluster, "near", 4)?;
    let rows = cluster.json(&["audit", "list"]);
    let told: Vec<_> = rows.as_array().into_iter().flatten().filter(|row| row["subject"] == "worker/near").collect();
    let actions: Vec<_> = told.iter().map(|row| row["action"].as_str().unwrap_or_default()).collect();
    assert_eq!(actions, ["resume_worker", "drain_worker", "enroll"]);
    assert_eq!((&told[1]["origin"], &told[2]["origin"]), (&"admin socket".into(), &"127.0.0.1".into()));
    cluster.shut_down()
}

#[test]
fn draining_waits_for_what_runs_when_asked_and_an_unknown_worker_is_named() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--", "sh", "-c", "sleep 2"]);
    cluster.wait_for_state(&run, "running")?;
    let told = cluster.ask(&["worker", "drain", "near", "--wait"]);
    assert!(told.contains("nothing runs there"), "{told}");
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "succeeded");
    let unknown = cluster.cli(&["worker", "drain", "far"])?;
    unknown.expect_code(3);
    cluster.shut_down()
}
