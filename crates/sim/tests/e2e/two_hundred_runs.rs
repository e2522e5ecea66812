//! Two hundred runs on one worker with four slots: each starts once, each succeeds, and nothing of them stays.

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::processes;

const RUNS: usize = 200;

#[test]
fn two_hundred_runs_start_once_each_and_leave_nothing() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let worker = cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    let starts = cluster.directory().join("starts");
    let script = format!("echo $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}; exec /bin/true", starts.display());

    let runs: BTreeSet<String> = (0..RUNS).map(|_| cluster.submit(&["--", "sh", "-c", &script])).collect();
    assert_eq!(runs.len(), RUNS, "every run has an id of its own");
    for run in &runs {
        cluster.cli(&["runs", "watch", run, "--exit-status"])?.expect_code(0);
    }

    let succeeded: BTreeSet<String> = cluster.runs_in_state("succeeded").into_iter().collect();
    assert_eq!(succeeded, runs);
    let started = std::fs::read_to_string(&starts)?;
    let counted: Vec<&str> = started.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(counted.len(), RUNS, "process starts, counted by the processes themselves");
    assert_eq!(counted.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), runs);

    for folder in ["inbox", "attempts"] {
        eventually(&format!("an empty {folder}"), || {
            let files = cluster.worker(worker).files_in(folder);
            if files.is_empty() { Ok(()) } else { Err(format!("{files:?}")) }
        })?;
    }
    for state in ["pending", "dispatching", "running", "retry_wait", "lost"] {
        assert_eq!(cluster.runs_in_state(state), Vec::<String>::new(), "{state}");
    }
    eventually("the agent to be the only process of the worker", || {
        let found = processes::naming(cluster.worker(worker).state());
        let agent = cluster.worker(worker).agent_pid();
        if found.iter().all(|process| process.pid == agent) { Ok(()) } else { Err(format!("{found:?}")) }
    })?;
    cluster.shut_down()
}
