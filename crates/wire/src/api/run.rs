//! Runs and attempts as lists and pages show them.

use std::collections::BTreeMap;

use leasehold_core::attempt::{self, Attempt, ExitStatus, LimitMeans, Resolution};
use leasehold_core::chain::After;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName, TriggerName, WorkerId};
use leasehold_core::log::{LogState, completeness};
use leasehold_core::resolve;
use leasehold_core::revision::Revision;
use leasehold_core::run::{Run, RunState, StopIntent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::time::Time;
use crate::document::Document;
use crate::field;

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunItem {
    /// Which run.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub id: RunId,
    /// Whose namespace.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub project: ProjectName,
    /// Of which task, if of one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Name>")]
    pub task: Option<TaskName>,
    /// The trigger of its task that admitted it; a webhook, where there is no `scheduled_at`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Name>")]
    pub trigger: Option<TriggerName>,
    /// The nominal time that it was admitted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<Time>,
    /// The name of its revision, or its command's first words.
    pub name: String,
    /// Where it stands.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<RunState>")]
    pub state: RunState,
    /// Compare-and-swap version.
    pub version: u64,
    /// Higher goes first.
    pub priority: i16,
    /// The number of its latest attempt.
    pub attempt: u64,
    /// Who has its latest attempt, or had.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Name>")]
    pub worker: Option<WorkerId>,
    /// When it was submitted.
    pub created_at: Time,
    /// When its first process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// What it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Whether its attempt's own end was not observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_not_observed: bool,
    /// The wish that it stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// The runs that it follows, by the tasks that its own runs after (`LEASEHOLD_AFTER`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<String, String>,
    /// The digest of its revision.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Sha256")]
    pub revision_digest: Digest,
}

/// A run with everything there is to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub item: RunItem,
    /// The highest fence number it ever gave out (`LEASEHOLD_FENCE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Attempts that count against its retry policy.
    pub failures: u32,
    /// Failures of the machinery, counted apart.
    pub machinery_failures: u32,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptDetail>,
    /// What it executes, every default written out.
    #[schemars(with = "schema::TaskShape")]
    pub revision: Document,
}

/// One try at a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptDetail {
    /// Which attempt.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub id: AttemptId,
    /// Which try: 1, 2, …
    pub number: u64,
    /// Where it stands.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<attempt::AttemptState>")]
    pub state: attempt::AttemptState,
    /// Who has it, or had.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Name>")]
    pub worker: Option<WorkerId>,
    /// When it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Time>,
    /// When `starting` was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting_at: Option<Time>,
    /// When its process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// What it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What closed its question, once it was lost.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<Resolution>")]
    pub resolution: Resolution,
    /// The word of the person who closed its question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<Word>,
    /// Everything that is known of an end that nobody saw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Whether something it started may still live.
    pub may_live: bool,
    /// What the kernel would not let go when it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_incomplete: Option<CancelIncomplete>,
    /// Its process, on its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// What it used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Its log.
    pub log: Log,
}

/// The word of the person who closed a lost attempt's question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Word {
    /// `retry`, `mark-failed` or `mark-succeeded`.
    pub verb: String,
    /// Who said it.
    pub by: String,
    /// Their reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When.
    pub at: Time,
}

impl From<&resolve::Word> for Word {
    fn from(core: &resolve::Word) -> Self {
        Self { verb: core.verb.to_string(), by: core.by.clone(), why: core.why.clone(), at: core.at.into() }
    }
}

/// Processes that could not be killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelIncomplete {
    /// How many.
    pub count: u64,
    /// The process ids of the first of them.
    pub pids: Vec<u32>,
}

/// A process on its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// The boot it lives in.
    pub boot_id: String,
    /// Its process id.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

/// What the machine used up for an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Processor time in user mode.
    pub user_ms: u64,
    /// Processor time in the kernel.
    pub system_ms: u64,
    /// Largest resident set, in KiB.
    pub max_rss_kib: u64,
    /// Whether the kernel killed something of it for lack of memory.
    pub oom_killed: bool,
    /// How each limit that its revision asks for was kept.
    pub limits: LimitsKept,
}

/// How each limit that a revision asks for was kept: `cgroup`, `rlimit` or `none`; absent where it asks for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitsKept {
    /// `limits.memory_mib`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::OneOf<LimitMeans>>")]
    pub memory: Option<LimitMeans>,
    /// `limits.cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::OneOf<LimitMeans>>")]
    pub cpu: Option<LimitMeans>,
    /// `limits.pids`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::OneOf<LimitMeans>>")]
    pub pids: Option<LimitMeans>,
}

/// How much of a log has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Log {
    /// Whether it is whole: `open`, `complete`, `partial` or `incomplete`.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<LogState>")]
    pub state: LogState,
    /// Why it is incomplete: `disk_full`, `write_failed`, `launcher_died`, `end_unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Framed bytes that have arrived.
    pub received: u64,
    /// Framed bytes that the end said there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Output that the worker could not keep, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<LogCut>,
}

/// Output that a log does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogCut {
    /// `quota`, `disk_full` or `write_failed`.
    pub reason: String,
    /// Missing bytes of standard output.
    pub stdout: u64,
    /// Missing bytes of standard error.
    pub stderr: u64,
}

impl Log {
    /// The log of `attempt`, of which `received` framed bytes have arrived.
    pub fn of(attempt: &Attempt, received: u64) -> Self {
        let (state, reason) = completeness(attempt, received);
        let cut = attempt.log.and_then(|pin| pin.cut).map(|cut| LogCut {
            reason: cut.reason.to_string(),
            stdout: cut.stdout,
            stderr: cut.stderr,
        });
        let length = attempt.log.map(|pin| pin.length);
        Self { state, reason: reason.map(|reason| reason.to_string()), received, length, cut }
    }

    /// The log of a run that nothing was tried for yet.
    pub fn none() -> Self {
        Self { state: LogState::Open, reason: None, received: 0, length: None, cut: None }
    }
}

/// The wish that a run stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// `cancel` or `timeout`.
    pub reason: String,
    /// Who wished it.
    pub by: String,
    /// The person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When.
    pub at: Time,
}

impl From<&StopIntent> for Stop {
    fn from(core: &StopIntent) -> Self {
        Self { reason: core.reason.to_string(), by: core.by.clone(), why: core.why.clone(), at: core.at.into() }
    }
}

/// What an attempt or a run ended with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Which kind of end.
    pub kind: OutcomeKind,
    /// Its exit code, where it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that ended it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it was stopped, rejected or not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In the launcher's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What is known of an end that nobody saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// Which kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The process ended by itself.
    Exited,
    /// The launcher stopped it.
    Stopped,
    /// The launcher was sure that nothing of the user's ran.
    Rejected,
    /// Recovery was sure that nothing of the user's ran.
    NeverSpawned,
    /// It was stopped before anything started.
    NotStarted,
    /// Nobody saw its end.
    Lost,
    /// Another attempt's late evidence closed the run first.
    Superseded,
    /// A kind that this client does not know.
    #[serde(other)]
    Other,
}

impl Outcome {
    fn of(kind: OutcomeKind) -> Self {
        Self { kind, exit_code: None, signal: None, reason: None, detail: None, evidence: None }
    }

    fn with_status(mut self, status: ExitStatus) -> Self {
        match status {
            ExitStatus::Code(code) => self.exit_code = Some(code),
            ExitStatus::Signal(signal) => self.signal = Some(signal),
        }
        self
    }

    /// The code a shell would show, where a process ended: its own, or 128 + the signal.
    pub fn shell_code(&self) -> Option<u8> {
        let of_signal = || self.signal.map(|signal| ExitStatus::Signal(signal).shell_code());
        self.exit_code.or_else(of_signal)
    }
}

impl From<&attempt::Outcome> for Outcome {
    fn from(core: &attempt::Outcome) -> Self {
        use attempt::Outcome as Core;
        match core {
            Core::Exited(status) => Self::of(OutcomeKind::Exited).with_status(*status),
            Core::Stopped(reason, status) => {
                let outcome = Self { reason: Some(reason.to_string()), ..Self::of(OutcomeKind::Stopped) };
                outcome.with_status(*status)
            }
            Core::Rejected { reason, detail } => Self {
                reason: Some(reason.to_string()),
                detail: Some(detail.clone()),
                ..Self::of(OutcomeKind::Rejected)
            },
            Core::NeverSpawned => Self::of(OutcomeKind::NeverSpawned),
            Core::NotStarted(reason) => Self { reason: Some(reason.to_string()), ..Self::of(OutcomeKind::NotStarted) },
            Core::Lost(evidence) => Self { evidence: Some(evidence.to_string()), ..Self::of(OutcomeKind::Lost) },
            Core::Superseded => Self::of(OutcomeKind::Superseded),
        }
    }
}

impl RunItem {
    /// A run as a list shows it.
    pub fn new(run: &Run, name: String, worker: Option<WorkerId>) -> Self {
        let closing = run.closing.as_ref();
        Self {
            id: run.id,
            project: run.project.clone(),
            task: run.task.clone(),
            trigger: run.scheduled.as_ref().map(|scheduled| &scheduled.trigger).or(run.webhook.as_ref()).cloned(),
            scheduled_at: run.scheduled.as_ref().map(|scheduled| scheduled.at.into()),
            name,
            state: run.state,
            version: run.version.get(),
            priority: run.priority,
            attempt: run.latest.get(),
            worker,
            created_at: run.created_at.into(),
            started_at: run.started_at.map(Time),
            ended_at: closing.map(|closing| closing.at.into()),
            outcome: closing.map(|closing| (&closing.outcome).into()),
            end_not_observed: closing.is_some_and(|closing| closing.unobserved),
            stop: run.intent.as_ref().map(Stop::from),
            after: run
                .after
                .iter()
                .flat_map(After::runs)
                .map(|(task, run)| (task.to_string(), run.to_string()))
                .collect(),
            revision_digest: run.revision,
        }
    }
}

impl AttemptDetail {
    /// An attempt, of whose log `received` framed bytes have arrived.
    pub fn new(attempt: &Attempt, received: u64) -> Self {
        Self {
            id: attempt.id,
            number: attempt.number.get(),
            state: attempt.state,
            worker: attempt.worker.clone(),
            claimed_at: attempt.claimed_at.map(Time),
            starting_at: attempt.starting_at.map(Time),
            running_at: attempt.running_at.map(Time),
            ended_at: attempt.ended_at.map(Time),
            outcome: attempt.outcome.as_ref().map(Outcome::from),
            resolution: attempt.resolution,
            word: attempt.word.as_ref().map(Word::from),
            evidence: attempt.evidence.iter().map(ToString::to_string).collect(),
            may_live: attempt.may_live,
            cancel_incomplete: attempt
                .left
                .as_ref()
                .map(|left| CancelIncomplete { count: left.count, pids: left.pids.clone() }),
            process: attempt.handle.as_ref().map(|handle| Process {
                boot_id: handle.boot.to_string(),
                pid: handle.pid,
                start_time: handle.start_time,
            }),
            usage: attempt.usage.map(|usage| Usage {
                user_ms: usage.user.get(),
                system_ms: usage.system.get(),
                max_rss_kib: usage.max_rss_kib,
                oom_killed: usage.oom_killed,
                limits: LimitsKept { memory: usage.limits.memory, cpu: usage.limits.cpu, pids: usage.limits.pids },
            }),
            log: Log::of(attempt, received),
        }
    }
}

impl RunDetail {
    /// A run with its attempts in order, its revision, and how many framed bytes of each attempt's log have arrived.
    pub fn new(
        run: &Run,
        name: String,
        attempts: &[Attempt],
        revision: &Revision,
        logs: &BTreeMap<AttemptId, u64>,
    ) -> Self {
        let worker = attempts.last().and_then(|attempt| attempt.worker.clone());
        let received = |attempt: &Attempt| logs.get(&attempt.id).copied().unwrap_or(0);
        Self {
            item: RunItem::new(run, name, worker),
            fence: run.fence.map(leasehold_core::counter::FenceNumber::get),
            failures: run.failures,
            machinery_failures: run.machinery_failures,
            attempts: attempts.iter().map(|attempt| AttemptDetail::new(attempt, received(attempt))).collect(),
            revision: Document(revision.to_value()),
        }
    }
}
