//! The driver: carries out what the engine says, and tells it what became of it. It decides nothing.
//!
//! A current-thread runtime for the network and the timer, one thread that syncs, short-lived threads for what blocks
//! (a launcher's answer, a look at an attempt). Every task ends with the driver. (Worker design.)

mod disk;
mod faults;
mod launchers;
mod log_watch;
mod prepare;
mod questions;
mod readiness;
mod service_manager;
mod signals;
mod tasks;
mod timer;
pub(crate) mod users;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::attempt::{EvidenceKind, StopReason};
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::{Clock, Entropy, Millis};
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, wait};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::attempt_dir::{AttemptDir, LOG};
use crate::client::Client;
use crate::config::Config as WorkerConfig;
use crate::detect::Found;
use crate::engine::Engine;
use crate::engine::port::{
    Answer, Call, Effect, Exit, Input, LaunchAnswer, Level, Moment, OpId, Outcome, Report, Signal,
};
use crate::launcher::environment::UserEnvironment;
use crate::launcher::spawn::LauncherProgram;
use crate::launcher::{ControlConnection, LauncherState};
use crate::state_dir::StateDir;
use crate::status::Agent;
use disk::{Disk, Lowness, Write};
use faults::Faults;
use launchers::Surroundings;
use log_watch::LogWatch;
pub use prepare::RunError;
use prepare::{Start, prepare};
use questions::{Asked, Followers};
use readiness::register;
use service_manager::ServiceManager;
use signals::Signals;
use tasks::{BROKE, Tasks};
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
    /// Whether a state directory that stopped for good tries again: a person has granted a takeover.
    pub take_over: bool,
    /// How a launcher is started.
    pub launcher: LauncherProgram,
    /// What the image before this one found here, where nobody asked to look again.
    pub found: Option<Found>,
    /// How long the service manager waits for a sign of life, where it does.
    pub watchdog: Option<Duration>,
}

/// How a worker ended.
#[derive(Debug)]
pub struct Ended {
    /// Why.
    pub exit: Exit,
    /// What the next image of this process need not look for again.
    pub found: Option<Found>,
}

/// Runs a worker until it is done. The caller has no other threads or children.
pub fn run(options: &Options, clock: &'static dyn Clock, entropy: impl Entropy + 'static) -> Result<Ended, RunError> {
    // Secrets of jobs pass through this memory: no core file, and no look at it by another process of this user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(std::io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(THREADS).build()?;
    // Before anything that takes time: a signal during the start must be heard, not kill.
    let mut signals = {
        let _context = runtime.enter();
        Signals::listen()?
    };
    let start = prepare(options, clock, entropy)?;
    let found = start.found.clone();
    let exit = runtime.block_on(async {
        let mut manager = ServiceManager::new(options.watchdog);
        drive(start, &mut signals, &mut manager, options.config.drain_timeout, clock).await
    })?;
    // A launcher's answer that is still awaited is found out by the next start.
    if exit.begins_again() {
        service_manager::starting_over();
        runtime.shutdown_timeout(THREADS_END);
    } else {
        runtime.shutdown_background();
    }
    Ok(Ended { exit, found: (exit == Exit::Expired).then_some(found) })
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
    tasks: Tasks,
    faults: Faults,
}

async fn drive(
    start: Start,
    signals: &mut Signals,
    manager: &mut ServiceManager,
    drain: Millis,
    clock: &'static dyn Clock,
) -> Result<Exit, RunError> {
    let Start { state, inbox, client, mut engine, surroundings, faults, found: _, _twin } = start;
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
        tasks: Tasks::default(),
        faults,
    };
    // Nobody can ask then; the jobs do not care.
    let mut asked = questions::listen(&driver.state).unwrap_or_else(|error| {
        driver.faults.found(format!("nobody at this machine can ask the agent: {error}"), clock.utc());
        mpsc::channel(1).1
    });
    let mut followers = Followers::default();
    let client = Arc::clone(&driver.client);
    driver.tasks.spawn(Vec::new(), async move {
        client.close_idle_bulk().await;
        None
    });
    let (mut input, mut lowness) = (Input::Start, Lowness::default());
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
        // Looked at whenever something happens anyway: no wake-up of its own.
        let disk = lowness.changed(&driver.state).map(|low| Input::Disk { low });
        for input in disk.into_iter().chain([input]) {
            for effect in engine.step(now, input) {
                if let Some(exit) = driver.carry_out(effect)? {
                    driver.leave_home();
                    return Ok(exit);
                }
            }
        }
        manager.ready();
        manager.status(engine.summary());
        followers.tell(engine.open(), || driver.status(&engine));
        input = loop {
            tokio::select! {
                biased;
                signal = signals.next() => break Input::Signal(signal?),
                () = manager.feed() => {}
                Some(asked) = asked.recv() => match asked {
                    // Whoever asked may have gone.
                    Asked::Status(answer) => _ = answer.send(driver.status(&engine)),
                    Asked::DrainedHere(drain, answer) => {
                        // Until the next step nothing else is asked: the answer says what then holds.
                        let mut agent = driver.status(&engine);
                        agent.drained_here = drain;
                        // It holds, whether or not anybody waits to hear so.
                        let _ = answer.send(agent);
                        break Input::DrainedHere(drain);
                    }
                    Asked::Follow(follower) => followers.add(follower, driver.status(&engine)),
                },
                fired = driver.timer.fired() => {
                    fired?;
                    break Input::Timer;
                }
                // Before the tasks' last words: a hang-up comes after what the launcher said.
                Some(input) = queue.recv() => break input,
                input = driver.tasks.next() => break input,
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
            Effect::WriteRecord { op, record } => self.disk.write(op, Write::Record(record))?,
            Effect::RemoveRecord { op, offer } => self.disk.write(op, Write::RemoveRecord(offer))?,
            Effect::WriteSession { op, file } => self.disk.write(op, Write::Session(file))?,
            Effect::WriteAsks { op, asks } => self.disk.write(op, Write::Asks(asks))?,
            Effect::CreateDirectory { op, attempt } => self.disk.write(op, Write::CreateDirectory(attempt))?,
            Effect::RemoveDirectory { op, attempt } => {
                self.controls.remove(&attempt);
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                let owed = Input::Done { op, result: Err(BROKE.to_owned()) };
                self.tasks.blocking(owed, move || {
                    let result = launchers::remove(&surroundings, state.attempts(), attempt);
                    Input::Done { op, result }
                });
            }
            Effect::Launch { op, launch } => {
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                let owed = Input::Launched { op, answer: LaunchAnswer::Unknown(BROKE.to_owned()) };
                self.tasks.blocking(owed, move || {
                    let answer = launchers::launch(&surroundings, state.attempts(), &launch);
                    Input::Launched { op, answer }
                });
            }
            Effect::Observe { op, attempt, tombstone } => {
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                let owed = Input::Observed { op, found: Err(BROKE.to_owned()) };
                self.tasks.blocking(owed, move || {
                    let found = launchers::look(state.attempts(), attempt, &surroundings.boot, tombstone);
                    Input::Observed { op, found: found.map(Box::new) }
                });
            }
            Effect::Attach { op, offer, attempt } => self.attach(op, offer, attempt),
            Effect::StopRemains { op, attempt } => {
                let (state, surroundings) = (Arc::clone(&self.state), Arc::clone(&self.surroundings));
                let clock = self.clock;
                let owed = Input::Remains { op, evidence: EvidenceKind::LauncherKilledMayLive };
                self.tasks.blocking(owed, move || {
                    let evidence = launchers::stop_remains(state.attempts(), attempt, &surroundings.boot, clock);
                    Input::Remains { op, evidence }
                });
            }
            Effect::MeasureLog { op, attempt } => {
                let state = Arc::clone(&self.state);
                self.tasks.blocking(Input::LogMeasured { op, log: None }, move || {
                    let log = launchers::measure_log(state.attempts(), attempt);
                    Input::LogMeasured { op, log }
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
            Effect::Report(report) => {
                say(&report);
                self.faults.remember(&report, self.clock.utc());
            }
            Effect::Exit(exit) => return Ok(Some(exit)),
        }
        Ok(None)
    }

    /// Takes the place for control groups away, where no attempt may need it any more.
    fn leave_home(&self) {
        let idle = std::fs::read_dir(self.state.attempts()).is_ok_and(|mut entries| entries.next().is_none());
        if let (Some(home), true) = (&self.surroundings.home, idle) {
            // Groups of what was kept on purpose and has ended since.
            home.sweep(|_| false);
            home.leave();
        }
    }

    /// What a person is told.
    fn status(&self, engine: &Engine) -> Agent {
        Agent { pid: std::process::id(), faults: self.faults.list(), ..engine.status(self.clock.boot()) }
    }

    fn call(&mut self, op: OpId, call: Call, timeout: Millis) {
        let (client, state) = (Arc::clone(&self.client), Arc::clone(&self.state));
        let broke = Outcome::Unknown(BROKE.to_owned());
        let owed = Input::Answer { op, outcome: broke, directives: Vec::new() };
        let task = self.tasks.spawn(vec![owed], async move {
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
                        // No longer what was written there: as bad as other bytes at the control plane.
                        Ok(Err(why)) => (Outcome::Refused(Refusal::new(RefusalCode::ConflictReplay, why)), Vec::new()),
                        Err(error) => (Outcome::NotDone(error.to_string()), Vec::new()),
                    }
                }
                call => client.call(call, Bytes::new(), timeout).await,
            };
            Some(Input::Answer { op, outcome, directives })
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
            let refused = Input::Attached { op, attached: false };
            self.tasks.spawn(Vec::new(), async { Some(refused) });
            return;
        };
        self.controls.insert(attempt, Arc::clone(&control));
        let owed = vec![Input::Attached { op, attached: false }, Input::HungUp { offer }];
        self.tasks.spawn(owed, async move {
            // Through the queue, as what the launcher says: in this order. It fails only where the agent leaves.
            let _ = inputs.send(Input::Attached { op, attached: true }).await;
            // Without the watch the log is shipped when the job has ended.
            let _ = watch.send((offer, log)).await;
            listen(&control, offer, &inputs).await;
            Some(Input::HungUp { offer })
        });
    }

    fn stop(&self, attempt: AttemptId, reason: StopReason) {
        let Some(control) = self.controls.get(&attempt) else { return };
        if let Err(error) = control.get_ref().stop(reason, None) {
            tracing::debug!(%attempt, "its launcher did not take the stop: {error}");
        }
    }
}

/// Hears a launcher until it hangs up. Where the agent leaves nobody hears it: its words then stand on disk, or are said
/// again to the next start.
async fn listen(control: &AsyncFd<ControlConnection>, offer: OfferId, inputs: &mpsc::Sender<Input>) {
    loop {
        let Ok(mut ready) = control.readable().await else { break };
        match ready.try_io(|fd| fd.get_ref().receive()) {
            Ok(Ok(Some(LauncherState::Unwritten(receipt)))) => {
                let receipt = Box::new(launchers::said(&receipt));
                let _ = inputs.send(Input::Said { offer, receipt }).await;
            }
            Ok(Ok(Some(LauncherState::Running { left, .. }))) => {
                let _ = inputs.send(Input::Left { offer, left }).await;
            }
            Ok(Ok(Some(LauncherState::Ended))) | Err(_) => {}
            Ok(Ok(None) | Err(_)) => break,
        }
    }
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
