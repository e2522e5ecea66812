//! Cases 20 and 31, full disks: at a worker nothing new is accepted and what runs keeps its outcome; at the control plane
//! logs stop first, then new work, while leases are renewed and ends are written; both recover by themselves.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::{eventually, within};
use leasehold_sim::machine::is_root_or_skip;
use leasehold_sim::request;
use leasehold_sim::small_disk::SmallDisk;

use super::bytes::{bytes_of, log_becomes};

/// Runs that end while the disk is full.
const RUNS: usize = 20;

fn ready(cluster: &Cluster, status: u16) -> Result<String> {
    eventually(&format!("/readyz to say {status}"), || match request::get(&cluster.api(), "/readyz", None) {
        Ok(answer) if answer.status == status => Ok(answer.body),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn a_full_worker_takes_nothing_new_and_what_runs_keeps_its_outcome() -> Result<()> {
    if !is_root_or_skip("a_full_worker_takes_nothing_new_and_what_runs_keeps_its_outcome") {
        return Ok(());
    }
    let mut cluster = Cluster::prepare()?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let disk = SmallDisk::mount(&cluster.directory().join("worker-near"), 64)?;
    let worker = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!(
        "echo before; until [ -e {} ]; do sleep 0.05; done; head -c 2000000 /dev/zero; echo after; exit 7",
        gate.display()
    );
    let first = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&first, "running")?;
    disk.fill()?;
    eventually("the worker to say that its disk is low", || {
        let said = cluster.written();
        if said.contains("disk is low") { Ok(()) } else { Err(said) }
    })?;

    let second = cluster.submit(&["--", "echo", "second"]);
    std::fs::write(&gate, "")?;
    let ended = cluster.wait_for_state(&first, "failed")?;
    assert_eq!(ended["outcome"]["exit_code"], 7, "{ended}");
    let log = log_becomes(&cluster, &first, "incomplete")?;
    assert_eq!((&log["reason"], &log["cut"]["reason"]), (&"disk_full".into(), &"disk_full".into()), "{log}");
    let missing = usize::try_from(log["cut"]["stdout"].as_u64().context("a count")?)?;
    let kept = bytes_of(&cluster, &["logs", &first])?;
    assert_eq!(kept.len() + missing, 2_000_000 + "before\nafter\n".len(), "every byte is here or counted");
    let page = cluster.ask(&["runs", "get", &first]);
    assert!(page.contains("the worker's disk was full"), "{page}");
    assert_eq!(cluster.json(&["runs", "get", &second])["state"], "pending", "nothing new is accepted");

    disk.empty()?;
    cluster.wait_for_state(&second, "succeeded")?;
    eventually("nothing to be left in the inbox", || {
        let left = cluster.worker(worker).files_in("inbox");
        if left.is_empty() { Ok(()) } else { Err(left.join(" ")) }
    })?;
    cluster.shut_down()?;
    drop(disk);
    Ok(())
}

#[test]
fn twenty_runs_end_while_the_control_planes_disk_is_full() -> Result<()> {
    if !is_root_or_skip("twenty_runs_end_while_the_control_planes_disk_is_full") {
        return Ok(());
    }
    let mut cluster = Cluster::prepare()?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    let disk = SmallDisk::mount(&cluster.data(), 64)?;
    cluster.start_control()?;
    cluster.join(WorkerOptions { slots: 21, ..WorkerOptions::named("near") })?;
    let gate = cluster.directory().join("gate");
    let gated = format!("until [ -e {} ]; do sleep 0.1; done", gate.display());
    let short = format!("echo before; {gated}; echo after; exit 3");
    let runs: Vec<_> = (0..RUNS).map(|_| cluster.submit(&["--", "sh", "-c", &short])).collect();
    // Its lease, of the shortest length there is, has to be renewed while the disk is full.
    let spec = cluster.directory().join("long.toml");
    let long = format!("[command]\nscript = '''\n{gated}\nsleep 26; echo long\n'''\n[limits]\nlease = \"25s\"\n");
    std::fs::write(&spec, long)?;
    let long = cluster.submit(&["--spec", &spec.display().to_string()]);
    for run in runs.iter().chain([&long]) {
        cluster.wait_for_state(run, "running")?;
    }
    assert_eq!(ready(&cluster, 200)?, "ready\n");

    disk.fill()?;
    let said = ready(&cluster, 503)?;
    assert!(said.contains("disk_full") && said.contains("new work is refused"), "{said}");
    let refused = cluster.cli(&["run", "--detach", "-q", "--", "true"])?;
    refused.expect_code(1);
    assert!(refused.stderr.contains("disk is nearly full"), "{}", refused.stderr);
    std::fs::write(&gate, "")?;
    for run in &runs {
        let ended = within(Duration::from_secs(20), "an end on a full disk", || {
            let run = cluster.look_at(run)?;
            if run["state"] == "failed" { Ok(run) } else { Err(run["state"].to_string()) }
        })?;
        assert_eq!(ended["outcome"]["exit_code"], 3, "{ended}");
        assert_eq!(ended["attempts"][0]["log"]["state"], "partial", "{ended}");
    }
    // Neither waits for bytes that nobody takes in.
    assert_eq!(bytes_of(&cluster, &["logs", "-f", &runs[0]])?, b"before\n");
    cluster.wait_for_state(&long, "succeeded")?;
    let told = cluster.json(&["runs", "get", &long]);
    assert_eq!(told["attempts"].as_array().map(Vec::len), Some(1), "its lease was renewed: {told}");

    disk.empty()?;
    ready(&cluster, 200)?;
    for run in &runs {
        log_becomes(&cluster, run, "complete")?;
        assert_eq!(bytes_of(&cluster, &["logs", run])?, b"before\nafter\n");
    }
    log_becomes(&cluster, &long, "complete")?;
    cluster.wait_for_state(&cluster.submit(&["--", "true"]), "succeeded")?;
    cluster.shut_down()?;
    drop(disk);
    Ok(())
}
