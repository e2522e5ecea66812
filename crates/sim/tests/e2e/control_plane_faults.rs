//! The control plane killed, or its disk full: what it said stays true, and it comes back by itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::database::contradictions;
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::is_root_or_skip;
use leasehold_sim::request;
use leasehold_sim::seed::Seed;
use leasehold_sim::small_disk::SmallDisk;
use rustix::process::Signal;

fn readiness(cluster: &Cluster) -> Result<u16> {
    Ok(request::get(&cluster.api(), "/readyz", None)?.status)
}

fn becomes(cluster: &Cluster, status: u16) -> Result<()> {
    eventually(&format!("/readyz to say {status}"), || match readiness(cluster) {
        Ok(now) if now == status => Ok(()),
        now => Err(format!("{now:?}")),
    })
}

#[test]
fn a_full_disk_is_said_and_is_over_when_there_is_room_again() -> Result<()> {
    if !is_root_or_skip("a_full_disk_is_said_and_is_over_when_there_is_room_again") {
        return Ok(());
    }
    let mut cluster = Cluster::prepare()?;
    let disk = SmallDisk::mount(&cluster.data(), 8)?;
    cluster.start_control()?;
    cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.1; done; echo through", gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;
    assert_eq!(readiness(&cluster)?, 200);

    disk.fill()?;
    becomes(&cluster, 503)?;
    assert_eq!(request::get(&cluster.api(), "/healthz", None)?.status, 200, "it lives, and can still be read");
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "running");

    disk.empty()?;
    becomes(&cluster, 200)?;
    std::fs::write(&gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(cluster.log(&run), "through");
    cluster.shut_down()?;
    drop(disk);
    Ok(())
}

#[test]
fn a_control_plane_that_is_killed_at_any_moment_forgets_nothing_it_has_said() -> Result<()> {
    let mut seed = Seed::announced("a_control_plane_that_is_killed_at_any_moment_forgets_nothing_it_has_said");
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let mut said = BTreeSet::new();
    for round in 0..8 {
        let over = AtomicBool::new(false);
        let patience = Duration::from_millis(seed.below(600));
        let (admitted, killed) = std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..2).map(|_| scope.spawn(|| submit_until(&cluster, &over))).collect();
            pause(patience);
            let killed = cluster.signal_control(Signal::KILL);
            over.store(true, Ordering::Relaxed);
            let admitted: Vec<_> = submitters.into_iter().map(|one| one.join().expect("no submitter panics")).collect();
            (admitted, killed)
        });
        killed?;
        cluster.kill_control()?;
        said.extend(admitted.into_iter().flatten());
        assert_eq!(contradictions(&cluster.data())?, Vec::<String>::new(), "round {round}");
        cluster.start_control()?;
        for run in &said {
            cluster.json(&["runs", "get", run]);
        }
    }
    assert!(!said.is_empty(), "something was submitted");
    for run in &said {
        cluster.wait_for_state(run, "succeeded")?;
    }
    cluster.shut_down()
}

/// Lets the others work for a while.
#[expect(clippy::disallowed_methods, reason = "a random moment is what is tested; no fact is waited for")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Submits one run after another; answers those whose admission was said.
fn submit_until(cluster: &Cluster, over: &AtomicBool) -> Vec<String> {
    let mut said = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let ended = cluster.cli(&["run", "--detach", "-q", "--", "true"]).expect("leasehold can be started");
        if ended.code() == Some(0) {
            said.push(ended.answer().to_owned());
        }
    }
    said
}
