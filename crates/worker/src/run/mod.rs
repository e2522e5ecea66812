//! The driver: carries out what the engine says, and tells it what became of it. It decides nothing.
//!
//! A current-thread runtime for the network and the timer, one thread that syncs, short-lived threads for what blocks
//! (a launcher's answer, a look at an attempt). Every task ends with the driver. (Worker design; ARCHITECTURE, *worker*.)

mod disk;
mod launchers;
mod log_watch;
mod readiness;
mod service_manager;
mod signals;
mod timer;
pub(crate) mod users;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::attempt::StopReason;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::{Clock, Entropy, Millis};
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, wait};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::attempt_dir::{AttemptDir, LOG};
use crate::cgroup::{Home, HomeError, Machine as CgroupMachine};
use crate::client::{self, Client};
use crate::config::Config as WorkerConfig;
use crate::detect;
use crate::durable::DurableError;
use crate::engine::port::{Answer, Call, Effect, Exit, Input, Level, Moment, OpId, Outcome, Report, Signal};
use crate::engine::{Config, Engine, Recovered};
use crate::fault::around;
use crate::fault::steps::CGROUP_HOME;
use crate::identity::{self, Identity, MovedError};
use crate::inbox::directory::Inbox;
use crate::launcher::environment::UserEnvironment;
use crate::launcher::spawn::LauncherProgram;
use crate::launcher::{ControlConnection, LauncherState};
use crate::orphans;
use crate::pending_claims::PendingClaims;
use crate::process_identity::boot_id;
use crate::session_file::SessionFile;
use crate::state::{StateError, StateFile};
use crate::state_dir::{OwnError, StateDir, only_agent};
use disk::{Disk, Write};
use launchers::Surroundings;
use log_watch::LogWatch;
use readiness::register;
use service_manager::ServiceManager;
use signals::{Signals, Unheeded};
use timer::Timer;

/// Inputs that wait for the engine at most.
const QUEUE: usize = 1024;
/// Threads for what blocks at most.
const THREADS: usize = 32;
/// How long threads may take to end before this process executes its own binary again.
const THREADS_END: Duration = Duration::from_secs(1);

/// How a worker is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What its owner configured.
    pub config: WorkerConfig,
    /// What every job inherits.
    pub user: UserEnvironment,
    /// How a launcher is started.
    pub launcher: LauncherProgram,
    /// How long the service manager waits for a sign of life, where it does.
    pub watchdog: Option<Duration>,
}

/// A worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It never joined.
    #[error(
        "{0} holds no identity: this machine has not joined. Make a token on the control plane with `leasehold worker \
         enroll --name NAME` and paste the line it prints"
    )]
    NoIdentity(String),
    /// Jobs would run as root.
    #[error(
        "this worker was started as root, and so would its jobs be. Name the user they run as (--run-as USER), or say \
         that root is meant: --allow-root, LEASEHOLD_WORKER_ALLOW_ROOT=1, or `join --allow-root`"
    )]
    Root,
    /// Another process, or another place.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// Another machine, or a copy.
    #[error(transparent)]
    Moved(#[from] MovedError),
    /// A file of the state directory cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file without which nobody can tell who this worker is, is damaged or missing.
    #[error(
        "{0}. Without it the control plane cannot know this worker again. If a backup of this file is at hand, put it \
         back; otherwise enroll the machine anew: `leasehold worker enroll --name NAME`, then `leasehold-worker join …` \
         with a fresh state directory"
    )]
    Untrusted(StateError),
    /// The capabilities are over a limit.
    #[error("this machine cannot be described: {0}")]
    Capabilities(String),
    /// The configured place for control groups is none.
    #[error(transparent)]
    Cgroup(#[from] HomeError),
    /// The identity cannot be used for TLS.
    #[error("the identity cannot be used: {0}")]
    Tls(String),
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<DurableError> for RunError {
    fn from(error: DurableError) -> Self {
        Self::State(error.into())
    }
}

impl RunError {
    /// What a file says that holds who this worker is: a disk that fails is told apart from what is on it.
    fn untrusted(error: StateError) -> Self {
        if error.may_pass() { Self::State(error) } else { Self::Untrusted(error) }
    }

    /// The exit code of the process. A disk that fails may work again: a service manager is to try then, as it is not
    /// where a person has to look.
    pub fn code(&self) -> u8 {
        match self {
            Self::Root | Self::Cgroup(_) => 2,
            Self::Capabilities(_) | Self::Io(_) => 1,
            Self::Own(error) if error.may_pass() => 1,
            Self::Moved(MovedError::State(error)) | Self::State(error) if error.may_pass() => 1,
            _ => 24,
        }
    }
}

/// Everything a start needs, checked and owned.
struct Start {
    state: Arc<StateDir>,
    inbox: Inbox,
    client: Arc<Client>,
    engine: Engine,
    surroundings: Arc<Surroundings>,
    _twin: OwnedFd,
}

/// Runs a worker until it is done. The caller has no other threads or children.
pub fn run(options: &Options, clock: &'static dyn Clock, entropy: impl Entropy + 'static) -> Result<Exit, RunError> {
    // Secrets of jobs pass through this memory: no core file, and no look at it by another process of this user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(std::io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(THREADS).build()?;
    // Before anything that takes time: a signal during the start must be heard, not kill.
    let mut signals = {
        let _context = runtime.enter();
        Signals::listen()?
    };
    let start = prepare(options, clock, entropy)?;
    let (exit, unheeded) = runtime.block_on(async {
        let mut manager = ServiceManager::new(options.watchdog);
        let exit = drive(start, &mut signals, &mut manager, options.config.drain_timeout, clock).await?;
        if exit != Exit::StartOver {
            return Ok((exit, Unheeded::default()));
        }
        service_manager::starting_over();
        Ok::<_, RunError>((exit, signals.hold().await?))
    })?;
    // A launcher's answer that is still awaited is found out by the next start.
    if exit == Exit::StartOver {
        runtime.shutdown_timeout(THREADS_END);
    } else {
        runtime.shutdown_background();
    }
    unheeded.send_again();
    Ok(exit)
}

fn prepare(options: &Options, clock: &dyn Clock, entropy: impl Entropy + 'static) -> Result<Start, RunError> {
    if !identity::exists(&options.config.state_dir) {
        return Err(RunError::NoIdentity(options.config.state_dir.display().to_string()));
    }
    // Launchers and jobs have working directories of their own: every path they get is absolute.
    let path = std::fs::canonicalize(&options.config.state_dir)?;
    let state = StateDir::own(&path)?;
    let mut identity = Identity::read(state.dir())
        .map_err(RunError::untrusted)?
        .ok_or_else(|| RunError::NoIdentity(options.config.state_dir.display().to_string()))?;
    if let Some(server) = &options.config.server {
        // Whoever answers there is believed by its certificate, not by its address.
        identity.address.clone_from(server);
    }
    let root = rustix::process::geteuid().is_root();
    let allow_root = options.config.allow_root || identity.allow_root;
    if root && !allow_root && options.config.run_as.is_empty() {
        return Err(RunError::Root);
    }
    if root && !options.config.run_as.is_empty() {
        state.let_through()?;
    }
    let boot = boot_id()?;
    identity::check_place(state.dir(), &identity, identity::machine_id().as_deref(), &boot)?;
    let twin = only_agent(&identity)?;
    let session = SessionFile::read(state.dir()).and_then(|session| {
        session.ok_or_else(|| StateError::damaged(crate::session_file::FILE_NAME, "it is missing"))
    });
    let session = session.map_err(RunError::untrusted)?;
    let inbox = Inbox::open(&path)?;
    let (asks, fault) = PendingClaims::read_or_quarantine(state.dir(), inbox.quarantine())?;
    if let Some(fault) = fault {
        tracing::error!("{fault}: asking anew");
    }
    let records = read_inbox(&inbox)?;
    let is_known = |attempt| records.iter().any(|record| record.attempt() == attempt);
    for found in orphans::quarantine(state.attempts(), is_known, inbox.quarantine())? {
        tracing::error!("{found}");
    }
    let home = find_home(&options.config, &identity, state.attempts())?;
    let groups = home.as_ref().map(|home| home.features().clone()).unwrap_or_default();
    let capabilities = detect::detect(&options.user.path, &path, groups, options.config.labels.clone(), clock)
        .map_err(|errors| {
            RunError::Capabilities(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(256));
    let config = Config {
        worker: identity.worker.clone(),
        boot: boot.clone(),
        capabilities,
        max_runs: options.config.slots.unwrap_or(cores).clamp(1, 256),
        inbox_records: options.config.inbox_records.max(2 * usize::from(options.config.slots.unwrap_or(cores))),
        drain_timeout: options.config.drain_timeout,
        run_as: options.config.run_as.iter().cloned().collect::<BTreeSet<_>>(),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        spell: client::spell,
    };
    let client = Client::new(&identity).map_err(|error| RunError::Tls(error.to_string()))?;
    let default_user = if root && !allow_root { options.config.run_as.first().cloned() } else { None };
    Ok(Start {
        state: Arc::new(state),
        inbox,
        client: Arc::new(client),
        engine: Engine::new(config, Box::new(entropy), Recovered { session, asks, records }),
        surroundings: Arc::new(Surroundings {
            program: options.launcher.clone(),
            user: options.user.clone(),
            worker: identity.worker,
            boot,
            default_user,
            home,
        }),
        _twin: twin,
    })
}

/// Where control groups are made, with what earlier lives left there removed.
fn find_home(config: &WorkerConfig, identity: &Identity, attempts: &Path) -> Result<Option<Home>, RunError> {
    let name = Home::name(&identity.trust_domain, &identity.worker);
    let machine = match CgroupMachine::read() {
        Ok(machine) => machine,
        Err(error) => {
            tracing::warn!("the control groups of this machine cannot be asked for: {error}");
            return Ok(None);
        }
    };
    let home = match around(CGROUP_HOME, || -> std::io::Result<_> { Ok(Home::find(&config.cgroup, &name, &machine)) }) {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!("no control groups can be made: {error}");
            None
        }
    };
    if let Some(home) = &home {
        let features: Vec<_> = home.features().iter().map(String::as_str).collect();
        tracing::info!("control groups in {}: {}", home.directory().display(), features.join(", "));
        home.sweep(|attempt| attempts.join(attempt.to_string()).exists());
    } else {
        tracing::info!("jobs get no control groups of their own");
    }
    Ok(home)
}

fn read_inbox(inbox: &Inbox) -> Result<Vec<crate::inbox::record::Record>, DurableError> {
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = inbox.page(after.as_deref())?;
        for fault in &page.quarantined {
            tracing::error!("{fault}");
        }
        records.extend(page.records);
        after = page.next;
        if after.is_none() {
            return Ok(records);
        }
    }
}

struct Driver {
    state: Arc<StateDir>,
    client: Arc<Client>,
    surroundings: Arc<Surroundings>,
    clock: &'static dyn Clock,
    inputs: mpsc::Sender<Input>,
    disk: Disk,
    timer: Timer,
    logs: LogWatch,
    calls: HashMap<OpId, AbortHandle>,
    controls: HashMap<AttemptId, Arc<AsyncFd<ControlConnection>>>,
    tasks: JoinSet<()>,
}

async fn drive(
    start: Start,
    signals: &mut Signals,
    manager: &mut ServiceManager,
    drain: Millis,
    clock: &'static dyn Clock,
) -> Result<Exit, RunError> {
    let Start { state, inbox, client, mut engine, surroundings, _twin } = start;
    let (inputs, mut queue) = mpsc::channel(QUEUE);
    let mut driver = Driver {
        disk: Disk::start(Arc::clone(&state), inbox, inputs.clone())?,
        timer: Timer::new()?,
        logs: LogWatch::start(inputs.clone())?,
        state,
        client,
        surroundings,
        clock,
        inputs,
        calls: HashMap::new(),
        controls: HashMap::new(),
        tasks: JoinSet::new(),
    };
    let client = Arc::clone(&driver.client);
    driver.tasks.spawn(async move { client.close_idle_bulk().await });
    let mut input = Input::Start;
    loop {
        if matches!(input, Input::Signal(Signal::Terminate)) {
            service_manager::stopping(drain);
        }
        if matches!(input, Input::HungUp { .. } | Input::Launched { .. }) {
            reap();
        }
        if let Input::Answer { op, .. } = &input {
            driver.calls.remove(op);
        }
        let now = Moment { boot: clock.boot(), utc: clock.utc() };
        for effect in engine.step(now, input) {
            if let Some(exit) = driver.carry_out(effect)? {
                driver.leave_home();
                return Ok(exit);
            }
        }
        manager.ready();
        manager.status(engine.summary());
        // Finished tasks are forgotten; there is nothing to learn from them.
        while driver.tasks.try_join_next().is_some() {}
        input = loop {
            tokio::select! {
                biased;
                signal = signals.next() => break Input::Signal(signal),
                () = manager.feed() => {}
                fired = driver.timer.fired() => {
                    fired?;
                    break Input::Timer;
                }
                Some(input) = queue.recv() => break input,
            }
        };
    }
}

/// Launchers that ended and are this process's children, also those of its life before an `exec`.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

impl Driver {
    fn carry_out(&mut self, effect: Effect) -> Result<Option<Exit>, RunError> {
        match effect {
            Effect::Call { op, call, timeout } => self.call(op, call, timeout),
            Effect::CancelCall { op } => {
                if let Some(call) = self.calls.remove(&op) {
                    call.abort();
                }
            }
            Effect::WriteRecord { op, record } => self.disk.write(op, Write::Record(record)),
            Effect::RemoveRecord { op, offer } => self.disk.write(op, Write::RemoveRecord(offer)),
            Effect::WriteSession { op, file } => self.disk.write(op, Write::Session(file)),
            Effect::WriteAsks { op, asks } => self.disk.write(op, Write::Asks(asks)),
            Effect::CreateDirectory { op, attempt } => self.disk.write(op, Write::CreateDirectory(attempt)),
            Effect::RemoveDirectory { op, attempt } => {
                self.controls.remove(&attempt);
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                self.blocking(move || {
                    let result = launchers::remove(&surroundings, state.attempts(), attempt);
                    Input::Done { op, result }
                });
            }
            Effect::Launch { op, launch } => {
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                self.blocking(move || {
                    let answer = launchers::launch(&surroundings, state.attempts(), &launch);
                    Input::Launched { op, answer }
                });
            }
            Effect::Observe { op, attempt, tombstone } => {
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                self.blocking(move || {
                    let found = launchers::look(state.attempts(), attempt, &surroundings.boot, tombstone);
                    Input::Observed { op, found: found.map(Box::new) }
                });
            }
            Effect::Attach { op, offer, attempt } => self.attach(op, offer, attempt),
            Effect::StopRemains { op, attempt } => {
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                let clock = self.clock;
                self.blocking(move || {
                    let evidence = launchers::stop_remains(state.attempts(), attempt, &surroundings.boot, clock);
                    Input::Remains { op, evidence }
                });
            }
            Effect::SendDeadline { attempt, deadline } => {
                if let Some(control) = self.controls.get(&attempt)
                    && let Err(error) = control.get_ref().extend(deadline)
                {
                    // It has just ended: the hang-up is on its way.
                    tracing::debug!(%attempt, "its launcher did not take the renewed deadline: {error}");
                }
            }
            Effect::SendStop { attempt, reason } => self.stop(attempt, reason),
            Effect::SetTimer(at) => self.timer.set(at)?,
            Effect::Report(report) => say(&report),
            Effect::Exit(exit) => return Ok(Some(exit)),
        }
        Ok(None)
    }

    /// Takes the place for control groups away, where no attempt may need it any more.
    fn leave_home(&self) {
        let idle = std::fs::read_dir(self.state.attempts()).is_ok_and(|mut entries| entries.next().is_none());
        if let (Some(home), true) = (&self.surroundings.home, idle) {
            home.leave();
        }
    }

    fn blocking(&mut self, work: impl FnOnce() -> Input + Send + 'static) {
        let inputs = self.inputs.clone();
        self.tasks.spawn(async move {
            if let Ok(input) = tokio::task::spawn_blocking(work).await {
                let _ = inputs.send(input).await;
            }
        });
    }

    fn call(&mut self, op: OpId, call: Call, timeout: Millis) {
        let (client, inputs) = (Arc::clone(&self.client), self.inputs.clone());
        let state = Arc::clone(&self.state);
        let task = self.tasks.spawn(async move {
            let (outcome, directives) = match &call {
                Call::Log { lease, offset, most, .. } => {
                    let (attempt, offset, most) = (lease.attempt, *offset, *most);
                    let read = move || launchers::read_log(state.attempts(), attempt, offset, most);
                    match tokio::task::spawn_blocking(read).await {
                        Ok(Ok(bytes)) if bytes.is_empty() => {
                            // No whole frame yet: as far as the log is durable, it is.
                            (Outcome::Answered(Answer::Log { durable: offset }), Vec::new())
                        }
                        Ok(Ok(bytes)) => client.call(&call, bytes, timeout).await,
                        Ok(Err(why)) => (Outcome::Refused(Refusal::new(RefusalCode::InvalidRequest, why)), Vec::new()),
                        Err(error) => (Outcome::NotDone(error.to_string()), Vec::new()),
                    }
                }
                call => client.call(call, Bytes::new(), timeout).await,
            };
            let _ = inputs.send(Input::Answer { op, outcome, directives }).await;
        });
        self.calls.insert(op, task);
    }

    fn attach(&mut self, op: OpId, offer: OfferId, attempt: AttemptId) {
        let connected = AttemptDir::find(self.state.attempts(), attempt)
            .ok()
            .flatten()
            .and_then(|dir| Some((ControlConnection::connect(&dir).ok().flatten()?, dir.path(LOG))))
            .and_then(|(connection, log)| Some((Arc::new(register(connection).ok()?), log)));
        let (inputs, watch) = (self.inputs.clone(), self.logs.handle());
        let Some((control, log)) = connected else {
            self.tasks.spawn(async move {
                let _ = inputs.send(Input::Attached { op, attached: false }).await;
            });
            return;
        };
        self.controls.insert(attempt, Arc::clone(&control));
        self.tasks.spawn(async move {
            let _ = inputs.send(Input::Attached { op, attached: true }).await;
            let _ = watch.send((offer, log)).await;
            listen(&control, offer, &inputs).await;
        });
    }

    fn stop(&self, attempt: AttemptId, reason: StopReason) {
        let Some(control) = self.controls.get(&attempt) else { return };
        if let Err(error) = control.get_ref().stop(reason, None) {
            tracing::debug!(%attempt, "its launcher did not take the stop: {error}");
        }
    }
}

/// Hears a launcher until it hangs up.
async fn listen(control: &AsyncFd<ControlConnection>, offer: OfferId, inputs: &mpsc::Sender<Input>) {
    loop {
        let Ok(mut ready) = control.readable().await else { break };
        match ready.try_io(|fd| fd.get_ref().receive()) {
            Ok(Ok(Some(LauncherState::Unwritten(receipt)))) => {
                let receipt = Box::new(launchers::said(&receipt));
                let _ = inputs.send(Input::Said { offer, receipt }).await;
            }
            Ok(Ok(Some(LauncherState::Running { .. } | LauncherState::Ended))) | Err(_) => {}
            Ok(Ok(None) | Err(_)) => break,
        }
    }
    let _ = inputs.send(Input::HungUp { offer }).await;
}

fn say(report: &Report) {
    let text = &report.text;
    match (report.level, report.attempt) {
        (Level::Info, None) => tracing::info!("{text}"),
        (Level::Info, Some(attempt)) => tracing::info!(%attempt, "{text}"),
        (Level::Warning, None) => tracing::warn!("{text}"),
        (Level::Warning, Some(attempt)) => tracing::warn!(%attempt, "{text}"),
        (Level::Fault, None) => tracing::error!("{text}"),
        (Level::Fault, Some(attempt)) => tracing::error!(%attempt, "{text}"),
    }
}
