//! A worker's place for control groups: there while it runs, gone when it has left.

use anyhow::{Context, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::control_groups::homes;
use leasehold_sim::eventually::eventually;

#[test]
fn a_worker_that_leaves_takes_its_place_for_control_groups_with_it() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let state = cluster.worker(near).state().to_owned();
    let [home] = homes("near", &state).try_into().unwrap_or_else(|_| {
        eprintln!("skipped: no control groups can be made here");
        [std::path::PathBuf::new()]
    });
    if home.as_os_str().is_empty() {
        return cluster.shut_down();
    }

    // A daemon that its job keeps on purpose: its group outlives the attempt, and is empty when it has ended.
    let (gate, spec) = (cluster.directory().join("gate"), cluster.directory().join("kept.toml"));
    let daemon = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let script = format!("setsid sh -c '{daemon}' </dev/null >/dev/null 2>&1 & exit 0");
    std::fs::write(&spec, format!("[command]\nscript = \"\"\"{script}\"\"\"\n[limits]\nkeep_descendants = true\n"))?;
    cluster.cli(&["run", "--spec", spec.to_str().context("a path")?])?.expect_code(0);
    eventually("the attempt's directory to go", || {
        let left = cluster.worker(near).files_in("attempts");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    let groups = || std::fs::read_dir(&home).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let group = groups().next().context("the daemon's group")?.path();
    std::fs::write(&gate, "")?;
    eventually("the daemon to end", || {
        let procs = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        if procs.is_empty() { Ok(()) } else { Err(procs) }
    })?;
    cluster.stop_agent(near)?.expect_code(0);
    ensure!(homes("near", &state).is_empty(), "{} is left", home.display());
    cluster.shut_down()
}
