//! A skip that seems never to end: the worker of a long run is destroyed while every instant is skipped for it. Each skipped
//! instant names that run; once it is lost the next instant fires, and with `mutex` once a person has resolved it.
//!
//! Scaled: every second instead of every five, and the shortest lease (25 s). The worker is destroyed by killing its agent
//! and its launchers, which takes their jobs along; it never comes back.

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::schedules::{every_second_has_its_line, ledger_of};

/// The two tasks: they differ in `mutex` alone.
const TASKS: [&str; 2] = ["plain", "mutex"];

/// The runs that the two tasks began with.
pub(crate) struct Destroyed {
    first: [String; 2],
}

/// Both tasks run on a worker, which is destroyed.
pub(crate) fn destroy_a_worker(cluster: &mut Cluster) -> Result<Destroyed> {
    let gone = cluster.join(WorkerOptions::named("gone"))?;
    for task in TASKS {
        let file = cluster.directory().join(format!("{task}.toml"));
        let text = format!(
            "name = '{task}'\n[command]\nargv = ['sleep', '600']\n[limits]\nlease = '25s'\nmutex = {}\n\
             [[trigger]]\ncron = '* * * * * *'\noverlap = 'skip'\n",
            task == "mutex"
        );
        std::fs::write(&file, text)?;
        cluster.ask(&["task", "apply", "-f", file.to_str().context("a path of text")?]);
    }
    let mut first = [String::new(), String::new()];
    for (task, first) in TASKS.into_iter().zip(&mut first) {
        *first =
            eventually("a first run", || runs_of(&ledger_of(cluster, task)).first().cloned().ok_or_else(String::new))?;
        cluster.wait_for_state(first, "running")?;
    }
    let launchers = cluster.worker(gone).launchers();
    ensure!(launchers.len() == 2, "{launchers:?}");
    cluster.kill_agent(gone)?;
    for launcher in launchers {
        let pid = i32::try_from(launcher).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, Signal::KILL)?;
    }
    Ok(Destroyed { first })
}

impl Destroyed {
    /// Both runs are lost; the plain task fires again, the other when its run is resolved.
    pub(crate) fn fires_again(&self, cluster: &Cluster) -> Result<()> {
        let [plain, mutex] = &self.first;
        for run in &self.first {
            cluster.wait_for_state(run, "lost")?;
        }
        let next = self.second_run(cluster, "plain")?;
        let since = at_of(&ledger_of(cluster, "plain"), &next)?;
        // It fired seconds ago, and the other is skipped still.
        eventually("the other to be skipped beyond that", || {
            let lines = ledger_of(cluster, "mutex");
            let last = lines.last().map(|line| line["at"].to_string()).unwrap_or_default();
            if last > since { Ok(()) } else { Err(last) }
        })?;
        let lines = ledger_of(cluster, "mutex");
        assert_eq!(runs_of(&lines), std::slice::from_ref(mutex), "{lines:#?}");
        cluster.ask(&["runs", "resolve", mutex, "mark-failed", "--reason", "its machine is gone"]);
        let after = self.second_run(cluster, "mutex")?;
        for (task, first, second) in [("plain", plain, &next), ("mutex", mutex, &after)] {
            cluster.ask(&["task", "pause", task]);
            let lines = ledger_of(cluster, task);
            let runs = every_second_has_its_line(&lines)?;
            assert_eq!(runs.len(), 2, "{lines:#?}");
            let mut in_the_way = first;
            for line in &lines {
                if line["run_id"] == second.as_str() {
                    in_the_way = second;
                }
                let told = (line["happened"].as_str(), line["by_run_id"].as_str());
                let fired = line["run_id"].is_string();
                let expected = if fired { (Some("fired"), None) } else { (Some("skipped"), Some(in_the_way.as_str())) };
                assert_eq!(told, expected, "{line}");
            }
            assert_eq!(cluster.json(&["runs", "get", second])["state"], "pending", "no worker is left");
        }
        Ok(())
    }

    fn second_run(&self, cluster: &Cluster, task: &str) -> Result<String> {
        eventually(&format!("the next instant of {task} to fire"), || {
            let lines = ledger_of(cluster, task);
            let second = runs_of(&lines).into_iter().find(|run| !self.first.contains(run));
            second.ok_or_else(|| lines.last().map(ToString::to_string).unwrap_or_default())
        })
    }
}

/// The runs that the lines admitted, in their order.
fn runs_of(lines: &[Value]) -> Vec<String> {
    lines.iter().filter_map(|line| line["run_id"].as_str().map(str::to_owned)).collect()
}

/// The nominal time of a run; times of one form sort as texts.
fn at_of(lines: &[Value], run: &str) -> Result<String> {
    let line = lines.iter().find(|line| line["run_id"] == run).context("a line of the run")?;
    Ok(line["at"].to_string())
}

#[test]
fn what_is_skipped_for_a_destroyed_worker_names_its_run_and_fires_once_nothing_can_live() -> Result<()> {
    let mut cluster = Cluster::prepare()?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    destroy_a_worker(&mut cluster)?.fires_again(&cluster)?;
    cluster.shut_down()
}
