//! The world of a chaos run: a control plane and its workers, each on a machine of its own, and what is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::api::Api;
use super::boot_millis;
use super::errand::{Done, Errand};
use super::fault::{Fault, Way, worker_name};
use super::history::{Drained, Happened};
use super::host::{CONTROL_ADDRESS, Host, Process, Wire, signal};
use super::secrets::{Secrets, files_under};
use super::service::Service;
use crate::eventually::eventually;
use crate::{binaries, process};

/// How an agent ends in order: done, or with jobs that stay when its drain timed out.
const AGENT_GOES: &[i32] = &[0, 23];
/// How an agent ends whose worker was deleted.
const REVOKED: i32 = 21;
const DONE: &[i32] = &[0];
/// A control plane that is told again while it drains goes at once, and says so.
const DONE_OR_AT_ONCE: &[i32] = &[0, 130];

/// A worker: its machine, its wire, its agent.
#[derive(Debug)]
struct Worker {
    agent: Service,
    wire: Wire,
    host: Host,
    state: PathBuf,
    slots: usize,
}

/// A control plane and its workers. Everything is gone when it is dropped.
#[derive(Debug)]
pub(crate) struct World {
    workers: Vec<Worker>,
    control: Service,
    control_host: Host,
    directory: PathBuf,
    /// The process that a fault froze, by the fault's place.
    frozen: BTreeMap<usize, u32>,
    /// What ended although nobody had told it to.
    pub(crate) ends: Vec<String>,
    /// What people are about to do with workers.
    errands: Vec<Errand>,
    /// When they had drained one.
    pub(crate) drained: Vec<Drained>,
    /// Workers whose agent is not to be started: a person takes the machine away, or has not brought it back.
    away: BTreeSet<usize>,
    /// Faults of a person who changed their mind.
    pub(crate) given_up: Vec<usize>,
    secrets: Secrets,
}

impl World {
    /// Machines, wires, a control plane, and workers that have joined and run.
    pub(crate) fn build(directory: &Path, workers: usize, slots: usize) -> Result<Self> {
        let control_host = Host::create("control", directory, false)?;
        Wire::name_control(&control_host)?;
        let control = Service::new("the control plane", directory.join("control.log"));
        let mut world = Self {
            workers: Vec::new(),
            control,
            control_host,
            directory: directory.to_owned(),
            frozen: BTreeMap::new(),
            ends: Vec::new(),
            errands: Vec::new(),
            drained: Vec::new(),
            away: BTreeSet::new(),
            given_up: Vec::new(),
            secrets: Secrets::default(),
        };
        world.start_control()?;
        let socket = world.data().join("admin.sock");
        eventually("the admin socket", || {
            std::os::unix::net::UnixStream::connect(&socket).map(drop).map_err(|error| error.to_string())
        })?;
        for worker in 0..workers {
            world.join(worker, slots)?;
            world.start_agent(worker)?;
        }
        Ok(world)
    }

    fn api(&self) -> Api {
        Api::of([self.data().as_path()])
    }

    /// The control plane's data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("leasehold-data")
    }

    fn join(&mut self, worker: usize, slots: usize) -> Result<()> {
        let name = worker_name(worker);
        // Without control groups a launcher finds what to stop by a walk; with them by its group.
        let host = Host::create(&name, &self.directory, worker == 0)?;
        let wire = Wire::connect(&self.control_host, &host, worker + 1)?;
        let state = self.directory.join(format!("state-{name}"));
        let agent = Service::new(&format!("the agent of {name}"), self.directory.join(format!("{name}.log")));
        let line = process::run(&mut self.enroll(worker))?;
        let words: Vec<&str> = line.expect_code(0).answer().split_whitespace().collect();
        let arguments = words.strip_prefix(&["leasehold-worker"]).context("no line to paste")?.to_vec();
        let joined = Worker { agent, wire, host, state, slots };
        process::run(joined.command().args(arguments))?.expect_code(0);
        self.workers.push(joined);
        Ok(())
    }

    /// What prints the line that a machine of this worker's name joins with.
    fn enroll(&self, worker: usize) -> Command {
        let mut enroll = Command::new(binaries::leasehold());
        enroll.args(["worker", "enroll", "--name", &worker_name(worker), "-q", "--data"]).arg(self.data());
        enroll
    }

    fn start_control(&mut self) -> Result<()> {
        let mut command = self.control_host.command(binaries::leasehold());
        command.arg("serve").arg("--data").arg(self.data());
        command.args(["--listen", "127.0.0.1:7440", "--worker-listen", "0.0.0.0:7443"]);
        // A machine that starts anew waits until its old session has been silent for one and a half of these.
        command.args(["--advertise", CONTROL_ADDRESS, "--heartbeat", "5s"]);
        self.control.start(command)
    }

    fn start_agent(&mut self, worker: usize) -> Result<()> {
        if self.away.contains(&worker) {
            return Ok(());
        }
        let worker = &mut self.workers[worker];
        let mut command = worker.command();
        command.arg("run");
        worker.agent.start(command)
    }

    /// What a service manager does: starts again what has ended, and notes what should not have.
    pub(crate) fn tend(&mut self) -> Result<()> {
        self.ends.extend(self.control.look()?);
        if self.control.is_due() {
            self.start_control()?;
        }
        for index in 0..self.workers.len() {
            let worker = &mut self.workers[index];
            self.ends.extend(worker.agent.look()?);
            if worker.agent.is_due() {
                self.start_agent(index)?;
            }
        }
        self.hear_people()
    }

    /// Takes note of what people have done, and goes on from there.
    fn hear_people(&mut self) -> Result<()> {
        let finished = self.errands.extract_if(.., |errand| errand.is_finished()).collect::<Vec<_>>();
        for errand in finished {
            let (place, worker) = (errand.place, errand.worker);
            match errand.finish().with_context(|| format!("a person's errand about {}", worker_name(worker)))? {
                Done::Drained(drained) => self.drained.push(drained),
                Done::Deleted(true) => {
                    self.away.insert(worker);
                }
                Done::Deleted(false) => {
                    self.given_up.extend(place);
                    self.workers[worker].agent.may_end = None;
                }
                Done::Joined => {
                    self.away.remove(&worker);
                    self.start_agent(worker)?;
                }
            }
        }
        // Whoever was deleted says so and ends; then the machine begins anew, without anything of before.
        for worker in self.away.clone() {
            let joins = self.errands.iter().any(|errand| errand.worker == worker);
            if joins || self.workers[worker].agent.pid().is_some() {
                continue;
            }
            let gone = &mut self.workers[worker];
            gone.agent.may_end = None;
            if gone.state.exists() {
                std::fs::remove_dir_all(&gone.state)?;
            }
            let agent = gone.command();
            self.errands.push(Errand::join(worker, self.enroll(worker), agent));
        }
        Ok(())
    }

    /// Begins the fault at this place of the plan.
    pub(crate) fn begin(&mut self, place: usize, fault: Fault) -> Result<Happened> {
        let at = boot_millis();
        let (mut hit, mut attempt) = (true, None);
        match fault {
            Fault::KillAgent(worker) => hit = self.workers[worker].agent.kill()?,
            Fault::FreezeAgent(worker) => {
                hit = self.freeze(place, self.workers[worker].agent.pid());
            }
            Fault::DrainAgent(worker) => hit = self.workers[worker].agent.tell_to_go(Signal::TERM, AGENT_GOES),
            Fault::LeaveRunning(worker) => hit = self.workers[worker].agent.tell_to_go(Signal::USR1, DONE),
            Fault::HangUp(worker) => hit = self.workers[worker].agent.tell(Signal::HUP),
            Fault::KillLauncher(worker) => {
                let launcher = self.workers[worker].launcher(place);
                hit = launcher.as_ref().is_some_and(|launcher| signal(launcher.pid, Signal::KILL));
                attempt = launcher.as_ref().and_then(attempt_of);
            }
            Fault::FreezeLauncher(worker) => {
                let launcher = self.workers[worker].launcher(place);
                hit = self.freeze(place, launcher.as_ref().map(|launcher| launcher.pid));
                attempt = launcher.as_ref().and_then(attempt_of);
            }
            Fault::Boot(worker) => {
                let worker = &mut self.workers[worker];
                worker.agent.kill()?;
                worker.host.kill_everything()?;
                worker.host.groups(true)?;
                worker.host.new_boot()?;
            }
            Fault::Cut(worker, way) => self.workers[worker].wire.cut(way != Way::In, way != Way::Out)?,
            Fault::Narrow(worker) => self.workers[worker].wire.narrow()?,
            Fault::Clock(worker, seconds) => self.workers[worker].host.set_clock(seconds)?,
            Fault::KillControl => hit = self.control.kill()?,
            Fault::FreezeControl => hit = self.freeze(place, self.control.pid()),
            Fault::RestartControl => {
                let codes = if self.control.is_leaving() { DONE_OR_AT_ONCE } else { DONE };
                hit = self.control.tell_to_go(Signal::TERM, codes);
            }
            Fault::ControlClock(seconds) => self.control_host.set_clock(seconds)?,
            Fault::Drain(worker) => self.errands.push(Errand::drain(&self.api(), place, worker)),
            Fault::Retire(worker) => {
                self.workers[worker].agent.may_end = Some(REVOKED);
                self.errands.push(Errand::retire(&self.api(), place, worker));
            }
            Fault::Destroy(worker) => {
                self.away.insert(worker);
                let gone = &mut self.workers[worker];
                gone.agent.kill()?;
                gone.host.kill_everything()?;
                gone.host.groups(true)?;
                gone.host.new_boot()?;
                std::fs::remove_dir_all(&gone.state)?;
                self.errands.push(Errand::destroyed(&self.api(), place, worker));
            }
            Fault::KillReplica(_) | Fault::RestartDatabase => bail!("here is one control plane, on SQLite"),
        }
        Ok(Happened { fault, at, until: at, attempt, missed: !hit })
    }

    /// Ends the fault at this place of the plan.
    pub(crate) fn end(&mut self, place: usize, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillAgent(worker) | Fault::Boot(worker) => self.start_agent(worker),
            Fault::DrainAgent(worker) => {
                let agent = &mut self.workers[worker].agent;
                if agent.is_leaving() {
                    agent.tell_to_go(Signal::TERM, AGENT_GOES);
                }
                Ok(())
            }
            Fault::FreezeAgent(_) | Fault::FreezeLauncher(_) | Fault::FreezeControl => {
                if let Some(pid) = self.frozen.remove(&place) {
                    signal(pid, Signal::CONT);
                }
                Ok(())
            }
            Fault::Cut(worker, way) => self.workers[worker].wire.mend(way != Way::In, way != Way::Out),
            Fault::Narrow(worker) => self.workers[worker].wire.widen(),
            Fault::KillControl => self.start_control(),
            Fault::Drain(_) | Fault::Retire(_) | Fault::Destroy(_) => {
                self.errands.iter().filter(|errand| errand.place == Some(place)).for_each(Errand::is_time);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn freeze(&mut self, place: usize, pid: Option<u32>) -> bool {
        let Some(pid) = pid.filter(|pid| signal(*pid, Signal::STOP)) else { return false };
        self.frozen.insert(place, pid);
        true
    }

    /// Files of inboxes and attempts, and processes that are neither agents nor the control plane.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.errands.iter().map(|errand| format!("{}: a person's errand", worker_name(errand.worker))).collect();
        for worker in &self.workers {
            let name = &worker.host.name;
            for folder in ["inbox", "attempts", "quarantine"] {
                let entries = std::fs::read_dir(worker.state.join(folder)).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| format!("{name}: {folder}/{}", entry.file_name().display())));
            }
            let others = worker.host.processes().into_iter().filter(|process| Some(process.pid) != worker.agent.pid());
            left.extend(others.map(|process| format!("{name}: process {} {}", process.pid, process.command)));
        }
        left
    }

    /// Stops every agent and the control plane as a person would, and answers what did not go in order or was left.
    pub(crate) fn shut_down(&mut self) -> Result<Vec<String>> {
        for worker in &mut self.workers {
            worker.agent.tell_to_go(Signal::TERM, DONE);
        }
        for index in 0..self.workers.len() {
            let worker = &mut self.workers[index];
            let end = wait_for_end(&mut worker.agent)?;
            self.ends.extend(end);
        }
        self.control.tell_to_go(Signal::TERM, DONE);
        let end = wait_for_end(&mut self.control)?;
        self.ends.extend(end);
        let mut left = Vec::new();
        for worker in &self.workers {
            left.extend(worker.host.groups(false)?);
        }
        let hosts = self.workers.iter().map(|worker| &worker.host).chain([&self.control_host]);
        let running = hosts.flat_map(|host| host.processes().into_iter().map(|process| (host.name.clone(), process)));
        left.extend(running.map(|(host, process)| format!("{host}: process {} {}", process.pid, process.command)));
        Ok(left)
    }

    /// Takes note of the tokens that the workers hold now.
    pub(crate) fn gather_secrets(&mut self) {
        for worker in &self.workers {
            self.secrets.gather(&worker.state);
        }
    }

    /// Every token that stands in the control plane's data or in a log: the first admin token alone is shown, once.
    pub(crate) fn leaks(&mut self) -> Result<Vec<String>> {
        let log = self.directory.join("control.log");
        let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        let shown = text.lines().find(|line| line.contains("admin token")).context("no admin token was shown")?;
        let shown = shown.split_whitespace().next_back().unwrap_or_default();
        self.secrets.add(shown);
        ensure!(self.secrets.len() > self.workers.len(), "no token was ever seen");
        let mut files = files_under(&self.data())?;
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                files.push(path);
            }
        }
        self.secrets.leaks(&files, |file, token| usize::from(file == log && token == shown))
    }
}

fn wait_for_end(service: &mut Service) -> Result<Option<String>> {
    eventually(&format!("{} to end", service.name.clone()), || match service.look() {
        Ok(end) if service.pid().is_none() => Ok(end),
        Ok(_) => Err("it runs".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    })
}

impl Worker {
    fn command(&self) -> Command {
        let mut command = self.host.command(binaries::leasehold_worker());
        command
            .env("LEASEHOLD_WORKER_STATE_DIR", &self.state)
            .env("LEASEHOLD_WORKER_ALLOW_ROOT", "1")
            .env("LEASEHOLD_WORKER_SLOTS", self.slots.to_string())
            .env("LEASEHOLD_WORKER_LOG_LEVEL", "debug");
        command
    }

    /// One of its launchers, if it has any.
    fn launcher(&self, pick: usize) -> Option<Process> {
        let processes = self.host.processes();
        let mut launchers: Vec<Process> =
            processes.into_iter().filter(|process| process.command.contains(" launcher ")).collect();
        if launchers.is_empty() {
            return None;
        }
        let pick = pick % launchers.len();
        Some(launchers.swap_remove(pick))
    }
}

/// The attempt whose directory a launcher's arguments name.
fn attempt_of(launcher: &Process) -> Option<String> {
    let path = launcher.command.split_whitespace().find(|word| word.contains("/attempts/"))?;
    path.split("/attempts/").nth(1)?.split('/').next().map(str::to_owned)
}
