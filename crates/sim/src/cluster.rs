//! A control plane and its workers, as a user would start them, on a directory of their own.
//!
//! Dropping a cluster kills every process that names its directory and fails when one survives; a test that ends well
//! calls [`Cluster::shut_down`], which asks politely and proves that nothing was left.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::machine::{self, Machine};
use crate::port::Port;
use crate::process::{self, Ended, Running, Stream};
use crate::{binaries, control_groups, database, processes, request};

/// A control plane under test.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in this order: processes before the directory they live in.
    control: Option<Running>,
    workers: Vec<Worker>,
    host: String,
    api_port: Port,
    ingress_port: Port,
    logs_everything: bool,
    program: PathBuf,
    control_flags: Vec<String>,
    control_variables: Vec<(String, String)>,
    directory: TempDir,
}

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
        self.files_in("inbox").into_iter().filter(|name| name.ends_with(".json")).collect()
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
    /// Starts a control plane that expects a beat every five minutes: sessions of callers that never beat outlive a test.
    pub fn start_unhurried() -> Result<Self> {
        let mut cluster = Self::prepare()?;
        cluster.control_flags(&["--heartbeat", "5m"]);
        cluster.start_control()?;
        Ok(cluster)
    }

    /// Starts a control plane on loopback.
    pub fn start() -> Result<Self> {
        Self::start_on("127.0.0.1")
    }

    /// Starts a control plane whose worker ingress listens on one address of this host.
    pub fn start_on(host: &str) -> Result<Self> {
        let mut cluster = Self::prepare_on(host)?;
        cluster.start_control()?;
        Ok(cluster)
    }

    /// A directory and two free ports; nothing runs yet.
    pub fn prepare() -> Result<Self> {
        Self::prepare_on("127.0.0.1")
    }

    /// The same, its state in the PostgreSQL database at `url`.
    pub fn prepare_on_postgres(url: &str) -> Result<Self> {
        let mut cluster = Self::prepare()?;
        cluster.control_variables([("LEASEHOLD_DATABASE".to_owned(), url.to_owned())]);
        Ok(cluster)
    }

    /// The same on one address of this host.
    pub fn prepare_on(host: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("leasehold-").tempdir()?;
        let (api_port, ingress_port) = (Port::take("127.0.0.1")?, Port::take(host)?);
        let host = host.to_owned();
        Ok(Self {
            control: None,
            workers: Vec::new(),
            host,
            api_port,
            ingress_port,
            logs_everything: false,
            program: binaries::leasehold().to_owned(),
            control_flags: Vec::new(),
            control_variables: Vec::new(),
            directory,
        })
    }

    /// The control plane's next start, and every command line from now on, is of this file.
    pub fn control_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Every start of the control plane from now on has these flags of `serve`, too.
    pub fn control_flags(&mut self, flags: &[&str]) {
        self.control_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// Every start of the control plane from now on has these variables, too.
    pub fn control_variables(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        self.control_variables.extend(variables);
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

    /// What is started from now on logs all that it can.
    pub fn log_everything(&mut self) {
        self.logs_everything = true;
    }

    /// Everything that the control plane that runs, and each agent that runs, has written.
    pub fn written(&self) -> String {
        let agents = self.workers.iter().filter_map(|worker| worker.agent.as_ref());
        let running = self.control.iter().chain(agents);
        running.map(|process| process.written(Stream::Stdout) + &process.written(Stream::Stderr)).collect()
    }

    /// The directory that everything of this cluster lives in, and where its command line runs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The data directory of the control plane, under the name that the command line looks for.
    pub fn data(&self) -> PathBuf {
        self.directory().join("leasehold-data")
    }

    /// The admin socket of the control plane, which needs no token.
    pub fn admin_socket(&self) -> PathBuf {
        self.data().join("admin.sock")
    }

    /// `host:port` of the operator API: always on loopback, where it speaks plain HTTP.
    pub fn api(&self) -> String {
        format!("127.0.0.1:{}", self.api_port.number())
    }

    /// `host:port` of the worker ingress.
    pub fn ingress(&self) -> String {
        format!("{}:{}", self.host, self.ingress_port.number())
    }

    /// The flags that put a control plane on this cluster's ports.
    pub fn listen_flags(&self) -> [String; 4] {
        ["--listen".to_owned(), self.api(), "--worker-listen".to_owned(), self.ingress()]
    }

    /// The variables that every start of the control plane has.
    pub fn variables(&self) -> &[(String, String)] {
        &self.control_variables
    }

    /// `leasehold` in the cluster's directory, with nothing inherited that could point it elsewhere.
    pub fn leasehold(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.directory());
        for variable in ["LEASEHOLD_ADDR", "LEASEHOLD_TOKEN", "LEASEHOLD_PROJECT", "LEASEHOLD_CACERT"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs one command line to its end.
    pub fn cli(&self, arguments: &[&str]) -> Result<Ended> {
        process::run(self.leasehold().args(arguments))
    }

    /// Runs one command line that must succeed, and returns its standard output.
    ///
    /// # Panics
    ///
    /// With everything it wrote when it fails.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> String {
        let ended = self.cli(arguments).expect("leasehold can be started");
        ended.expect_code(0).answer().to_owned()
    }

    /// One object as the command line prints it with `-o json`.
    ///
    /// # Panics
    ///
    /// When the command fails or does not print JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ask(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
    }

    /// The objects of a list as the command line prints them with `-o jsonl`.
    ///
    /// # Panics
    ///
    /// When the command fails or does not print JSON.
    #[track_caller]
    pub fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.ask(&[arguments, &["-o", "jsonl"]].concat());
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in:\n{line}")))
            .collect()
    }

    /// Starts the control plane and waits until it answers.
    pub fn start_control(&mut self) -> Result<()> {
        let data = self.data();
        let mut command = self.leasehold();
        command.arg("serve").arg("--data").arg(&data).args(self.listen_flags()).args(&self.control_flags);
        command.envs(self.control_variables.iter().map(|(name, value)| (name, value)));
        if self.logs_everything {
            command.env("LEASEHOLD_LOG", "trace");
        }
        let mut control = Running::start(&mut command)?;
        self.wait_until_healthy(&mut control)?;
        self.control = Some(control);
        Ok(())
    }

    /// Waits until the API of a started process says that it is healthy.
    pub fn wait_until_healthy(&self, process: &mut Running) -> Result<()> {
        let api = self.api();
        eventually(&format!("{api}/healthz"), || {
            if !process.is_running() {
                return Ok(false);
            }
            match request::get(&api, "/healthz", None) {
                Ok(answer) if answer.status == 200 => Ok(true),
                Ok(answer) => Err(format!("{answer:?}")),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .and_then(|healthy| {
            if healthy {
                return Ok(());
            }
            bail!("it ended at once:\n{}", process.written(Stream::Stderr))
        })
    }

    /// Asks the control plane to stop, and waits until it has.
    pub fn stop_control(&mut self) -> Result<()> {
        let control = self.control.take().context("the control plane does not run")?;
        control.signal(Signal::TERM)?;
        control.wait()?.expect_code(0);
        Ok(())
    }

    /// Kills the control plane as a crash would.
    pub fn kill_control(&mut self) -> Result<()> {
        self.control.take().context("the control plane does not run")?.kill()
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

    /// Starts the agent of a worker, whether or not the control plane is there.
    pub fn spawn_agent(&mut self, index: usize) -> Result<()> {
        let agent = Running::start(self.workers[index].command().arg("run"))?;
        self.workers[index].agent = Some(agent);
        Ok(())
    }

    /// Starts the agent of a worker with one more variable, which its launchers inherit.
    pub fn spawn_agent_with(&mut self, index: usize, variable: &str, value: &str) -> Result<()> {
        let worker = &self.workers[index];
        let agent = Running::start(worker.command().arg("run").env(variable, value))?;
        self.workers[index].agent = Some(agent);
        Ok(())
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

    /// Enrolls a worker of this host and starts its agent.
    pub fn join(&mut self, options: WorkerOptions<'_>) -> Result<usize> {
        let index = self.enroll(options)?;
        self.start_agent(index)?;
        Ok(index)
    }

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

    /// What the last attempt of a run wrote, which has ended, once its worker has handed over all of it or given up the rest.
    ///
    /// # Panics
    ///
    /// When that does not come.
    #[track_caller]
    pub fn log(&self, run: &str) -> String {
        let shipped = eventually(&format!("the whole log of {run}"), || {
            let found = self.look_at(run)?;
            let last = found["attempts"].as_array().and_then(|attempts| attempts.last()).cloned().unwrap_or_default();
            let whole = ["complete", "incomplete"].iter().any(|state| last["log"]["state"] == *state);
            if whole { Ok(()) } else { Err(last["log"].to_string()) }
        });
        shipped.unwrap_or_else(|error| panic!("{error:#}"));
        self.ask(&["runs", "logs", run])
    }

    /// The state of a worker's session as the control plane tells it; empty when it never had one.
    ///
    /// # Panics
    ///
    /// When there is no such worker.
    #[track_caller]
    pub fn session_state(&self, name: &str) -> String {
        let worker = self.json(&["worker", "get", name]);
        worker["session"]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// The admin token that a control plane prints once, on standard error, when its data is new.
    pub fn first_token(&mut self) -> Result<String> {
        let control = self.control.as_mut().context("the control plane does not run")?;
        let line = control.wait_for_text(Stream::Stderr, "token")?;
        line.split_whitespace().next_back().map(str::to_owned).context("the line of the token is empty")
    }

    /// The process id of the control plane.
    ///
    /// # Panics
    ///
    /// When the control plane does not run.
    pub fn control_pid(&self) -> u32 {
        self.control.as_ref().expect("the control plane runs").pid()
    }

    /// Sends a signal to the control plane.
    pub fn signal_control(&self, signal: Signal) -> Result<()> {
        self.control.as_ref().context("the control plane does not run")?.signal(signal)
    }

    /// Waits until the control plane has written this on standard error.
    pub fn wait_for_control_text(&mut self, text: &str) -> Result<String> {
        self.control.as_mut().context("the control plane does not run")?.wait_for_text(Stream::Stderr, text)
    }

    /// Waits until a control plane that was told to go has gone.
    pub fn wait_for_control_end(&mut self) -> Result<Ended> {
        self.control.take().context("the control plane does not run")?.wait()
    }

    /// Sends a signal to an agent.
    pub fn signal_agent(&self, index: usize, signal: Signal) -> Result<()> {
        self.workers[index].agent.as_ref().context("the agent does not run")?.signal(signal)
    }

    /// Whether an agent that was started still runs.
    pub fn agent_runs(&mut self, index: usize) -> bool {
        self.workers[index].agent.as_mut().is_some_and(Running::is_running)
    }

    /// Kills an agent as a crash would; its launchers and jobs live on.
    pub fn kill_agent(&mut self, index: usize) -> Result<()> {
        self.workers[index].agent.take().context("the agent does not run")?.kill()
    }

    /// Asks an agent to drain and stop, and returns how it ended.
    pub fn stop_agent(&mut self, index: usize) -> Result<Ended> {
        self.signal_agent(index, Signal::TERM)?;
        self.wait_for_agent_end(index)
    }

    /// Waits until an agent that was told to go has gone.
    pub fn wait_for_agent_end(&mut self, index: usize) -> Result<Ended> {
        self.workers[index].agent.take().context("the agent does not run")?.wait()
    }

    /// Submits a run without waiting for it and returns its id.
    ///
    /// # Panics
    ///
    /// When it is refused.
    #[track_caller]
    pub fn submit(&self, arguments: &[&str]) -> String {
        self.ask(&[&["run", "--detach", "-q"], arguments].concat())
    }

    /// Submits a run as the API takes it; its id.
    ///
    /// # Panics
    ///
    /// When it is refused.
    #[track_caller]
    pub fn submit_over_the_socket(&self, body: &Value) -> String {
        let answer = request::post_over(&self.admin_socket(), "/api/v1/runs", body).expect("the control plane answers");
        assert_eq!(answer.status, 201, "{answer:?}");
        let run: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        run["id"].as_str().map_or_else(|| panic!("no id in {answer:?}"), str::to_owned)
    }

    /// A run as the API tells it. For looks that are taken again and again: a process for each is most of what a test costs.
    pub fn look_at(&self, run: &str) -> Result<Value, String> {
        let answer = request::get_over(&self.admin_socket(), &format!("/api/v1/runs/{run}"));
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        if answer.status != 200 {
            return Err(format!("{answer:?}"));
        }
        serde_json::from_str(&answer.body).map_err(|error| format!("{error} in {answer:?}"))
    }

    /// Waits until a run has the state that is asked for.
    pub fn wait_for_state(&self, run: &str, state: &str) -> Result<Value> {
        eventually(&format!("run {run} to be {state}"), || {
            let found = self.look_at(run)?;
            if found["state"] == state { Ok(found) } else { Err(found.to_string()) }
        })
    }

    /// The ids of the runs in a state.
    ///
    /// # Panics
    ///
    /// When the list is refused.
    #[track_caller]
    pub fn runs_in_state(&self, state: &str) -> Vec<String> {
        let text = self.ask(&["runs", "list", "--state", state, "--limit", "500", "-o", "name"]);
        text.lines().map(str::to_owned).collect()
    }

    /// Stops every agent, then the control plane, each politely, and proves that nothing is left and that what is stored
    /// does not contradict itself.
    ///
    /// # Panics
    ///
    /// When one of them does not end with code 0, or the store contradicts itself.
    pub fn shut_down(mut self) -> Result<()> {
        for index in 0..self.workers.len() {
            if self.workers[index].agent.is_some() {
                self.stop_agent(index)?.expect_code(0);
            }
        }
        if let Some(control) = self.control.take() {
            control.signal(Signal::TERM)?;
            control.wait()?.expect_code(0);
            // On PostgreSQL there is no file to look into.
            if !self.data().join("database.seen").exists() {
                assert_eq!(database::contradictions(&self.data())?, Vec::<String>::new());
            }
        }
        processes::wait_until_none_names(self.directory.path())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let homes: Vec<_> =
            self.workers.iter().flat_map(|worker| control_groups::homes(&worker.name, &worker.state)).collect();
        // Reaped first, or a killed agent would stay a zombie of ours.
        self.workers.clear();
        self.control = None;
        let killed = processes::kill_all_naming(self.directory.path());
        let cleared: Result<()> = homes.iter().try_for_each(|home| control_groups::clear(home));
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = killed.and(cleared) {
            panic!("{error:#}");
        }
    }
}
