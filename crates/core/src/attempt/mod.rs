//! An attempt: one try at a run, started at most once.
//!
//! Its states and their one table, what it is made of, and, in [`activation`], the acknowledgements that move it. A
//! terminal attempt never changes but for its resolution and for what becomes known of it. (Protocol, *Attempts*; ADR-0012
//! §3.)

mod activation;
mod evidence;

pub use activation::{Held, RunningCall, Starting, StartingAnswer, running, starting, stop_unstarted};
pub(crate) use activation::{run_started, started};
pub use evidence::{EvidenceKind, Left};

use std::collections::BTreeSet;

use crate::counter::{AttemptNumber, AttemptVersion, CallbackSequence, LeaseGeneration};
use crate::crypto::Digest;
use crate::frame::Cut;
use crate::id::{AttemptId, BootId, RunId, WorkerId};
use crate::resolve::Word;
use crate::run::StopIntentReason;
use crate::time::{LeaseInstant, Millis, UtcMillis};

names! {
    /// Where an attempt stands.
    pub enum AttemptState as "attempt state" {
        /// Waits to be claimed.
        Pending = "pending",
        /// A worker holds its lease; nothing started.
        Claimed = "claimed",
        /// The worker may start it now.
        Starting = "starting",
        /// Its process runs.
        Running = "running",
        /// Its process ended well.
        Succeeded = "succeeded",
        /// Its process ended badly, or it never came to run.
        Failed = "failed",
        /// It was stopped by a person's wish, or never started because of it.
        Cancelled = "cancelled",
        /// It was stopped by its time limit.
        TimedOut = "timed_out",
        /// Contact was lost.
        Lost = "lost",
    }
}

impl AttemptState {
    /// Whether the attempt has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::TimedOut | Self::Lost)
    }

    /// Whether its process may be alive by the control plane's knowledge.
    pub const fn is_started(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }

    /// Whether a worker holds it: its lease is active.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Claimed | Self::Starting | Self::Running)
    }

    /// Whether the one table of attempt transitions allows this step.
    pub const fn may_become(self, to: Self) -> bool {
        use AttemptState::{Cancelled, Claimed, Failed, Lost, Pending, Running, Starting, Succeeded, TimedOut};
        match self {
            Pending => matches!(to, Claimed | Cancelled | TimedOut),
            Claimed => matches!(to, Pending | Starting | Cancelled | TimedOut),
            Starting => matches!(to, Running | Succeeded | Failed | Cancelled | TimedOut | Lost),
            Running => matches!(to, Succeeded | Failed | Cancelled | TimedOut | Lost),
            Succeeded | Failed | Cancelled | TimedOut | Lost => false,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// With an exit code, 0 to 255.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

impl ExitStatus {
    /// Whether it ended well.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// The code a shell would show: its own, or 128 + the signal.
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal.clamp(0, 127)).unwrap_or(u8::MAX),
        }
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

names! {
    /// Why a launcher stopped a job.
    pub enum StopReason as "stop reason" {
        /// The run was cancelled.
        Cancel = "cancel",
        /// The run's time limit.
        Timeout = "timeout",
        /// The lease was about to end and nobody renewed it.
        Lease = "lease",
        /// The worker was told twice to shut down.
        Shutdown = "shutdown",
    }
}

names! {
    /// Why the launcher is sure that nothing of the user's ran.
    pub enum RejectReason as "reject reason" {
        /// The program cannot be found or executed.
        Exec = "exec",
        /// The working directory cannot be entered or made.
        WorkingDir = "working_dir",
        /// The user to run as cannot be become.
        RunAs = "run_as",
        /// A limit cannot be set.
        Limits = "limits",
        /// The log, the receipt or the attempt's directory cannot be written.
        Storage = "storage",
        /// The deadline had passed before the execution.
        Deadline = "deadline",
        /// Recovery had closed the spawn barrier first.
        Tombstone = "tombstone",
        /// The request does not fit its revision, or cannot be read.
        Request = "request",
        /// The operating system refused a process.
        Spawn = "spawn",
    }
}

names! {
    /// What closed the question of a lost attempt.
    pub enum Resolution as "resolution" {
        /// Still open.
        None = "none",
        /// A receipt that arrived after all.
        Receipt = "receipt",
        /// The policy pinned in the revision.
        Policy = "policy",
        /// A person.
        Person = "person",
    }
}

/// What an attempt, or a run, ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its process ended by itself.
    Exited(ExitStatus),
    /// It was stopped, and how its process then ended.
    Stopped(StopReason, ExitStatus),
    /// Nothing of the user's ran, for a reason that the launcher gives.
    Rejected {
        /// Which step refused.
        reason: RejectReason,
        /// In the launcher's words, at most 512 characters.
        detail: String,
    },
    /// Nothing of the user's ran: recovery closed the spawn barrier before the launcher did.
    NeverSpawned,
    /// It was stopped before anything started.
    NotStarted(StopIntentReason),
    /// Nobody saw its end.
    Lost(EvidenceKind),
    /// Another attempt's late evidence closed the run first.
    Superseded,
}

names! {
    /// What keeps a job within one of its limits.
    pub enum LimitMeans as "means of a limit" {
        /// A control group: the job as a whole.
        Cgroup = "cgroup",
        /// A resource limit of each process, or of all that its user runs.
        Rlimit = "rlimit",
        /// Nothing: this machine cannot, and the revision said that this will do.
        None = "none",
    }
}

/// How each limit that the revision asks for is kept; `None` where it asks for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsKept {
    /// `limits.memory_mib`.
    pub memory: Option<LimitMeans>,
    /// `limits.cpu`.
    pub cpu: Option<LimitMeans>,
    /// `limits.pids`.
    pub pids: Option<LimitMeans>,
}

/// What the machine used up for an attempt, as its launcher measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode.
    pub user: Millis,
    /// Processor time in the kernel.
    pub system: Millis,
    /// Largest resident set, in KiB.
    pub max_rss_kib: u64,
    /// Whether the kernel killed something of it for lack of memory; known only of a job with a memory control group.
    pub oom_killed: bool,
    /// How its limits were kept.
    pub limits: LimitsKept,
}

/// Names one launch: the sequence and the digest of its completion token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Callback {
    /// Chosen by the worker before the launch.
    pub sequence: CallbackSequence,
    /// SHA-256 of the completion token; the token itself arrives only with the end.
    pub token: Digest,
}

/// What a launcher started: enough to name the process later, on its own machine and boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// The boot it lives in.
    pub boot: BootId,
    /// Its process id.
    pub pid: u32,
    /// Its start time in clock ticks since boot: a reused pid differs.
    pub start_time: u64,
}

/// A log as the end pinned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPin {
    /// Framed bytes.
    pub length: u64,
    /// Their digest.
    pub digest: Digest,
    /// What the launcher could not keep of the output, where there is any: summed over the log's cuts, and said here
    /// also where the disk had no room for a cut frame.
    pub cut: Option<Cut>,
    /// Whether the launcher brought it to its end; one that died left what it had written.
    pub finished: bool,
}

/// An attempt as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Which attempt.
    pub id: AttemptId,
    /// Of which run.
    pub run: RunId,
    /// Which try: 1, 2, …
    pub number: AttemptNumber,
    /// Where it stands.
    pub state: AttemptState,
    /// Compare-and-swap version.
    pub version: AttemptVersion,
    /// The generation of its latest lease; none before the first claim.
    pub lease_generation: Option<LeaseGeneration>,
    /// Who held it last.
    pub worker: Option<WorkerId>,
    /// The boot that `starting` stored.
    pub boot: Option<BootId>,
    /// While starting: by when `running` is expected.
    pub start_by: Option<LeaseInstant>,
    /// When its time is up.
    pub deadline: Option<LeaseInstant>,
    /// What the launcher started.
    pub handle: Option<Handle>,
    /// Which launch may end it.
    pub callback: Option<Callback>,
    /// When it was claimed, for people.
    pub claimed_at: Option<UtcMillis>,
    /// When `starting` was accepted.
    pub starting_at: Option<UtcMillis>,
    /// When its process started.
    pub running_at: Option<UtcMillis>,
    /// When it ended.
    pub ended_at: Option<UtcMillis>,
    /// What it ended with.
    pub outcome: Option<Outcome>,
    /// What closed its question, once it was lost.
    pub resolution: Resolution,
    /// The word of the person who closed its question, where one did.
    pub word: Option<Word>,
    /// Everything that is known of an end that nobody saw, what came later included.
    pub evidence: BTreeSet<EvidenceKind>,
    /// Whether something it started may still live: it then keeps its places.
    pub may_live: bool,
    /// What the kernel would not let go when it was stopped; of a live attempt, what it does not let go so far.
    pub left: Option<Left>,
    /// The length and digest its end gave its log.
    pub log: Option<LogPin>,
    /// What it used up.
    pub usage: Option<Usage>,
}

impl Attempt {
    /// A new attempt that waits to be claimed; it inherits no fence, handle, token or sequence.
    pub fn pending(id: AttemptId, run: RunId, number: AttemptNumber) -> Self {
        Self {
            id,
            run,
            number,
            state: AttemptState::Pending,
            version: AttemptVersion::FIRST,
            lease_generation: None,
            worker: None,
            boot: None,
            start_by: None,
            deadline: None,
            handle: None,
            callback: None,
            claimed_at: None,
            starting_at: None,
            running_at: None,
            ended_at: None,
            outcome: None,
            resolution: Resolution::None,
            word: None,
            evidence: BTreeSet::new(),
            may_live: false,
            left: None,
            log: None,
            usage: None,
        }
    }

    /// The same attempt one version later in `state`. The table holds as for [`crate::run::Run::moved`].
    #[must_use]
    pub fn moved(&self, state: AttemptState) -> Self {
        debug_assert!(self.state == state || self.state.may_become(state), "attempt {} to {state}", self.state);
        Self { state, version: self.version.next(), ..self.clone() }
    }

    /// The same attempt one version later, ended.
    #[must_use]
    pub fn ended(&self, state: AttemptState, outcome: Outcome, at: UtcMillis) -> Self {
        let mut attempt = self.moved(state);
        attempt.outcome = Some(outcome);
        attempt.ended_at = Some(at);
        attempt.start_by = None;
        attempt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_attempt_transitions_is_the_protocols() {
        let rows = [
            ("pending", "claimed cancelled timed_out"),
            ("claimed", "pending starting cancelled timed_out"),
            ("starting", "running succeeded failed cancelled timed_out lost"),
            ("running", "succeeded failed cancelled timed_out lost"),
            ("succeeded", ""),
            ("failed", ""),
            ("cancelled", ""),
            ("timed_out", ""),
            ("lost", ""),
        ];
        for (from, allowed) in rows {
            let from: AttemptState = from.parse().unwrap();
            for to in AttemptState::ALL {
                let listed = allowed.split(' ').any(|name| name == to.as_str());
                assert_eq!(from.may_become(*to), listed, "{from} → {to}");
            }
        }
        assert_eq!(rows.len(), AttemptState::ALL.len());
    }

    #[test]
    fn a_shell_would_show_the_same_code() {
        assert_eq!(ExitStatus::Code(7).shell_code(), 7);
        assert_eq!(ExitStatus::Signal(9).shell_code(), 137);
        assert_eq!(ExitStatus::Signal(64).shell_code(), 192);
    }
}
