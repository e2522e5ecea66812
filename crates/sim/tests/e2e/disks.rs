//! A worker on a real disk that is full, or read-only, and then is not: it takes nothing new, keeps what runs true, says
//! what is wrong, and goes on by itself when there is room. (Worker design, *Inbox*.)

use anyhow::{Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::is_root_or_skip;
use leasehold_sim::small_disk::SmallDisk;

/// Room for a worker's state and a few attempts; more than a worker asks for before it takes anything would hide that it
/// copes without.
const MEBIBYTES: u32 = 4;

fn disk_of(cluster: &Cluster, name: &str) -> Result<SmallDisk> {
    SmallDisk::mount(&cluster.directory().join(format!("worker-{name}")), MEBIBYTES)
}

/// It says so at whichever it meets first: a write that fails, or its look at the disk before it takes anything.
fn said_to_be_full(cluster: &Cluster) -> Result<()> {
    eventually("the agent to say what is wrong", || {
        let written = cluster.written();
        let said = ["No space left on device", "disk is low"].iter().any(|words| written.contains(words));
        if said { Ok(()) } else { Err(written) }
    })
}

#[test]
fn a_disk_that_fills_up_under_a_job_loses_nothing_and_starts_nothing() -> Result<()> {
    if !is_root_or_skip("a_disk_that_fills_up_under_a_job_loses_nothing_and_starts_nothing") {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let disk = disk_of(&cluster, "small")?;
    let small = cluster.join(WorkerOptions::named("small"))?;
    let (gate, starts) = (cluster.directory().join("gate"), cluster.directory().join("starts"));
    let script = format!("echo before; until [ -e {} ]; do sleep 0.05; done; exit 3", gate.display());
    let running = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&running, "running")?;

    disk.fill()?;
    // What comes now cannot be accepted: its claim goes back, and nothing of it starts.
    let waiting = cluster.submit(&["--", "sh", "-c", &format!("echo start >>{}", starts.display())]);
    std::fs::write(gate, "")?;
    let ended = cluster.wait_for_state(&running, "failed")?;
    assert_eq!(ended["outcome"]["exit_code"], 3, "its own end, although no record of it can be written: {ended}");
    said_to_be_full(&cluster)?;
    assert!(cluster.agent_runs(small), "it does not give up");
    assert!(!starts.exists(), "and starts nothing");
    assert_eq!(cluster.json(&["runs", "get", &waiting])["attempts"].as_array().map(Vec::len), Some(1));

    disk.empty()?;
    cluster.wait_for_state(&waiting, "succeeded")?;
    assert_eq!(std::fs::read_to_string(&starts)?, "start\n");
    assert_eq!(cluster.log(&running), "before");
    eventually("every record to settle and go", || {
        let left = [cluster.worker(small).files_in("inbox"), cluster.worker(small).files_in("attempts")].concat();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    cluster.shut_down()
}

#[test]
fn a_worker_that_finds_its_disk_full_waits_for_room() -> Result<()> {
    if !is_root_or_skip("a_worker_that_finds_its_disk_full_waits_for_room") {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let disk = disk_of(&cluster, "small")?;
    let small = cluster.join(WorkerOptions::named("small"))?;
    cluster.kill_agent(small)?;
    disk.fill()?;
    cluster.spawn_agent(small)?;
    let run = cluster.submit(&["--", "true"]);
    said_to_be_full(&cluster)?;
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "pending");
    disk.empty()?;
    cluster.wait_for_state(&run, "succeeded")?;
    cluster.shut_down()
}

#[test]
fn a_worker_on_a_read_only_disk_says_so_and_may_be_started_again() -> Result<()> {
    if !is_root_or_skip("a_worker_on_a_read_only_disk_says_so_and_may_be_started_again") {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let disk = disk_of(&cluster, "small")?;
    let small = cluster.join(WorkerOptions::named("small"))?;
    let run = cluster.submit(&["--", "sleep", "600"]);
    cluster.wait_for_state(&run, "running")?;
    cluster.ask(&["runs", "cancel", &run]);
    cluster.wait_for_state(&run, "cancelled")?;
    cluster.kill_agent(small)?;
    eventually("its launcher to be gone", || {
        let left = cluster.worker(small).launchers();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;

    disk.make_read_only()?;
    cluster.spawn_agent(small)?;
    let ended = cluster.wait_for_agent_end(small)?;
    // Not 24: a service manager is to try again.
    ended.expect_code(1);
    ensure!(ended.stderr.contains("Read-only file system"), "{ended}");
    disk.make_writable()?;
    cluster.start_agent(small)?;
    let next = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&next, "succeeded")?;
    cluster.shut_down()
}

#[test]
fn joining_on_a_full_disk_says_so_and_the_same_line_joins_later() -> Result<()> {
    if !is_root_or_skip("joining_on_a_full_disk_says_so_and_the_same_line_joins_later") {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let disk = disk_of(&cluster, "small")?;
    let line = cluster.join_line("small");
    let small = cluster.add_worker(WorkerOptions::named("small"));
    disk.fill()?;
    let refused = cluster.run_join_line(small, &line, &[])?;
    ensure!(refused.code() != Some(0) && refused.stderr.contains("No space left on device"), "{refused}");
    disk.empty()?;
    cluster.run_join_line(small, &line, &[])?.expect_code(0);
    cluster.start_agent(small)?;
    cluster.shut_down()
}
