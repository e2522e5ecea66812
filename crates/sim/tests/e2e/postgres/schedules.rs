//! One run for one fire time, with replicas that are killed while they fire.

use anyhow::Result;
use leasehold_sim::cluster::WorkerOptions;
use leasehold_sim::replicas::Replicas;

use crate::schedules::{apply, every_second_has_its_line, ledger, wait_for_lines};

#[test]
fn replicas_that_are_killed_fire_every_second_once() -> Result<()> {
    if !Replicas::are_possible_or_skip("replicas_that_are_killed_fire_every_second_once") {
        return Ok(());
    }
    let mut replicas = Replicas::start(45, &[])?;
    replicas.cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    apply(&replicas.cluster, "cron = '* * * * * *'\noverlap = 'skip'", "sleep 1.5")?;
    for which in 0..3 {
        let before = ledger(&replicas.cluster).len();
        wait_for_lines(&replicas.cluster, before + 1)?;
        replicas.kill(which)?;
        wait_for_lines(&replicas.cluster, before + 3)?;
    }
    replicas.cluster.ask(&["schedule", "pause", "beat"]);
    let lines = ledger(&replicas.cluster);
    let runs = every_second_has_its_line(&lines)?;
    for line in lines.iter().filter(|line| line["run_id"].is_null()) {
        assert_eq!(line["happened"], "skipped", "{line}");
        assert!(line["by_run_id"].as_str().is_some_and(|run| runs.contains(run)), "{line}");
    }
    for run in &runs {
        replicas.cluster.wait_for_state(run, "succeeded")?;
    }
    let listed = replicas.cluster.list(&["runs", "list", "--task", "beat", "--limit", "64"]);
    assert_eq!(listed.len(), runs.len(), "no run but those of the ledger");
    replicas.shut_down()
}
