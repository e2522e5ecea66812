//! The worker that `up` starts on this machine: a process of its own, from this very binary, through the real
//! enrollment and the real ingress. It knows nothing that a worker on another machine would not know.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use leasehold_core::id::WorkerId;
use leasehold_wire::api::enrollment::{CreateEnrollment, EnrollmentAnswer};
use leasehold_wire::api::route;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::client::{Asked, Client};
use crate::data_directory::DataDirectory;

/// The hidden sub-command that is one attempt's launcher; the agent starts its own binary with it.
pub(crate) const LAUNCHER: &str = "launcher";
/// The hidden sub-command that is the headless worker.
pub(crate) const WORKER_PROCESS: &str = "worker-process";

/// The name of the worker that `up` starts.
const NAME: &str = "local";

/// How long it may take to go once it was told to, with nothing left to do.
const GOING: Duration = Duration::from_secs(10);

/// The worker process itself: everything after the hidden sub-command is the worker's own command line.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // When `up` is killed nobody is left to stop its worker. Killing an agent is always safe, because its jobs have
    // launchers; and those, which start here too, must outlive it.
    let is_launcher = arguments.first().is_some_and(|first| first == LAUNCHER);
    if !is_launcher && let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("cannot follow the parent process: {error}");
        return ExitCode::FAILURE;
    }
    leasehold_worker::cli::run(arguments, &[WORKER_PROCESS])
}

/// The worker on this machine, while it runs.
#[derive(Debug)]
pub(crate) struct LocalWorker {
    /// Its name.
    pub name: WorkerId,
    process: Child,
    log: PathBuf,
}

/// Enrolls the worker if it is not yet, and starts it.
pub(crate) async fn start(client: &Client, data: &DataDirectory, ingress: &str) -> anyhow::Result<LocalWorker> {
    let name: WorkerId = NAME.parse().context("the local worker's name")?;
    let log = data.worker_log();
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    if !leasehold_worker::identity::exists(&data.worker_state()) {
        enroll(client, data, &name, &file, ingress).await?;
    }
    let mut command = worker_process(data, &file)?;
    command.args(["run", "--server", ingress]);
    let process = command.spawn().context("cannot start the worker process")?;
    Ok(LocalWorker { name, process, log })
}

async fn enroll(
    client: &Client,
    data: &DataDirectory,
    name: &WorkerId,
    log: &File,
    ingress: &str,
) -> anyhow::Result<()> {
    let asked = CreateEnrollment { worker: Some(name.clone()), ..CreateEnrollment::default() };
    let answer: EnrollmentAnswer = client.post(route::ENROLLMENTS, Asked::json(asked.to_body())).await?;
    let mut command = worker_process(data, log)?;
    // The token stands in the environment of the process, where no other user sees it, and not among its arguments.
    command.args(["join", ingress]).env("LEASEHOLD_WORKER_TOKEN", answer.token.reveal());
    let status = command.status().await.context("cannot start the worker process")?;
    if status.success() {
        return Ok(());
    }
    Err(failed(&data.worker_log(), "the worker on this machine could not be enrolled", status))
}

fn worker_process(data: &DataDirectory, log: &File) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let to_log = || log.try_clone().map(Stdio::from).context("cannot write the worker's log");
    let mut command = Command::new(program);
    command
        .arg(WORKER_PROCESS)
        .env("LEASEHOLD_WORKER_STATE_DIR", data.worker_state())
        // It runs jobs as whoever called `up`, root included.
        .env("LEASEHOLD_WORKER_ALLOW_ROOT", "1")
        .env_remove("LEASEHOLD_TOKEN")
        .stdin(Stdio::null())
        .stdout(to_log()?)
        .stderr(to_log()?)
        // Ctrl-C on the terminal is for us; the worker is told what to do.
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// What a worker process said last.
fn failed(log: &std::path::Path, what: &str, status: ExitStatus) -> anyhow::Error {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(10)..].join("\n");
    anyhow::anyhow!("{what} ({status}); the end of {}:\n{last}", log.display())
}

impl LocalWorker {
    /// Ready when the process ended although nobody told it to. May be dropped and called again.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match self.process.wait().await {
            Ok(status) => failed(&self.log, "the worker on this machine ended", status),
            Err(error) => anyhow::Error::new(error).context("the worker on this machine is lost"),
        }
    }

    /// Tells it to drain: it takes nothing new and goes when what it runs has ended. Told again, it cancels that.
    pub(crate) fn drain(&self) -> io::Result<()> {
        let Some(pid) = self.process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) else {
            return Ok(());
        };
        match kill_process(pid, Signal::TERM) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ready when it has gone. May be dropped and called again.
    pub(crate) async fn gone(&mut self) -> io::Result<()> {
        self.process.wait().await.map(drop)
    }

    /// Kills it; what it runs goes on under its launchers.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }

    /// Stops it when it has nothing left to do; one that does not go is killed.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        self.drain()?;
        match tokio::time::timeout(GOING, self.gone()).await {
            Ok(gone) => gone,
            Err(_) => self.kill().await,
        }
    }
}
