//! `leasehold up`: a control plane and one worker on this machine, for a first try, a single box, or one command.
//!
//! Two processes over the real protocol. With a command, stdout and stderr carry the command's own streams; everything
//! of ours goes to stderr and is silenced by `-q`. (Decisions, *Access on one machine* and *Ctrl-C*.)

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use leasehold_core::canonical::Value;
use leasehold_core::id::ProjectName;
use leasehold_core::placement::{Placement, Requirements};
use leasehold_core::registration::Cadence;
use leasehold_core::revision::Revision;
use leasehold_wire::api::cancel::{CancelAnswer, CancelRun};
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;
use leasehold_wire::api::submit::SubmitRun;
use leasehold_worker::process_identity;
use rustix::process::{Pid, Signal};

use super::following::ended;
use super::run::submit_run;
use super::serve::{API, INGRESS, show_first_token};
use crate::client::{Asked, Client};
use crate::compose::StoreArgs;
use crate::control_plane::{self, Listen, Running};
use crate::exit::Exit;
use crate::failure::UsageError;
use crate::follow::{self, Wanted};
use crate::interrupt::Interrupts;
use crate::local_worker::{self, LocalWorker};
use crate::logging::{self, LogFormat};
use crate::output::{Format, OutputArgs};
use crate::target::{DATA_DIRECTORY, Target};
use crate::waiting;

const AFTER_HELP: &str = "\
Examples:
  leasehold up -- sh -c 'uname -a; exit 7'   start both, run it, exit with 7
  leasehold up -q -- make test >log.txt      only the command's own output
  leasehold up                               start both and stay, for `run`
  leasehold up --data ~/leasehold \\
    --listen 127.0.0.1:8440 --worker-listen 127.0.0.1:8443

The command runs in this directory. Ctrl-C cancels it with its grace and ends
with 130; a second one kills it. With a command, busy ports give way to free
ones unless they are named.

Exit codes:
  the command's own, 128+n for a signal · 1 it could not start · 8 lost
  130 interrupted
  without a command 0 after Ctrl-C or SIGTERM";

/// Starts a control plane and a worker on this machine.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Up {
    /// Where the operator API listens [default: 127.0.0.1:7440]
    #[arg(long, env = "LEASEHOLD_LISTEN", value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// Where workers come in [default: 127.0.0.1:7443]
    #[arg(long, env = "LEASEHOLD_WORKER_LISTEN", value_name = "ADDR")]
    worker_listen: Option<SocketAddr>,

    /// The host name or IP address that others reach this machine by, for the certificate and the enroll line
    #[arg(long, env = "LEASEHOLD_ADVERTISE", value_name = "HOST")]
    advertise: Option<String>,

    /// The data directory
    #[arg(long, env = "LEASEHOLD_DATA", value_name = "DIR", default_value = DATA_DIRECTORY)]
    data: PathBuf,

    /// Say nothing of our own on stderr; a first admin token is left in the data directory
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// What `up` runs: two processes.
struct Both {
    control: Running,
    worker: LocalWorker,
    client: Client,
}

impl Both {
    /// Stops both, the worker first, so that it can still say what it has to say. A further signal meanwhile ends both at
    /// once, as a crash would. Whether they stopped in order.
    async fn stop(self, interrupts: &mut Interrupts) -> anyhow::Result<bool> {
        let stop = async {
            let worker = self.worker.stop().await.context("the worker on this machine did not stop in order");
            self.control.stop().await?;
            worker
        };
        tokio::select! {
            stopped = stop => stopped.map(|()| true),
            () = interrupts.next() => Ok(false),
        }
    }
}

impl Up {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let output = OutputArgs { output: Format::Table, quiet: self.quiet };
        let revision = self.revision()?;
        logging::start(LogFormat::Text, if self.quiet { "off" } else { "warn" });
        let mut interrupts = Interrupts::listen()?;
        let mut starting = Box::pin(self.start(&output));
        let mut told = false;
        let both = loop {
            tokio::select! {
                both = &mut starting => break both?,
                // The first waits for an orderly end; a second one leaves everything as a crash would.
                () = interrupts.next() => {
                    if std::mem::replace(&mut told, true) {
                        return Ok(Exit::Interrupted);
                    }
                    output.note("stopping as soon as it has started");
                }
            }
        };
        if told {
            let in_order = both.stop(&mut interrupts).await?;
            return Ok(if in_order && revision.is_none() { Exit::Done } else { Exit::Interrupted });
        }
        match revision {
            Some(revision) => run(both, revision, &mut interrupts, &output).await,
            None => stay(both, &mut interrupts, &output).await,
        }
    }

    /// The command in the caller's directory; where it runs is added when the worker is there.
    fn revision(&self) -> anyhow::Result<Option<Value>> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let directory = std::env::current_dir().context("cannot find the current directory")?;
        let directory = directory.to_str().ok_or_else(|| {
            UsageError("the path of the current directory is not UTF-8: run it from another directory".to_owned())
        })?;
        let command = Value::map([("argv", Value::texts(&self.command)), ("working_dir", Value::text(directory))]);
        Ok(Some(Value::map([("command", command)])))
    }

    async fn start(&self, output: &OutputArgs) -> anyhow::Result<Both> {
        let named = self.listen.is_some() || self.worker_listen.is_some();
        let listen = Listen {
            api: self.listen.unwrap_or(API),
            ingress: self.worker_listen.unwrap_or(INGRESS),
            advertised: self.advertise.clone(),
            any_port: !named && !self.command.is_empty(),
            cadence: Cadence::default(),
        };
        let store = StoreArgs::default();
        let starting = control_plane::start(&self.data, &store, &listen, |data, token| {
            output.note(&format!("made {}", data.path().display()));
            if self.quiet {
                data.keep_first_token(&token)?;
                return Ok(());
            }
            show_first_token(data, &token)
        });
        let control = starting.await?;
        let socket = control.bound.admin_socket.clone().context("the admin socket is not bound")?;
        let client = Client::new(Target::Socket(socket))?;
        let ingress = format!("https://{}", reachable(control.bound.ingress));
        let worker = match local_worker::start(&client, &control.data, &ingress).await {
            Ok(worker) => worker,
            Err(error) => {
                control.stop().await?;
                return Err(error);
            }
        };
        Ok(Both { control, worker, client })
    }
}

/// An address that something on this machine can connect to.
fn reachable(bound: SocketAddr) -> SocketAddr {
    match bound {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (std::net::Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}

/// Runs the command on the worker of this machine and stops both processes.
async fn run(
    mut both: Both,
    revision: Value,
    interrupts: &mut Interrupts,
    output: &OutputArgs,
) -> anyhow::Result<Exit> {
    let ran = Box::pin(run_here(&mut both, revision, interrupts, output)).await;
    // In any case; the first error is the one to tell.
    let stopped = both.stop(interrupts).await;
    let exit = ran?;
    Ok(if stopped? { exit } else { Exit::Interrupted })
}

async fn run_here(
    both: &mut Both,
    mut revision: Value,
    interrupts: &mut Interrupts,
    output: &OutputArgs,
) -> anyhow::Result<Exit> {
    let Both { control, worker, client } = both;
    let here = Requirements { worker_ids: [worker.name.clone()].into(), ..Requirements::default() };
    let placement = Placement::new(here, Vec::new()).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    if let Value::Map(entries) = &mut revision {
        entries.insert("placement".to_owned(), placement.to_value());
    }
    let revision = Revision::from_value(&revision)
        .map_err(|errors| UsageError(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
    let submit = SubmitRun { project: ProjectName::default(), task: None, revision, params: BTreeMap::new() };
    let run = submit_run(client, route::RUNS, submit.to_body(), output).await?;
    let id = run.item.id.to_string();

    let mut told = 0_u32;
    let follow = async {
        follow::output(client, Wanted { run: &id, attempt: None, follow: true }, output).await?;
        anyhow::Ok(client.get::<RunDetail>(&route::of_run(route::RUN, &id)).await?)
    };
    let follow = waiting::saying_why_pending(client, &id, output, follow);
    tokio::pin!(follow);
    let run = loop {
        tokio::select! {
            run = &mut follow => match run {
                Ok(run) => break run,
                // As if it wrote to the reader itself: who follows it no longer lets nothing of it run on.
                Err(error) => {
                    if let Err(refused) = cancel(client, &id).await {
                        let still = "it may run on until its lease ends";
                        output.note(&format!("run {id} could not be cancelled ({refused:#}): {still}"));
                    }
                    return Err(error);
                }
            },
            error = control.failed() => return Err(error),
            error = worker.failed() => return Err(error),
            () = interrupts.next() => {
                told += 1;
                if told == 1 {
                    output.note("cancelling; Ctrl-C again kills the command");
                    cancel(client, &id).await?;
                } else {
                    kill(client, &id).await?;
                }
            }
        }
    };
    let exit = ended(&run, output, true);
    Ok(if told > 0 { Exit::Interrupted } else { exit })
}

async fn cancel(client: &Client, id: &str) -> anyhow::Result<()> {
    let asked = Asked::json(CancelRun { why: Some("interrupted".to_owned()) }.to_body());
    let cancelled = client.post::<CancelAnswer>(&route::of_run(route::RUN_CANCEL, id), asked).await;
    match cancelled {
        // It ended in the same moment.
        Err(error) if error.exit() == Exit::Conflict => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Kills the command's process, if it still is the one that was started. Its launcher stops what is left of it.
async fn kill(client: &Client, id: &str) -> anyhow::Result<()> {
    let run: RunDetail = client.get(&route::of_run(route::RUN, id)).await?;
    let Some(process) = run.attempts.last().and_then(|attempt| attempt.process.as_ref()) else { return Ok(()) };
    let this_boot = process_identity::boot_id().context("cannot read this machine's boot id")?;
    if process.boot_id != this_boot.to_string() {
        return Ok(());
    }
    if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
        process_identity::signal_verified(pid, process.start_time, Signal::KILL).context("cannot kill the command")?;
    }
    Ok(())
}

/// Stays up until told to stop.
async fn stay(both: Both, interrupts: &mut Interrupts, output: &OutputArgs) -> anyhow::Result<Exit> {
    let Both { mut control, mut worker, client: _ } = both;
    output.note(&where_is_what(&control, &worker));
    let failed = tokio::select! {
        () = interrupts.next() => None,
        error = control.failed() => Some(error),
        error = worker.failed() => Some(error),
    };
    if failed.is_none() {
        output.note("stopping: waiting for what runs; Ctrl-C again cancels it");
        drain(&mut worker, interrupts, output).await?;
    }
    worker.stop().await?;
    let in_order = control.stop_unless(interrupts).await?;
    match failed {
        None if in_order => Ok(Exit::Done),
        None => Ok(Exit::Interrupted),
        Some(error) => Err(error),
    }
}

/// Drains the worker; each further signal is stronger: what runs is cancelled, then the worker killed.
async fn drain(worker: &mut LocalWorker, interrupts: &mut Interrupts, output: &OutputArgs) -> anyhow::Result<()> {
    let mut told = 1;
    worker.drain()?;
    loop {
        tokio::select! {
            gone = worker.gone() => return Ok(gone?),
            () = interrupts.next() => {
                told += 1;
                if told == 2 {
                    output.note("cancelling what runs; Ctrl-C again leaves it behind");
                    worker.drain()?;
                } else {
                    return Ok(worker.kill().await?);
                }
            }
        }
    }
}

fn where_is_what(control: &Running, worker: &LocalWorker) -> String {
    let data = control.data.path().display();
    // Only a directory of another name has to be named.
    let is_default = std::env::current_dir().is_ok_and(|here| here.join(DATA_DIRECTORY) == control.data.path());
    let flag = if is_default { String::new() } else { format!(" --data {data}") };
    format!(
        "\
Leasehold is up.
  operator API    http://{api} (token needed; on this machine the data directory is enough)
  worker ingress  https://{ingress}
  data            {data}
  worker          {name}, log in {log}

  run something   leasehold run{flag} -- uname -a
  add a machine   leasehold worker enroll{flag} --name NAME
  stop            Ctrl-C",
        api = control.bound.api,
        ingress = control.bound.ingress,
        name = worker.name,
        log = control.data.worker_log().display(),
    )
}
