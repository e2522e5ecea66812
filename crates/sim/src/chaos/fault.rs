//! What can go wrong in a chaos run, and in what a fault occupies: two faults of one thing never overlap, everything
//! else does.

use std::fmt;

/// A worker, by its place.
pub(crate) type Worker = usize;

/// Which way a wire is cut, as the worker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    Out,
    In,
}

/// One fault. What lasts has its length in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL of the agent; it is started again at the end.
    KillAgent(Worker),
    /// SIGSTOP of the agent, SIGCONT at the end.
    FreezeAgent(Worker),
    /// SIGTERM: it drains; a second SIGTERM at the end. The service manager starts it again.
    DrainAgent(Worker),
    /// SIGUSR1: it leaves, its jobs stay. The service manager starts it again.
    LeaveRunning(Worker),
    /// SIGHUP: it executes its own binary again.
    HangUp(Worker),
    /// SIGKILL of one launcher.
    KillLauncher(Worker),
    /// SIGSTOP of one launcher, SIGCONT at the end.
    FreezeLauncher(Worker),
    /// Everything of the machine dies, and it starts with another boot id at the end.
    Boot(Worker),
    /// Packets are lost, nobody is told.
    Cut(Worker, Way),
    /// The wire becomes so narrow that packets wait for seconds.
    Narrow(Worker),
    /// The machine's wall clock jumps by so many seconds.
    Clock(Worker, i64),
    /// SIGKILL of the control plane; it is started again at the end.
    KillControl,
    /// SIGSTOP of the control plane, SIGCONT at the end.
    FreezeControl,
    /// SIGTERM of the control plane: it finishes in order. The service manager starts it again.
    RestartControl,
    /// The control plane's wall clock jumps by so many seconds.
    ControlClock(i64),
    /// A person drains the worker, and resumes it at the end.
    Drain(Worker),
    /// A person drains the worker and deletes it once it holds nothing; the machine is enrolled anew at the end. Who still
    /// waits then changes their mind.
    Retire(Worker),
    /// The machine is gone with everything on it, and a person says so; a new one of the same name is enrolled at the end.
    Destroy(Worker),
    /// SIGKILL of one of several control planes, which is started again at once. Never drawn where there is one.
    KillReplica(usize),
    /// PostgreSQL stops as it does in an emergency, and starts again. Never drawn where there is none.
    RestartDatabase,
}

/// What one fault at a time may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Agent(Worker),
    Launchers(Worker),
    Wire(Worker),
    Clock(Worker),
    Control,
    ControlClock,
    /// What a person does with a worker.
    Person(Worker),
}

/// What is never drawn, and why no promise is made for it. (Design, *What may fail*; proof, *Invariants*, 2.)
pub(crate) const EXCLUDED: &[(&str, &str)] = &[
    (
        "a launcher frozen while its agent is frozen or gone",
        "nobody is left to stop the job at its deadline: outside by name (agent and launcher frozen, the job not)",
    ),
    ("a suspended host, or a machine whose clocks stop", "the launcher's timer fires on resume: outside by name"),
    ("a database that loses committed transactions, a disk rolled back", "outside by name"),
    (
        "power cuts that lose what was not synced",
        "a boot here keeps the page cache; lost writes belong to the simulated disk",
    ),
    (
        "a machine that is declared destroyed and lives",
        "the person's word is what counts: whoever gives it has seen to it that nothing runs there",
    ),
    ("a second copy of a worker's state", "its own tests hold it; here every refusal as a copy is a violation"),
];

impl Fault {
    /// The kind, for counts.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KillAgent(_) => "kill agent",
            Self::FreezeAgent(_) => "freeze agent",
            Self::DrainAgent(_) => "drain agent",
            Self::LeaveRunning(_) => "restart agent (SIGUSR1)",
            Self::HangUp(_) => "restart agent (SIGHUP)",
            Self::KillLauncher(_) => "kill launcher",
            Self::FreezeLauncher(_) => "freeze launcher",
            Self::Boot(_) => "boot",
            Self::Cut(_, Way::Both) => "cut wire",
            Self::Cut(_, Way::Out) => "cut wire, worker to control plane",
            Self::Cut(_, Way::In) => "cut wire, control plane to worker",
            Self::Narrow(_) => "delay wire",
            Self::Clock(..) => "jump worker's wall clock",
            Self::KillControl => "kill control plane",
            Self::FreezeControl => "freeze control plane",
            Self::RestartControl => "restart control plane",
            Self::ControlClock(_) => "jump control plane's wall clock",
            Self::Drain(_) => "drain and resume worker, a person",
            Self::Retire(_) => "drain and delete worker, a person",
            Self::Destroy(_) => "destroy machine and delete worker, a person",
            Self::KillReplica(_) => "kill replica",
            Self::RestartDatabase => "restart PostgreSQL (immediate)",
        }
    }

    /// The worker it happens to.
    pub(crate) const fn worker(self) -> Option<Worker> {
        match self {
            Self::KillAgent(worker)
            | Self::FreezeAgent(worker)
            | Self::DrainAgent(worker)
            | Self::LeaveRunning(worker)
            | Self::HangUp(worker)
            | Self::KillLauncher(worker)
            | Self::FreezeLauncher(worker)
            | Self::Boot(worker)
            | Self::Cut(worker, _)
            | Self::Narrow(worker)
            | Self::Clock(worker, _)
            | Self::Drain(worker)
            | Self::Retire(worker)
            | Self::Destroy(worker) => Some(worker),
            Self::KillControl
            | Self::FreezeControl
            | Self::RestartControl
            | Self::ControlClock(_)
            | Self::KillReplica(_)
            | Self::RestartDatabase => None,
        }
    }

    /// How long it waits for something that it can hit, in milliseconds: a launcher lives now and then only, and an agent
    /// that was told to leave is back in a moment.
    pub(crate) const fn aims_for(self) -> u64 {
        match self {
            Self::KillLauncher(_) => 10_000,
            // Meanwhile its agent suffers nothing else.
            Self::FreezeLauncher(_) => 5_000,
            Self::KillAgent(_)
            | Self::FreezeAgent(_)
            | Self::DrainAgent(_)
            | Self::LeaveRunning(_)
            | Self::HangUp(_)
            | Self::KillControl
            | Self::FreezeControl
            | Self::RestartControl => 600,
            _ => 0,
        }
    }

    /// What it holds from its beginning to its end.
    pub(crate) fn parts(self) -> Vec<Part> {
        match self {
            Self::KillAgent(worker)
            | Self::FreezeAgent(worker)
            | Self::DrainAgent(worker)
            | Self::LeaveRunning(worker)
            | Self::HangUp(worker) => vec![Part::Agent(worker)],
            Self::KillLauncher(worker) => vec![Part::Launchers(worker)],
            // With the agent, so that it is neither frozen nor gone meanwhile.
            Self::FreezeLauncher(worker) | Self::Boot(worker) => vec![Part::Agent(worker), Part::Launchers(worker)],
            Self::Cut(worker, _) | Self::Narrow(worker) => vec![Part::Wire(worker)],
            Self::Clock(worker, _) => vec![Part::Clock(worker)],
            Self::KillControl
            | Self::FreezeControl
            | Self::RestartControl
            | Self::KillReplica(_)
            | Self::RestartDatabase => vec![Part::Control],
            Self::ControlClock(_) => vec![Part::ControlClock],
            Self::Drain(worker) => vec![Part::Person(worker)],
            // With the wire: a machine that enrolls has to reach the control plane.
            Self::Retire(worker) => vec![Part::Agent(worker), Part::Wire(worker), Part::Person(worker)],
            Self::Destroy(worker) => {
                vec![Part::Agent(worker), Part::Launchers(worker), Part::Wire(worker), Part::Person(worker)]
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Some(worker) = self.worker() {
            write!(f, " of {}", worker_name(worker))?;
        }
        match self {
            Self::Clock(_, seconds) | Self::ControlClock(seconds) => write!(f, " by {seconds:+} s"),
            Self::KillReplica(replica) => write!(f, " {}", replica + 1),
            _ => Ok(()),
        }
    }
}

/// A worker's id.
pub(crate) fn worker_name(worker: Worker) -> String {
    format!("worker-{}", worker + 1)
}
