//! One worker that meets one fault: it is started, given work, struck, started again where it died, and watched until
//! nothing is left.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use leasehold_sim::cluster::{Cluster, Worker};
use leasehold_sim::eventually::eventually;
use leasehold_sim::request;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::scenario::{Recipe, Scenario};
use super::verdict::{is_over, judge};

/// Runs of one scenario; one where the passes are counted.
const RUNS: usize = 2;

/// What a scenario writes and reads.
pub(super) struct Life<'a> {
    cluster: &'a Cluster,
    worker: &'a mut Worker,
    scenario: &'a Scenario,
    folder: PathBuf,
    runs: Vec<String>,
    /// The agent ended although nobody killed it; its own word.
    gave_up: Vec<String>,
    /// The agent was killed with the launcher, where that is asked for.
    killed: bool,
}

impl<'a> Life<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        worker: &'a mut Worker,
        scenario: &'a Scenario,
        attempt: usize,
    ) -> Result<Self> {
        let name = scenario.to_string().replace([' ', ','], "_");
        let folder = cluster.directory().join(format!("{}-{name}-{attempt}", worker.name));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { cluster, worker, scenario, folder, runs: Vec::new(), gave_up: Vec::new(), killed: false })
    }

    /// Whether the fault struck; an error says what should not have come of it.
    pub(super) fn live(mut self) -> Result<bool> {
        let lived = self.prepare().and_then(|()| self.meet());
        if self.worker.runs() {
            self.worker.kill()?;
        }
        let struck = lived.map_err(|error| match self.gave_up.as_slice() {
            [] => error,
            words => error.context(format!("the agent had given up: {words:?}")),
        })?;
        for run in &self.runs {
            let said = self.get(run)?;
            if self.scenario.recipe == Recipe::GivenBack {
                ensure!(said["state"] == "cancelled", "given back, cancelled, and now {said}");
            } else {
                judge(self.scenario, &self.marks(), &said).with_context(|| said["attempts"].to_string())?;
            }
        }
        Ok(struck)
    }

    fn marks(&self) -> PathBuf {
        self.folder.join("marks")
    }

    fn has_struck(&self) -> bool {
        let text = std::fs::read_to_string(self.folder.join("struck")).unwrap_or_default();
        text.lines().any(|line| line.starts_with(&format!("{}:", self.scenario.point.name)))
    }

    fn state(&self, name: &str) -> PathBuf {
        self.worker.state().join(name)
    }

    fn prepare(&mut self) -> Result<()> {
        if self.scenario.point.step().starts_with("asks.") && self.state("pending-claims.json").exists() {
            // Asks that an earlier scenario left would be asked with again, and not be written.
            std::fs::remove_file(self.state("pending-claims.json"))?;
        }
        match self.scenario.recipe {
            Recipe::FirstStart => {
                // What a boot's first start finds.
                let place = self.state("place.json");
                if place.exists() {
                    std::fs::remove_file(place)?;
                }
            }
            Recipe::Garbage => {
                let name = match self.scenario.point.step().split_once('.') {
                    Some(("asks", _)) => "pending-claims.json",
                    Some(("orphan", _)) => "attempts/garbage",
                    _ => "inbox/garbage.json",
                };
                // Where it was never started before, the folders are not there.
                private_dir(&self.state("inbox"))?;
                private_dir(&self.state("attempts"))?;
                write_private(&self.state(name), b"{")?;
            }
            Recipe::Undecided => {
                self.worker.start(&[("LEASEHOLD_FAULT", "launcher.spawn.before:kill")])?;
                self.submit(1, None, "");
                eventually("the agent to die before its launch", || {
                    if self.worker.runs() { Err(String::new()) } else { Ok(()) }
                })?;
            }
            Recipe::Resumed => {
                self.worker.start(&[])?;
                self.submit(1, None, &format!("until [ -e {} ]; do sleep 0.05; done", self.gate().display()));
                eventually("the job to run", || {
                    let said = self.get(&self.runs[0]).map_err(|error| format!("{error:#}"))?;
                    if said["state"] == "running" { Ok(()) } else { Err(said.to_string()) }
                })?;
                self.worker.kill()?;
            }
            Recipe::Runs
            | Recipe::GivenBack
            | Recipe::Stopped
            | Recipe::StartedOver
            | Recipe::Joining
            | Recipe::ByHand => {}
        }
        let struck = self.folder.join("struck").display().to_string();
        let detects = self.scenario.point.step().starts_with("runtime.").to_string();
        let faults = [
            ("LEASEHOLD_FAULT", self.scenario.faults.as_str()),
            ("LEASEHOLD_FAULT_STRUCK", &struck),
            ("LEASEHOLD_WORKER_DETECT_RUNTIMES", &detects),
        ];
        self.worker.start(&faults)?;
        match self.scenario.recipe {
            Recipe::Undecided | Recipe::Resumed => {}
            Recipe::GivenBack => self.submit(1, Some("nobody-of-this-machine"), ""),
            _ => self.submit(if self.scenario.pass > 1 { 1 } else { RUNS }, None, "sleep 0.2"),
        }
        Ok(())
    }

    /// Where there is one, the job ends.
    fn gate(&self) -> PathBuf {
        self.folder.join("gate")
    }

    /// Submits jobs that write when they start and when they end, and do `between` in between.
    fn submit(&mut self, runs: usize, run_as: Option<&str>, between: &str) {
        let line =
            |what: &str| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", self.marks().display());
        let script = format!("{}\necho said\necho aside >&2\n{between}\n{}\n", line("start"), line("end"));
        let mut command = json!({ "interpreter": ["sh"], "script": script });
        if let Some(user) = run_as {
            command["run_as"] = json!(user);
        }
        let revision = json!({
            "command": command,
            "placement": { "require": { "worker_ids": [self.worker.name] } },
            "retry": { "backoff": { "initial": "100ms", "max": "200ms" } },
        });
        for _ in 0..runs {
            self.runs.push(self.cluster.submit_over_the_socket(&json!({ "revision": revision })));
        }
    }

    fn get(&self, run: &str) -> Result<Value> {
        let answer = request::get_over(&self.cluster.admin_socket(), &format!("/api/v1/runs/{run}"))?;
        serde_json::from_str(&answer.body).with_context(|| format!("{answer:?}"))
    }

    /// Until the fault has struck and nothing of it is left; whether it struck.
    fn meet(&mut self) -> Result<bool> {
        if self.scenario.recipe == Recipe::GivenBack {
            eventually("the claim to be given back", || {
                self.keep_running().map_err(|error| format!("{error:#}"))?;
                if self.has_struck() { Ok(()) } else { Err(String::new()) }
            })?;
            for run in &self.runs {
                self.cluster.cli(&["runs", "cancel", run])?.expect_code(0);
            }
        }
        self.wait_until_settled()?;
        match self.scenario.recipe {
            Recipe::Stopped => self.stop()?,
            Recipe::StartedOver => self.start_over()?,
            _ => {}
        }
        Ok(self.has_struck())
    }

    /// Starts the agent again where it died. One that gave up must be one that a service manager starts again.
    fn keep_running(&mut self) -> Result<()> {
        if self.scenario.agent_too && !self.killed && self.has_struck() {
            self.killed = true;
            self.worker.kill()?;
            return self.worker.start(&[]);
        }
        if self.worker.runs() {
            return Ok(());
        }
        let ended = self.worker.end()?;
        if let Some(code) = ended.code() {
            ensure!(code == 1, "the agent gave up with a code that forbids to start it again\n{ended}");
            self.gave_up.push(ended.stderr.lines().next_back().unwrap_or_default().to_owned());
        }
        ensure!(self.gave_up.len() <= 1, "it gives up again and again\n{ended}");
        self.worker.start(&[])
    }

    /// Every run is over, and the worker holds nothing of it any more.
    fn wait_until_settled(&mut self) -> Result<()> {
        eventually("every run to be over and nothing to be left", || {
            self.keep_running().map_err(|error| format!("{error:#}"))?;
            // A job that an earlier life began ends only after the fault, or with it.
            let opens = self.scenario.point.step() == "call.end";
            if self.scenario.recipe == Recipe::Resumed && (opens || self.has_struck()) {
                std::fs::write(self.gate(), "").map_err(|error| error.to_string())?;
            }
            let left = [self.worker.files_in("inbox"), self.worker.files_in("attempts")].concat();
            if !left.is_empty() {
                return Err(format!("left: {left:?}"));
            }
            for run in &self.runs {
                let said = self.get(run).map_err(|error| format!("{error:#}"))?;
                if !is_over(&said) {
                    return Err(format!("{} with {}", said["state"], said["attempts"]));
                }
            }
            // One that could not write its receipt looks every five seconds whether it is still needed.
            let launchers = self.worker.launchers();
            if launchers.is_empty() { Ok(()) } else { Err(format!("launchers: {launchers:?}")) }
        })
    }

    /// Told to stop, it goes, and says honestly whether anybody heard.
    fn stop(&mut self) -> Result<()> {
        self.worker.signal(Signal::TERM)?;
        let ended = self.worker.end()?;
        match ended.code() {
            None => ensure!(self.scenario.kills_agent(), "{ended}"),
            // Not confirmed: it does not say that it stopped safely.
            Some(0 | 23) => {}
            Some(_) => bail!("{ended}"),
        }
        Ok(())
    }

    /// Told to start over, it takes work again.
    fn start_over(&mut self) -> Result<()> {
        self.worker.signal(Signal::HUP)?;
        eventually("the fault to be met", || if self.has_struck() { Ok(()) } else { Err(String::new()) })?;
        if self.scenario.kills_agent() {
            eventually("the agent to die", || if self.worker.runs() { Err(String::new()) } else { Ok(()) })?;
        }
        self.submit(1, None, "");
        self.wait_until_settled()
    }
}

fn private_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if !path.exists() {
        std::fs::create_dir(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, bytes)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}
