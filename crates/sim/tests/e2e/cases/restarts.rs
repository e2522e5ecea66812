//! Restarts: by SIGUSR1, by SIGKILL, by SIGHUP, by a replaced binary. One start, its own exit code, its log without a hole;
//! and a cancel afterwards leaves nothing alive two seconds after the grace.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::{eventually, within};
use leasehold_sim::seed::Seed;
use leasehold_sim::{binaries, processes};
use rustix::process::Signal;

use super::{session, wait_for_another_session};
use crate::live_jobs::{LiveJobs, log_of};
use crate::upgraded::Upgraded;

/// How the agent is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    LeaveRunning,
    Kill,
    Hangup,
    Replace,
}

const KINDS: [Restart; 4] = [Restart::LeaveRunning, Restart::Kill, Restart::Hangup, Restart::Replace];

/// Restarts the agent and waits until its next session is there.
fn restart(cluster: &mut Cluster, worker: usize, how: Restart, upgraded: &Upgraded) -> Result<()> {
    let before = session(cluster, worker);
    match how {
        Restart::Hangup => cluster.signal_agent(worker, Signal::HUP)?,
        Restart::Kill => {
            cluster.kill_agent(worker)?;
            cluster.spawn_agent(worker)?;
        }
        Restart::LeaveRunning | Restart::Replace => {
            if how == Restart::Replace {
                upgraded.replace(binaries::leasehold_worker())?;
            }
            cluster.signal_agent(worker, Signal::USR1)?;
            cluster.wait_for_agent_end(worker)?.expect_code(0);
            cluster.spawn_agent(worker)?;
        }
    }
    wait_for_another_session(cluster, worker, &before).with_context(|| format!("{how:?}"))
}

#[test]
fn eight_jobs_outlive_twenty_restarts() -> Result<()> {
    let mut seed = Seed::announced("eight_jobs_outlive_twenty_restarts");
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions { name: "near", slots: 8, machine: None })?;
    let upgraded = Upgraded::new(&mut cluster, near, binaries::leasehold_worker())?;
    cluster.start_agent(near)?;
    let live = LiveJobs::start(&cluster, 8, &mut seed)?;
    for round in 0..20 {
        // Every way, and otherwise as it comes.
        let how = KINDS[if round < 4 { round } else { usize::try_from(seed.below(4))? }];
        restart(&mut cluster, near, how, &upgraded)?;
        live.check_one_start_each().with_context(|| format!("in round {round}"))?;
    }
    live.end_whole(&cluster)?;
    cluster.shut_down()
}

fn lines(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[test]
fn after_restarts_a_cancel_leaves_nothing_and_the_log_has_no_hole() -> Result<()> {
    const GRACE: Duration = Duration::from_secs(1);

    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let upgraded = Upgraded::new(&mut cluster, near, binaries::leasehold_worker())?;
    cluster.start_agent(near)?;
    let (starts, beats) = (cluster.directory().join("starts"), cluster.directory().join("beats"));
    // Deaf to SIGTERM, and so is a child that left its group.
    let script = format!(
        "trap '' TERM; echo $$ >>{}; setsid sleep 600 & n=0; while :; do n=$((n+1)); echo $n | tee -a {}; sleep 0.05; done",
        starts.display(),
        beats.display(),
    );
    let run = cluster.submit(&["--grace", "1s", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;
    for how in KINDS {
        let before = lines(&beats);
        restart(&mut cluster, near, how, &upgraded)?;
        eventually("it to live on", || if lines(&beats) > before { Ok(()) } else { Err(before.to_string()) })?;
    }
    assert_eq!(lines(&starts), 1, "one start");
    cluster.ask(&["cancel", &run]);
    let attempts = cluster.worker(near).state().join("attempts");
    let none_left = || {
        let left = processes::naming(&attempts);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    };
    within(GRACE + Duration::from_secs(2), "nothing of it to live", none_left)?;
    cluster.wait_for_state(&run, "cancelled")?;
    eventually("a complete log", || {
        let found = cluster.json(&["runs", "get", &run]);
        if found["attempts"][0]["log"]["state"] == "complete" { Ok(()) } else { Err(found.to_string()) }
    })?;
    let log = String::from_utf8(log_of(&cluster, &run)?)?;
    for (place, line) in log.lines().enumerate() {
        ensure!(line == (place + 1).to_string(), "line {} of the log is `{line}`", place + 1);
    }
    // Killed between the two writes, the last line may be in one of them only.
    assert!(log.lines().count().abs_diff(lines(&beats)) <= 1);
    cluster.shut_down()
}
