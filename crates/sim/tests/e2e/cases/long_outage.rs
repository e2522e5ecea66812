//! Twenty-five hours down, every minute: under `none`, `latest` and `all` (at most ten) the control plane that comes back makes
//! 0, 1 and 10 runs, each with its own time and once; the rest is one line of the ledger, and the next minute fires as ever.
//!
//! The hours pass on the wall clocks of control plane and worker, which are stepped while the control plane is down.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::wall_clock::WallClock;
use leasehold_wire::api::time::Time;
use serde_json::Value;

use crate::schedules::ledger_of;

const HOURS: i64 = 25 * 60 * 60;
const MINUTE: i64 = 60_000;
/// The policies, and how many runs each makes of the gap.
const POLICIES: [(&str, usize); 3] = [("none", 0), ("latest", 1), ("all", 10)];

fn millis(time: &Value) -> Result<i64> {
    let time: Time = time.as_str().context("a time")?.parse()?;
    Ok(time.0.get())
}

fn happened<'v>(lines: &'v [Value], what: &str) -> Vec<&'v Value> {
    lines.iter().filter(|line| line["happened"] == what).collect()
}

#[test]
fn a_day_that_was_missed_is_caught_up_as_far_as_each_policy_says() -> Result<()> {
    let mut cluster = Cluster::prepare()?;
    let clock = WallClock::new(cluster.directory().join("offset"))?;
    cluster.control_variables(clock.variables());
    cluster.start_control()?;
    let near = cluster.enroll(WorkerOptions { name: "near", slots: 8, machine: None })?;
    for (name, value) in clock.variables() {
        cluster.worker_variable(near, &name, &value);
    }
    cluster.start_agent(near)?;
    for (policy, _) in POLICIES {
        let file = cluster.directory().join(format!("{policy}.toml"));
        let text = format!(
            "name = '{policy}'\n[command]\nargv = ['true']\n[[trigger]]\ncron = '* * * * *'\n\
             overlap = 'allow-all'\ncatchup = '{policy}'\ncatchup_max = 10\n"
        );
        std::fs::write(&file, text)?;
        cluster.ask(&["task", "apply", "-f", file.to_str().context("a path of text")?]);
    }
    cluster.stop_control()?;
    clock.step(HOURS)?;
    cluster.start_control()?;

    for (policy, owed) in POLICIES {
        let lines = eventually(&format!("what is owed under {policy}"), || {
            let lines = ledger_of(&cluster, policy);
            let settled = happened(&lines, "missed").len() == 1 && happened(&lines, "caught_up").len() == owed;
            if settled { Ok(lines) } else { Err(format!("{lines:?}")) }
        })?;
        let gap = happened(&lines, "missed")[0].clone();
        let (first, last) = (millis(&gap["at"])?, millis(&gap["last_at"])?);
        let instants = (last - first) / MINUTE + 1;
        assert_eq!((gap["instants"].as_i64(), gap["why"].as_str()), (Some(instants), Some("down")), "{gap}");
        // A minute may have passed on the way.
        let missed = instants + i64::try_from(owed)?;
        ensure!((1499..=1501).contains(&missed), "{policy}: {missed} instants in 25 hours: {lines:#?}");
        // What is caught up is the newest, minute by minute, and all of it is there at once.
        let caught_up = happened(&lines, "caught_up");
        for (place, line) in caught_up.iter().enumerate() {
            assert_eq!(millis(&line["at"])?, last + (i64::try_from(place)? + 1) * MINUTE, "{lines:#?}");
            let after = millis(&line["written_at"])? - millis(&gap["written_at"])?;
            ensure!(after < 1000, "{policy}: {after} ms after the gap: {lines:#?}");
        }
    }

    // The next minute, for all three.
    let before = POLICIES.map(|(policy, _)| happened(&ledger_of(&cluster, policy), "fired").len());
    // By less than a minute: what is later than that is a gap again.
    clock.step(HOURS + 45)?;
    for ((policy, owed), before) in POLICIES.into_iter().zip(before) {
        eventually(&format!("the next minute of {policy}"), || {
            let lines = ledger_of(&cluster, policy);
            if happened(&lines, "fired").len() > before { Ok(()) } else { Err(format!("{lines:?}")) }
        })?;
        cluster.ask(&["task", "pause", policy]);
        // Exactly one run for each line that says so, with the line's time.
        let lines = ledger_of(&cluster, policy);
        let times: BTreeSet<String> = lines.iter().map(|line| line["at"].to_string()).collect();
        assert_eq!(times.len(), lines.len(), "one line for an instant: {lines:#?}");
        let runs: Vec<&Value> = lines.iter().filter(|line| line["run_id"].is_string()).collect();
        let listed = cluster.list(&["runs", "list", "--task", policy, "--limit", "64"]);
        assert_eq!((listed.len(), happened(&lines, "caught_up").len()), (runs.len(), owed), "{lines:#?}");
        for line in runs {
            let run = line["run_id"].as_str().context("a run")?;
            let ended = cluster.wait_for_state(run, "succeeded")?;
            assert_eq!(ended["scheduled_at"], line["at"], "{policy}");
        }
    }
    cluster.shut_down()
}
