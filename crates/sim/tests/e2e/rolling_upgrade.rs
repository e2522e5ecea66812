//! From the release before to this build, in place and under work: first the control plane, then the workers one by one.
//! Nothing is lost and nothing doubled.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use leasehold_sim::binaries;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::seed::Seed;
use rustix::process::Signal;

use crate::cases::{session, wait_for_another_session};
use crate::live_jobs::LiveJobs;
use crate::marks::Marks;
use crate::upgraded::Upgraded;

/// How an agent comes to run the binary that has taken the place of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Takes {
    /// SIGUSR1, and its service manager starts it again.
    Restart,
    /// SIGHUP: it executes what is there now.
    Exec,
}

/// A worker of the release before, with a file of its own; its agent runs.
pub(crate) fn join_previous(cluster: &mut Cluster, name: &str) -> Result<(usize, Upgraded)> {
    let line = cluster.join_line(name);
    let worker = cluster.add_worker(WorkerOptions { name, slots: 4, machine: None });
    let upgraded = Upgraded::new(cluster, worker, binaries::previous_leasehold_worker())?;
    cluster.run_join_line(worker, &line, &[])?.expect_code(0);
    cluster.start_agent(worker)?;
    Ok((worker, upgraded))
}

/// Puts this build's binary in the place of the worker's, and waits until it has a session; its jobs stay.
pub(crate) fn upgrade(cluster: &mut Cluster, worker: usize, upgraded: &Upgraded, how: Takes) -> Result<()> {
    let (before, software) = (session(cluster, worker), software(cluster, worker));
    upgraded.replace(binaries::leasehold_worker())?;
    match how {
        Takes::Restart => {
            cluster.signal_agent(worker, Signal::USR1)?;
            cluster.wait_for_agent_end(worker)?.expect_code(0);
            cluster.spawn_agent(worker)?;
        }
        Takes::Exec => cluster.signal_agent(worker, Signal::HUP)?,
    }
    wait_for_another_session(cluster, worker, &before).with_context(|| format!("{how:?}"))?;
    assert_ne!(self::software(cluster, worker), software, "{how:?}");
    Ok(())
}

/// The version that a worker's agent says it is of.
fn software(cluster: &Cluster, worker: usize) -> String {
    let told = cluster.json(&["worker", "get", &cluster.worker(worker).name]);
    told["software"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn everything_is_upgraded_in_place_under_jobs() -> Result<()> {
    let mut seed = Seed::announced("everything_is_upgraded_in_place_under_jobs");
    let mut cluster = Cluster::prepare()?;
    cluster.control_program(binaries::previous_leasehold());
    cluster.start_control()?;
    let (near, near_file) = join_previous(&mut cluster, "near")?;
    let (far, far_file) = join_previous(&mut cluster, "far")?;
    // Not the order that is written down, and it works while both speak the same version of the protocol.
    let early = cluster.join(WorkerOptions { name: "early", slots: 4, machine: None })?;
    assert_ne!(software(&cluster, near), software(&cluster, early));

    let live = LiveJobs::start(&cluster, 9, &mut seed)?;
    let marks = Marks::new(&cluster, &mut seed);
    let mut runs: BTreeSet<String> = marks.submit(&cluster, 40, &mut seed);
    cluster.stop_control()?;
    cluster.control_program(binaries::leasehold());
    cluster.start_control()?;
    runs.extend(marks.submit(&cluster, 40, &mut seed));
    for run in &runs {
        cluster.wait_for_state(run, "succeeded")?;
    }
    live.check_one_start_each()?;

    for (worker, file, how) in [(near, near_file, Takes::Restart), (far, far_file, Takes::Exec)] {
        runs.extend(marks.submit(&cluster, 30, &mut seed));
        upgrade(&mut cluster, worker, &file, how)?;
        runs.extend(marks.submit(&cluster, 30, &mut seed));
        live.check_one_start_each()?;
    }
    for run in &runs {
        cluster.wait_for_state(run, "succeeded")?;
    }
    assert_eq!(runs.len(), 200);
    marks.check_one_whole_life_of_each(&runs)?;
    live.end_whole(&cluster)?;
    cluster.shut_down()
}
