//! One run for one fire time, with replicas that are killed while they fire.

use anyhow::{Result, ensure};
use leasehold_sim::cluster::WorkerOptions;
use leasehold_sim::replicas::Replicas;

use crate::cases::skip_that_never_ends::destroy_a_worker;
use crate::schedules::{apply, every_second_has_its_line, ledger, wait_for_lines};

#[test]
fn replicas_that_are_killed_fire_every_second_once() -> Result<()> {
    if !Replicas::are_possible_or_skip("replicas_that_are_killed_fire_every_second_once") {
        return Ok(());
    }
    skip_while_replicas_are_killed(45, "1.5", 3, 2)
}

/// A task of 5 s, every second, and a replica killed every 20 s for 3 minutes.
#[test]
#[ignore = "four minutes: `cargo xtask skips`, after a change of schedules, of overlap or of replicas"]
fn replicas_that_are_killed_for_minutes_fire_every_second_once() -> Result<()> {
    if !Replicas::are_possible_or_skip("replicas_that_are_killed_for_minutes_fire_every_second_once") {
        return Ok(());
    }
    skip_while_replicas_are_killed(46, "5", 9, 20)
}

/// A skip that seems never to end, while replicas are killed: before the run is lost, and before it is resolved.
#[test]
fn a_skip_for_a_destroyed_worker_ends_on_replicas_that_are_killed() -> Result<()> {
    if !Replicas::are_possible_or_skip("a_skip_for_a_destroyed_worker_ends_on_replicas_that_are_killed") {
        return Ok(());
    }
    let mut replicas = Replicas::start(47, &["--heartbeat", "5s"])?;
    let destroyed = destroy_a_worker(&mut replicas.cluster)?;
    replicas.kill(0)?;
    replicas.kill(1)?;
    destroyed.fires_again(&replicas.cluster)?;
    replicas.shut_down()
}

/// Every second, `skip`, a job of `takes` seconds on either of two workers; after so many `instants` a replica is killed, this
/// many `times`.
fn skip_while_replicas_are_killed(machine: u8, takes: &str, times: usize, instants: usize) -> Result<()> {
    let mut replicas = Replicas::start(machine, &[])?;
    for name in ["near", "far"] {
        replicas.cluster.join(WorkerOptions { name, slots: 2, machine: None })?;
    }
    let marks = replicas.cluster.directory().join("marks");
    let job = format!("echo start >>{0}; sleep {takes}; echo end >>{0}", marks.display());
    apply(&replicas.cluster, "cron = '* * * * * *'\noverlap = 'skip'", &job)?;
    for round in 0..times {
        let before = ledger(&replicas.cluster).len();
        wait_for_lines(&replicas.cluster, before + 1)?;
        replicas.kill(round % 3)?;
        wait_for_lines(&replicas.cluster, before + 1 + instants)?;
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
    let listed = replicas.cluster.list(&["runs", "list", "--task", "beat", "--limit", "500"]);
    assert_eq!(listed.len(), runs.len(), "no run but those of the ledger");
    // Never two at once, by the word of the jobs themselves, and each of them once.
    let marks = std::fs::read_to_string(&marks)?;
    for (place, mark) in marks.lines().enumerate() {
        ensure!(mark == if place % 2 == 0 { "start" } else { "end" }, "one at a time: {marks}");
    }
    assert_eq!(marks.lines().count(), 2 * runs.len(), "one start for each run: {marks}");
    replicas.shut_down()
}
