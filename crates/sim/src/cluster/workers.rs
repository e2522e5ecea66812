//! The workers of a cluster: machines that join it, and their agents.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::Cluster;
use crate::eventually::eventually;
use crate::machine::{self, Machine};
use crate::process::{self, Ended, Running, Stream};
use crate::{binaries, processes};

/// One enrolled worker: its state directory, and its agent while it runs.
#[derive(Debug)]
pub struct Worker {
    /// Its id.
    pub name: String,
    state: PathBuf,
    slots: u16,
    namespace: Option<String>,
    logs_everything: bool,
    program: PathBuf,
    variables: Vec<(String, String)>,
    agent: Option<Running>,
}

impl Worker {
    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Its agent, if it was started and nobody took note of its end.
    pub(super) fn agent(&self) -> Option<&Running> {
        self.agent.as_ref()
    }

    /// The process id of its agent.
    ///
    /// # Panics
    ///
    /// When the agent does not run.
    pub fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("the agent runs").pid()
    }

    /// The names in one folder of its state directory; none when there is no such folder.
    pub fn files_in(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.state.join(folder)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The names of the records in its inbox, without one that was being replaced when the agent was killed.
    pub fn records(&self) -> Vec<String> {
        let is_whole = |name: &String| Path::new(name).extension().is_some_and(|extension| extension == "json");
        self.files_in("inbox").into_iter().filter(is_whole).collect()
    }

    /// The process ids of its launchers.
    pub fn launchers(&self) -> Vec<u32> {
        let found = processes::naming(&self.state.join("attempts"));
        found.iter().filter(|found| found.command.contains(" launcher ")).map(|found| found.pid).collect()
    }

    /// Starts its agent with more variables.
    pub fn start(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        let agent = Running::start(self.command().arg("run").envs(variables.iter().copied()))?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Whether its agent was started and still runs.
    pub fn runs(&mut self) -> bool {
        self.agent.as_mut().is_some_and(Running::is_running)
    }

    /// Sends a signal to its agent.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.agent.as_ref().context("the agent does not run")?.signal(signal)
    }

    /// How its agent, which was told to go or has gone, ended.
    pub fn end(&mut self) -> Result<Ended> {
        self.agent.take().context("the agent does not run")?.wait()
    }

    /// Kills its agent as a crash would; its launchers and jobs live on.
    pub fn kill(&mut self) -> Result<()> {
        self.agent.take().context("the agent does not run")?.kill()
    }

    fn command(&self) -> Command {
        let mut command = machine::command_in(self.namespace.as_deref(), &self.program);
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("LEASEHOLD_WORKER_STATE_DIR", &self.state)
            .env("LEASEHOLD_WORKER_ALLOW_ROOT", "1")
            .env("LEASEHOLD_WORKER_SLOTS", self.slots.to_string());
        if self.logs_everything {
            command.env("LEASEHOLD_WORKER_LOG_LEVEL", "trace");
        }
        command
    }
}

/// What a worker of a test looks like.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOptions<'a> {
    /// Its id.
    pub name: &'a str,
    /// How many runs it takes at once.
    pub slots: u16,
    /// The second machine it runs on; this host when `None`.
    pub machine: Option<&'a Machine>,
}

impl<'a> WorkerOptions<'a> {
    /// A worker of this name on this host, with two slots.
    pub fn named(name: &'a str) -> Self {
        Self { name, slots: 2, machine: None }
    }
}

impl Cluster {
    /// Hands the workers over, to be driven each by a thread of its own; they are to be given back before this ends.
    pub fn lend_workers(&mut self) -> Vec<Worker> {
        std::mem::take(&mut self.workers)
    }

    /// Takes workers back.
    pub fn take_back(&mut self, workers: Vec<Worker>) {
        self.workers.extend(workers);
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// A worker.
    pub fn worker(&self, index: usize) -> &Worker {
        &self.workers[index]
    }

    /// Every start of this worker's agent from now on has this variable, too.
    pub fn worker_variable(&mut self, index: usize, name: &str, value: &str) {
        self.workers[index].variables.push((name.to_owned(), value.to_owned()));
    }

    /// Every start of this worker's agent from now on is on another machine; it keeps its state directory.
    pub fn move_worker(&mut self, index: usize, machine: &Machine) {
        self.workers[index].namespace = Some(machine.namespace().to_owned());
    }

    /// Every start of this worker's agent from now on is of this file.
    pub fn worker_program(&mut self, index: usize, program: &Path) {
        program.clone_into(&mut self.workers[index].program);
    }

    /// Enrolls a worker with the line that the control plane prints; its agent does not run yet.
    pub fn enroll(&mut self, options: WorkerOptions<'_>) -> Result<usize> {
        let line = self.join_line(options.name);
        let index = self.add_worker(options);
        self.run_join_line(index, &line, &[])?.expect_code(0);
        Ok(index)
    }

    /// The line that the control plane prints for a new worker.
    ///
    /// # Panics
    ///
    /// When it is refused.
    #[track_caller]
    pub fn join_line(&self, name: &str) -> String {
        self.ask(&["worker", "enroll", "--name", name, "-q"])
    }

    /// A machine that has not joined yet.
    pub fn add_worker(&mut self, options: WorkerOptions<'_>) -> usize {
        self.workers.push(Worker {
            name: options.name.to_owned(),
            state: self.directory().join(format!("worker-{}", options.name)),
            slots: options.slots,
            namespace: options.machine.map(|machine| machine.namespace().to_owned()),
            logs_everything: self.logs_everything,
            program: binaries::leasehold_worker().to_owned(),
            variables: Vec::new(),
            agent: None,
        });
        self.workers.len() - 1
    }

    /// Runs the line on that machine, with more variables.
    pub fn run_join_line(&self, index: usize, line: &str, variables: &[(&str, &str)]) -> Result<Ended> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((&"leasehold-worker", arguments)) = words.split_first() else {
            bail!("`worker enroll -q` did not print the line to paste, but: {line}");
        };
        process::run(self.workers[index].command().args(arguments).envs(variables.iter().copied()))
    }

    /// Enrolls a worker of this host and starts its agent.
    pub fn join(&mut self, options: WorkerOptions<'_>) -> Result<usize> {
        let index = self.enroll(options)?;
        self.start_agent(index)?;
        Ok(index)
    }

    /// Starts the agent of a worker and waits until the control plane sees its session, and the agent its first heartbeat
    /// answered: until then what it keeps of the registration is still under way.
    pub fn start_agent(&mut self, index: usize) -> Result<()> {
        let name = self.workers[index].name.clone();
        let session = || self.json(&["worker", "get", &name])["session"].clone();
        // The session of an earlier life may still be live.
        let earlier = session()["generation"].as_u64();
        let mut agent = Running::start(self.workers[index].command().arg("run"))?;
        let online = eventually(&format!("worker {name} to have a live session"), || {
            if !agent.is_running() {
                return Ok(false);
            }
            let session = session();
            let is_new = session["generation"].as_u64() > earlier;
            if is_new && session["state"] == "active" { Ok(true) } else { Err(session.to_string()) }
        })?;
        if !online {
            bail!("the agent of {name} ended at once:\n{}", agent.written(Stream::Stderr));
        }
        agent.wait_for_text(Stream::Stderr, "ready")?;
        self.workers[index].agent = Some(agent);
        Ok(())
    }

    /// Starts the agent of a worker, whether or not the control plane is there.
    pub fn spawn_agent(&mut self, index: usize) -> Result<()> {
        self.workers[index].start(&[])
    }

    /// Starts the agent of a worker with one more variable, which its launchers inherit.
    pub fn spawn_agent_with(&mut self, index: usize, variable: &str, value: &str) -> Result<()> {
        self.workers[index].start(&[(variable, value)])
    }

    /// What starts the agent of a worker, for a test that adds to it. Hand the process over with [`Cluster::adopt_agent`].
    pub fn agent_command(&self, index: usize) -> Command {
        let mut command = self.workers[index].command();
        command.arg("run");
        command
    }

    /// From now on this process is the agent of a worker.
    pub fn adopt_agent(&mut self, index: usize, agent: Running) {
        self.workers[index].agent = Some(agent);
    }

    /// Starts a second agent of a worker, on another state directory.
    pub fn start_copy(&self, index: usize, state: &Path) -> Result<Running> {
        let worker = &self.workers[index];
        Running::start(worker.command().arg("run").env("LEASEHOLD_WORKER_STATE_DIR", state))
    }

    /// Sends a signal to an agent.
    pub fn signal_agent(&self, index: usize, signal: Signal) -> Result<()> {
        self.workers[index].signal(signal)
    }

    /// Whether an agent that was started still runs.
    pub fn agent_runs(&mut self, index: usize) -> bool {
        self.workers[index].runs()
    }

    /// Kills an agent as a crash would; its launchers and jobs live on.
    pub fn kill_agent(&mut self, index: usize) -> Result<()> {
        self.workers[index].kill()
    }

    /// Asks an agent to drain and stop, and returns how it ended.
    pub fn stop_agent(&mut self, index: usize) -> Result<Ended> {
        self.signal_agent(index, Signal::TERM)?;
        self.wait_for_agent_end(index)
    }

    /// Waits until an agent that was told to go has gone.
    pub fn wait_for_agent_end(&mut self, index: usize) -> Result<Ended> {
        self.workers[index].end()
    }
}
