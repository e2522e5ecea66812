//! A task that fires every second beside itself is edited and then deleted, with three of its runs alive and at least three
//! waiting: what was admitted keeps its revision; without `--cascade` nothing is deleted; with it what waits is cancelled in the
//! deletion's own transaction, what lives is stopped, and nothing starts afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::{eventually, within};
use serde_json::Value;

use crate::schedules::{apply, every_second_has_its_line, ledger, wait_for_lines};

/// Of the task's jobs, told by themselves: which revision they are, and their process.
fn starts(cluster: &Cluster) -> Vec<String> {
    let text = std::fs::read_to_string(cluster.directory().join("starts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn runs(cluster: &Cluster) -> Vec<Value> {
    cluster.list(&["runs", "list", "--task", "beat", "--limit", "500"])
}

fn count(runs: &[Value], state: &str) -> usize {
    runs.iter().filter(|run| run["state"] == state).count()
}

#[test]
fn a_task_that_fires_every_second_is_edited_and_deleted_with_all_that_it_began() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions { name: "near", slots: 3, machine: None })?;
    let file = cluster.directory().join("starts");
    let job = |which: &str| format!("echo {which} $$ >>{}; exec sleep 300", file.display());
    let trigger = "cron = \"* * * * * *\"\noverlap = \"allow-all\"";
    apply(&cluster, trigger, &job("first"))?;
    eventually("three to run and three to wait", || {
        let runs = runs(&cluster);
        let there = count(&runs, "running") == 3 && count(&runs, "pending") >= 3 && starts(&cluster).len() == 3;
        if there { Ok(()) } else { Err(format!("{:?} {runs:?}", starts(&cluster))) }
    })?;

    // From here on the other revision fires.
    let before = ledger(&cluster).len();
    apply(&cluster, trigger, &job("second"))?;
    wait_for_lines(&cluster, before + 3)?;
    let mut scripts: BTreeMap<bool, usize> = BTreeMap::new();
    for run in runs(&cluster) {
        let detail = cluster.look_at(run["id"].as_str().context("an id")?).map_err(anyhow::Error::msg)?;
        let script = detail["revision"]["command"]["script"].as_str().context("a script")?.to_owned();
        let is_first = script.contains("echo first");
        if run["state"] == "running" {
            ensure!(is_first, "what runs keeps its revision: {detail}");
        }
        *scripts.entry(is_first).or_default() += 1;
    }
    ensure!(scripts.get(&true) >= Some(&6) && scripts.get(&false) >= Some(&1), "{scripts:?}");

    let refused = cluster.cli(&["task", "delete", "beat"])?;
    refused.expect_code(10);
    ensure!(refused.stderr.contains("have not ended") && refused.stderr.contains("--cascade"), "{refused}");
    ensure!(count(&runs(&cluster), "running") == 3, "nothing happened");

    cluster.ask(&["task", "delete", "beat", "--cascade"]);
    let after = runs(&cluster);
    assert_eq!(count(&after, "pending"), 0, "what waited ended with it: {after:#?}");
    let lines = ledger(&cluster);
    every_second_has_its_line(&lines)?;
    within(Duration::from_secs(15), "what lived to be stopped", || {
        let runs = runs(&cluster);
        if count(&runs, "cancelled") == runs.len() { Ok(()) } else { Err(format!("{runs:?}")) }
    })?;

    // Another task passes through the same worker: by then nothing of the deleted one has started.
    for _ in 0..3 {
        let free = cluster.submit(&["--", "true"]);
        cluster.wait_for_state(&free, "succeeded")?;
    }
    let started = starts(&cluster);
    assert_eq!(started.len(), 3, "three slots were all it ever had: {started:?}");
    for start in &started {
        let (which, pid) = start.split_once(' ').context("a whole line")?;
        assert_eq!(which, "first");
        ensure!(!std::path::Path::new("/proc").join(pid).exists(), "{pid} lives");
    }
    assert_eq!((runs(&cluster).len(), ledger(&cluster).len()), (after.len(), lines.len()), "nothing fires any more");
    cluster.shut_down()
}
