//! What the port answers: records as they are, never what may act on them.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::attempt::Attempt;
use leasehold_core::claim::Refused;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::device::DeviceId;
use leasehold_core::directive::Directive;
use leasehold_core::fault::Fault;
use leasehold_core::id::{ApiTokenId, AttemptId, EnrollmentId, ProjectName, RunId, TaskName, TriggerName, WorkerId};
use leasehold_core::lease::{Lease, LeaseProjection};
use leasehold_core::occupancy::{LimitFact, Places};
use leasehold_core::placement::Placement;
use leasehold_core::project::Project;
use leasehold_core::refusal::Refusal;
use leasehold_core::revision::{Program, Revision, Trigger};
use leasehold_core::role::Role;
use leasehold_core::run::{Run, RunState};
use leasehold_core::schedule::Line;
use leasehold_core::session::{Session, SessionProjection, SessionState};
use leasehold_core::task::{Plan, Task, Undeletable};
use leasehold_core::time::{Millis, Now, UtcMillis};
use leasehold_core::trigger::webhook::TokenMade;
use leasehold_core::trigger::{KeptTrigger, Pause, TriggerKey};
use leasehold_core::worker::{Worker, WorkerState};

/// An API token as it is known: never itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiTokenView {
    /// Its public id.
    pub id: ApiTokenId,
    /// Its name.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// When it stops working, if ever.
    pub expires_at: Option<UtcMillis>,
}

/// The run that a caller's key made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRun {
    /// Which run.
    pub run: RunId,
    /// The digest of what was asked; none of a key from before that was kept.
    pub asked: Option<Digest>,
}

/// An enrollment as it is known: never its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrollmentView {
    /// Its id.
    pub id: EnrollmentId,
    /// The worker it makes.
    pub worker: WorkerId,
    /// When its token stops working.
    pub expires_at: UtcMillis,
}

/// What enrolling answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// The worker that the machine now is.
    pub worker: WorkerId,
    /// Its enrollment, from which the first ticket is derived.
    pub enrollment: EnrollmentId,
    /// The certificate that counts: the one of the first call with this key.
    pub certificate: Vec<u8>,
}

/// What one transaction of a worker's deletion did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// The runs whose attempts it settled, or gave evidence to.
    pub runs: Vec<RunId>,
    /// Whether there are more: the same call again.
    pub more: bool,
}

/// What beating answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beaten {
    /// The session now.
    pub session: SessionProjection,
    /// A verdict per renewal, in the order they were asked.
    pub leases: Vec<(AttemptId, Result<LeaseProjection, Refusal>)>,
    /// What the worker is to do.
    pub directives: Vec<Directive>,
}

/// A claimed run: everything an offer is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lease.
    pub lease: Lease,
    /// The run.
    pub run: Run,
    /// The attempt.
    pub attempt: Attempt,
    /// What to execute.
    pub revision: Revision,
    /// The clocks of the transaction that read them.
    pub now: Now,
}

/// What became of one ask before anything new is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskState {
    /// Free to claim with.
    Open,
    /// Claimed with before: here is the same offer.
    Granted(Box<Grant>),
    /// To be dropped.
    Gone,
}

/// What pulling finds before anything new is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullState {
    /// The session that asks.
    pub session: Session,
    /// A state per ask, in order.
    pub asks: Vec<AskState>,
    /// What the worker is to do.
    pub directives: Vec<Directive>,
    /// Whether it takes work at all: neither a person nor the agent itself drains it.
    pub takes_work: bool,
    /// How many of its slots are free: its maximum less its active leases; zero while it drains.
    pub free_slots: u16,
    /// Its devices that something is, or may be, using.
    pub busy_devices: BTreeSet<DeviceId>,
}

/// A lane's place in the page order: runs that are blocked or served alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// Whose namespace.
    pub project: ProjectName,
    /// The placement they share, as its digest's hex text.
    pub placement: String,
    /// The task, for runs of a task with a limit.
    pub task: Option<TaskName>,
}

/// A run's place in its lane's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadKey {
    /// Higher goes first.
    pub priority: i16,
    /// Then what came first.
    pub run: RunId,
}

/// A run at the head of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which run.
    pub run: RunId,
    /// Higher goes first.
    pub priority: i16,
    /// How many runs of its task may hold a place at once, by its own revision; none: any number.
    pub concurrency: Option<u32>,
    /// Whether it holds a place itself, because something of an earlier attempt may still live.
    pub holds: bool,
    /// When it was submitted, while nobody ever claimed it: since then it has been due. Of others that moment is not kept.
    pub submitted: Option<UtcMillis>,
    /// Workers that gave it back, and until when they are not asked again.
    pub refused: Vec<(WorkerId, Refused)>,
}

impl Candidate {
    /// Its place in its lane's order.
    pub const fn key(&self) -> HeadKey {
        HeadKey { priority: self.priority, run: self.run }
    }
}

/// A live lane: at least one run of it is pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Its key.
    pub key: LaneKey,
    /// The placement that its runs share.
    pub placement: Placement,
    /// Its first runs, by priority, then first come first served; at most the asked number. Where the lane has a limit, the
    /// first that holds a place itself stands before all others: it waits for no place, and they may wait for its.
    pub heads: Vec<Candidate>,
    /// How many runs hold a place of the lane's task; zero for a lane without one.
    pub task_occupied: u32,
    /// The project's limit and how many runs hold a place of it; none without a limit.
    pub project: Option<Places>,
    /// The lease clock of the read, to compare `refused` with.
    pub now: Now,
}

/// A run with everything a page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// The run.
    pub run: Run,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// What it executes.
    pub revision: Revision,
    /// How far the log of each attempt has arrived, in framed bytes, by attempt.
    pub logs: BTreeMap<AttemptId, u64>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub run: Run,
    /// The name of its revision, or its command's first words.
    pub name: String,
    /// Who has its latest attempt, or had.
    pub worker: Option<WorkerId>,
}

impl RunSummary {
    /// The name of a revision: the one it has, else its command's first words or the first line of its script.
    pub fn name_of(revision: &Revision) -> String {
        match (revision.name(), &revision.command().program) {
            (Some(name), _) => name.to_string(),
            (None, Program::Argv(argv)) => argv.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(" "),
            (None, Program::Script { script, .. }) => script.lines().next().unwrap_or_default().to_owned(),
        }
        .chars()
        .take(64)
        .collect()
    }
}

/// A worker with everything a page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// The worker.
    pub worker: Worker,
    /// Its current session.
    pub session: Option<Session>,
    /// The attempts whose leases it holds.
    pub active: Vec<AttemptId>,
    /// Its devices that something is, or may be, using, and of which run that is.
    pub device_holders: BTreeMap<DeviceId, RunId>,
    /// Its faults, as it said them last.
    pub faults: Vec<Fault>,
    /// The clocks of the read.
    pub now: Now,
}

/// A piece of a stored log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// Framed bytes from the asked offset on.
    pub bytes: Vec<u8>,
    /// How many framed bytes have arrived in all.
    pub received: u64,
    /// The length that the end pinned, once it has.
    pub pinned: Option<u64>,
}

/// What a recovery scan did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// The runs that changed.
    pub runs: Vec<RunId>,
    /// The workers that have something new to be told, or another free slot.
    pub workers: BTreeSet<WorkerId>,
    /// Whether the page was full: scan again at once.
    pub more: bool,
    /// How long until the next thing can be due, if anything waits.
    pub next: Option<Millis>,
}

/// What a scan of triggers did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fired {
    /// The runs that were admitted or cancelled.
    pub runs: Vec<RunId>,
    /// The workers that have a stop to be told of.
    pub workers: BTreeSet<WorkerId>,
    /// Whether something was left for the next page: scan again at once.
    pub more: bool,
    /// How long until the next trigger is due, if one will be.
    pub next: Option<Millis>,
}

/// A page of a backfill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfilled {
    /// The runs that were admitted, the oldest instant first.
    pub runs: Vec<RunId>,
    /// Where the next page begins; none: this was the last.
    pub rest: Option<UtcMillis>,
}

/// A trigger with everything a page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerView {
    /// How far it has come.
    pub kept: KeptTrigger,
    /// What its task's revision says of it.
    pub trigger: Trigger,
    /// A person's pause of its task.
    pub task_pause: Option<Pause>,
    /// Where its token comes from, if it waits for calls and has one.
    pub token: Option<TokenMade>,
}

/// A line of a task's schedule ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Of which trigger.
    pub trigger: TriggerName,
    /// What it says.
    pub line: Line,
    /// The run that was admitted for it.
    pub run: Option<RunId>,
    /// When it was written, or took the place of an earlier one.
    pub written_at: UtcMillis,
}

impl LedgerEntry {
    /// Its place among the lines of its task.
    pub fn key(&self) -> LedgerKey {
        let (at, is_gap) = match self.line {
            Line::At(nominal, _) => (nominal, false),
            Line::Gap(gap) => (gap.first, true),
        };
        LedgerKey { at, trigger: self.trigger.clone(), is_gap }
    }
}

/// The place of a line among those of its task: by nominal time, that of a gap by its first instant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey {
    /// The nominal time.
    pub at: UtcMillis,
    /// Of which trigger.
    pub trigger: TriggerName,
    /// Whether it is about a gap.
    pub is_gap: bool,
}

/// What looking through ledgers for lines that are kept no longer did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many lines went.
    pub lines: usize,
    /// The ledger to go on with; none: that was the last.
    pub rest: Option<TriggerKey>,
}

/// What settling chains did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chained {
    /// The runs that were admitted.
    pub runs: Vec<RunId>,
    /// Whether something was left for the next page: settle again at once.
    pub more: bool,
    /// Whether another call had some of it in its hands: look again soon.
    pub skipped: bool,
}

/// An audit row: who changed what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its place in the order of all rows.
    pub sequence: u64,
    /// When.
    pub at: UtcMillis,
    /// Who, as [`leasehold_core::actor::Actor`] prints.
    pub actor: String,
    /// From where, as [`leasehold_core::actor::Origin`] prints; none for the control plane itself.
    pub origin: Option<String>,
    /// What was done, as the port method's name.
    pub action: String,
    /// To what: `run/<id>`, `worker/<id>`, ….
    pub subject: String,
    /// Facts, by name; never a secret.
    pub facts: BTreeMap<String, String>,
}

/// The pending run of an explanation, with the workers it could go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The run.
    pub view: RunView,
    /// Workers that gave it back, and until when they are not asked again.
    pub refused: Vec<(WorkerId, Refused)>,
    /// The limits that a pending run is under, full or not.
    pub limits: Vec<LimitFact>,
    /// Every worker, at most [`leasehold_core::limits::PAGE`] per page of the caller.
    pub workers: Vec<WorkerView>,
    /// The clocks of the read.
    pub now: Now,
}

/// A project with what is counted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectView {
    /// The project.
    pub project: Project,
    /// How many of its runs hold a place.
    pub occupied: u32,
}

/// A task with what its next run executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskView {
    /// The task.
    pub task: Task,
    /// Its revision.
    pub revision: Revision,
}

/// What applying tasks would do, and what of it would be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanView {
    /// The plan.
    pub plan: Plan,
    /// The tasks that would go and may not, each with the reason: while there is one, applying does nothing.
    pub refused: BTreeMap<TaskName, Undeletable>,
}

/// One of the revisions that a task had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRevision {
    /// Which.
    pub number: RevisionNumber,
    /// Its digest.
    pub revision: Digest,
    /// Since when.
    pub at: UtcMillis,
    /// Who applied it.
    pub by: String,
}

/// What the store holds at one moment, counted: for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// The clocks of the read.
    pub now: Now,
    /// Runs by state, for every state that is not terminal.
    pub runs: BTreeMap<RunState, u64>,
    /// When the oldest run that is pending was submitted.
    pub oldest_pending: Option<UtcMillis>,
    /// Workers by what can be expected of them; deleted ones are not counted.
    pub workers: WorkerCounts,
    /// How far beyond its interval the live session is that has been silent longest; zero when all are in time.
    pub heartbeat_lag: Millis,
}

/// Workers, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// With a live session.
    pub online: u64,
    /// With a live session that takes nothing new.
    pub draining: u64,
    /// Without a live session.
    pub offline: u64,
    /// Enrolled, and never registered.
    pub enrolled: u64,
    /// Their identity was revoked.
    pub revoked: u64,
}

impl WorkerCounts {
    /// Counts `workers` workers that are alike. Who was deleted is none.
    pub fn add(&mut self, worker: WorkerState, session: Option<(SessionState, bool)>, workers: u64) {
        let count = match (worker, session) {
            (WorkerState::Deleted, _) => return,
            (WorkerState::Revoked, _) => &mut self.revoked,
            (WorkerState::Active, None) => &mut self.enrolled,
            (WorkerState::Active, Some((SessionState::Offline, _) | (_, false))) => &mut self.offline,
            (WorkerState::Active, Some((SessionState::Draining, true))) => &mut self.draining,
            (WorkerState::Active, Some((SessionState::Active, true))) => &mut self.online,
        };
        *count = count.saturating_add(workers);
    }
}

impl Statistics {
    /// The states of runs that are counted.
    pub fn counted_states() -> impl Iterator<Item = RunState> {
        RunState::ALL.iter().copied().filter(|state| !state.is_terminal())
    }
}
