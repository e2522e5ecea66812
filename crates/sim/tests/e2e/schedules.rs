//! Schedules with real processes: every fire time has its line, whatever stops in between.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use serde_json::Value;

/// Applies the task `beat` with this trigger and command.
pub(crate) fn apply(cluster: &Cluster, trigger: &str, command: &str) -> Result<()> {
    let file = cluster.directory().join("beat.toml");
    std::fs::write(&file, format!("name = 'beat'\n[command]\nscript = '{command}'\n[[trigger]]\n{trigger}\n"))?;
    cluster.ask(&["task", "apply", "-f", Path::to_str(&file).context("a path of text")?]);
    Ok(())
}

/// The ledger of `beat`, the oldest first.
pub(crate) fn ledger(cluster: &Cluster) -> Vec<Value> {
    ledger_of(cluster, "beat")
}

/// The ledger of a task, the oldest first.
pub(crate) fn ledger_of(cluster: &Cluster, task: &str) -> Vec<Value> {
    let mut lines = cluster.list(&["schedule", "ledger", task, "--limit", "5000"]);
    lines.reverse();
    lines
}

/// Waits until the ledger has so many lines.
pub(crate) fn wait_for_lines(cluster: &Cluster, least: usize) -> Result<()> {
    eventually("lines of the ledger", || {
        let lines = ledger(cluster);
        if lines.len() >= least { Ok(()) } else { Err(format!("{lines:?}")) }
    })
}

fn text<'v>(line: &'v Value, key: &str) -> &'v str {
    line[key].as_str().unwrap_or_default()
}

/// Every second from the first to the last has exactly one line; those that fired have a run each, which no other has. Answers
/// the runs.
pub(crate) fn every_second_has_its_line(lines: &[Value]) -> Result<BTreeSet<String>> {
    let seconds: Vec<i64> = lines.iter().map(|line| second(text(line, "at"))).collect::<Result<_>>()?;
    for pair in seconds.windows(2) {
        // A day ends, too.
        ensure!((pair[1] - pair[0]).rem_euclid(86_400) == 1, "from {} to {}: {lines:#?}", pair[0], pair[1]);
    }
    let fired: Vec<&Value> = lines.iter().filter(|line| line["run_id"].is_string()).collect();
    let runs: BTreeSet<String> = fired.iter().map(|line| text(line, "run_id").to_owned()).collect();
    ensure!(runs.len() == fired.len(), "a run of two fire times: {lines:#?}");
    Ok(runs)
}

/// Of `2027-01-31T03:00:07Z`, the seconds within its day.
fn second(at: &str) -> Result<i64> {
    let clock = at.split('T').nth(1).with_context(|| format!("no time: {at}"))?.trim_end_matches('Z');
    let parts: Vec<i64> = clock.split(':').map(str::parse::<i64>).collect::<Result<_, _>>()?;
    Ok(parts.iter().fold(0, |seconds, part| seconds * 60 + part))
}

#[test]
fn a_schedule_fires_every_second_across_a_killed_control_plane_until_it_is_paused() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions { name: "near", slots: 8, machine: None })?;
    apply(
        &cluster,
        "cron = '* * * * * *'\noverlap = 'allow-all'\ncatchup = 'all'",
        "echo $LEASEHOLD_TASK ${LEASEHOLD_SCHEDULED_AT-}",
    )?;
    let next = cluster.list(&["schedule", "next", "beat", "--count", "3"]);
    ensure!(next.len() == 3 && next[0]["trigger"] == "cron", "{next:?}");
    wait_for_lines(&cluster, 2)?;
    cluster.kill_control()?;
    cluster.start_control()?;
    let before = ledger(&cluster).len();
    wait_for_lines(&cluster, before + 2)?;
    assert!(cluster.ask(&["task", "pause", "beat", "--reason", "enough"]).contains("is paused"));
    let lines = ledger(&cluster);
    let runs = every_second_has_its_line(&lines)?;
    assert_eq!(runs.len(), lines.len(), "nothing stood in the way: {lines:#?}");
    for run in &runs {
        cluster.wait_for_state(run, "succeeded")?;
    }
    let listed = cluster.list(&["runs", "list", "--task", "beat", "--limit", "64"]);
    assert_eq!(listed.len(), runs.len(), "no run but those of the ledger");
    let times =
        |of: &[Value], key: &str| -> BTreeSet<String> { of.iter().map(|one| text(one, key).to_owned()).collect() };
    assert_eq!(times(&listed, "scheduled_at"), times(&lines, "at"));
    for run in &listed {
        let told = cluster.log(text(run, "id"));
        assert_eq!(told.trim_end(), format!("beat {}", text(run, "scheduled_at")), "its process is told");
    }

    // A run by hand starts still, and the pause ends with one line for the seconds that passed.
    let next = || cluster.list(&["schedule", "next", "beat", "--count", "1"])[0]["at"].clone();
    let first = next();
    eventually("a second to pass", || if next() == first { Err(first.to_string()) } else { Ok(()) })?;
    let lines = ledger(&cluster);
    assert_eq!(cluster.cli(&["schedule", "trigger", "beat"])?.expect_code(0).answer(), "beat");
    let by_hand = &cluster.list(&["runs", "list", "--task", "beat", "--limit", "1"])[0];
    assert_eq!((&by_hand["scheduled_at"], ledger(&cluster)), (&Value::Null, lines), "it stands for no fire time");
    assert!(cluster.ask(&["task", "resume", "beat"]).contains("goes on"));
    cluster.ask(&["task", "delete", "beat", "--cascade"]);
    let lines = ledger(&cluster);
    let gap = lines.iter().find(|line| line["happened"] == "missed").context("no line for the pause")?;
    assert_eq!(gap["why"], "paused");
    cluster.shut_down()
}
