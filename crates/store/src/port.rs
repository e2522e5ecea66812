//! The port: one method, one transaction, named after what it does.
//!
//! Every method locks in the one order (project → task → trigger → worker session → run → attempt → lease), reads its clocks
//! once after the locks, asks `core`, and writes records and events together. A mutating method that a person causes writes its
//! audit row in the same transaction. Heartbeats write no event and no audit.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::actor::Actor;
use leasehold_core::attempt::Starting;
use leasehold_core::cancel::{Cancel, CancelRefused};
use leasehold_core::chain::Broken;
use leasehold_core::claim::NotClaimed;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::end::{EndCall, Ended};
use leasehold_core::event::Event;
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::project;
use leasehold_core::refusal::Refusal;
use leasehold_core::resolve::{Resolve, ResolveRefused};
use leasehold_core::revision::Revision;
use leasehold_core::schedule::BackfillError;
use leasehold_core::session::SessionProjection;
use leasehold_core::task;
use leasehold_core::time::Now;
use leasehold_core::trigger::TriggerKey;
use leasehold_core::trigger::webhook::TokenMade;
use leasehold_core::worker::Holds;

use crate::call::{
    AcknowledgeRunning, AdmitRun, AppendLog, ApplyTasks, AttemptStep, AuditPage, BackfillTrigger, CancelRun, Claim,
    CreateProject, DeleteProject, DeleteTask, DeleteWorker, DrainWorker, Enroll, EventsAfter, GrantTakeover, Heartbeat,
    Installation, LaneAfter, LedgerPage, NewApiToken, NewEnrollment, PauseTriggers, RegisterSession, Release,
    ResolveRun, RunFilter, SessionStep, SetProject, TriggersAfter,
};
use crate::hint::HintExchange;
use crate::outcome::{StoreError, Stored};
use crate::view::{
    ApiTokenView, AuditEntry, Backfilled, Beaten, Candidate, Chained, Deletion, Enrolled, EnrollmentView, Fired, Grant,
    KeyedRun, Lane, LaneKey, LedgerEntry, LogPage, PlanView, ProjectView, Pruned, PullState, RunFacts, RunSummary,
    RunView, Scanned, Statistics, TaskRevision, TaskView, TriggerView, WorkerView,
};
use crate::webhook::{CallRefused, CallWebhook, MakeWebhookToken};
use leasehold_core::claim::Ask;
use leasehold_core::session::SessionFence;

/// Why an operator's request cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// There is no such thing.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The installation exists already: no route makes a second CA.
    #[error("this data belongs to an installation already")]
    AlreadyInstalled,
    /// The key was used with another request before.
    #[error("this idempotency key was used with another request before")]
    KeyReused,
    /// A cancel that cannot be.
    #[error(transparent)]
    Cancel(#[from] CancelRefused),
    /// A worker that cannot be deleted yet.
    #[error(transparent)]
    Holds(#[from] Holds),
    /// A word on a lost run that changes nothing.
    #[error(transparent)]
    Resolve(#[from] ResolveRefused),
    /// A project that is there already, as somebody else wanted it.
    #[error(transparent)]
    ProjectExists(#[from] project::Exists),
    /// A project that cannot be deleted.
    #[error(transparent)]
    Project(#[from] project::Undeletable),
    /// A task that cannot be deleted.
    #[error("task {0}: {1}")]
    Task(TaskName, task::Undeletable),
    /// Tasks that cannot follow each other so.
    #[error(transparent)]
    Chain(#[from] Broken),
    /// Tasks that changed since the plan was made.
    #[error(transparent)]
    PlanMoved(#[from] task::PlanMoved),
    /// It is not what the caller said that they saw.
    #[error("the {0} is not what the caller saw")]
    Moved(&'static str),
    /// The task has another revision by now.
    #[error("the task has another revision by now")]
    TaskMoved,
    /// A backfill that cannot be.
    #[error(transparent)]
    Backfill(#[from] BackfillError),
}

impl From<project::NotMade> for Unmet {
    fn from(not_made: project::NotMade) -> Self {
        match not_made {
            project::NotMade::Exists(exists) => Self::ProjectExists(exists),
            project::NotMade::KeyReused => Self::KeyReused,
            project::NotMade::Gone => Self::NotFound("project"),
        }
    }
}

/// Why a claim did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimRefused {
    /// The caller may not ask.
    Refused(Refusal),
    /// The state moved on since the candidates were read: look for another.
    NotClaimed(NotClaimed),
}

/// A database as the control plane sees it.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Where the replicas of this store hint to each other; none for a store of one process.
    fn hints(&self) -> Option<Arc<dyn HintExchange>> {
        None
    }

    /// The clocks of the store, for answers that need no transaction.
    async fn now(&self) -> Result<Now, StoreError>;

    /// Whether the store can commit: for a readiness that means *work can be done*. Changes nothing but a clock.
    async fn check(&self) -> Result<(), StoreError>;

    /// What whoever runs the store should know of it although it works; nothing, where nothing is to be known.
    async fn warning(&self) -> Option<&'static str> {
        None
    }

    /// What this installation is, once it was made.
    async fn installation(&self) -> Result<Option<Installation>, StoreError>;

    /// Makes the installation and its first admin token, once.
    async fn create_installation(&self, installation: Installation, first: NewApiToken) -> Stored<(), Unmet>;

    /// The unexpired token with this digest.
    async fn find_api_token(&self, digest: Digest) -> Result<Option<ApiTokenView>, StoreError>;

    /// Allows one machine to become a worker.
    async fn create_enrollment(&self, actor: Actor, enrollment: NewEnrollment) -> Stored<(), Unmet>;

    /// The enrollment with this token's digest, used or not, while the token lives: the worker's name comes from here, never
    /// from the request that is signed for it. What counts is decided again by [`Store::enroll`].
    async fn find_enrollment(&self, token: Digest) -> Result<Option<EnrollmentView>, StoreError>;

    /// A machine becomes a worker: single use, repeated to the same key within the token's life. A worker that existed keeps
    /// its name and runs; its session is fenced.
    async fn enroll(&self, call: Enroll) -> Stored<Enrolled, Refusal>;

    /// A session takes its place. See [`leasehold_core::registration`].
    async fn register_session(&self, call: RegisterSession) -> Stored<SessionProjection, Refusal>;

    /// Extends the session's lease and renews run leases. See [`leasehold_core::session::beat`] and
    /// [`leasehold_core::lease::renew`].
    async fn heartbeat(&self, call: Heartbeat) -> Stored<Beaten, Refusal>;

    /// The session takes nothing new from now on.
    async fn drain_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal>;

    /// The session leaves; only when it holds no lease.
    async fn offline_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal>;

    /// A person drains a worker: it is given nothing new from now on. See [`leasehold_core::worker::Worker::drained`].
    async fn drain_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet>;

    /// The person's drain is over.
    async fn resume_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet>;

    /// A person lets the worker's next registration in that would be kept out otherwise. See
    /// [`leasehold_core::registration`].
    async fn grant_takeover(&self, call: GrantTakeover) -> Stored<WorkerView, Unmet>;

    /// A person deletes a worker: its identity, its tickets and its enrollments end. See
    /// [`leasehold_core::worker::Worker::deleted`] and [`leasehold_core::end::destroyed`]. Where more than the call's limit is
    /// to be settled, the same call again settles the next; a lease that is left until then runs out as any other.
    async fn delete_worker(&self, call: DeleteWorker) -> Stored<Deletion, Unmet>;

    /// A person makes a project. See [`leasehold_core::project::create`].
    async fn create_project(&self, call: CreateProject) -> Stored<ProjectView, Unmet>;

    /// A person sets how many runs of a project may hold a place at once; what holds one keeps it.
    async fn set_project(&self, call: SetProject) -> Stored<ProjectView, Unmet>;

    /// A person deletes a project of which no run is open. See [`leasehold_core::project::Project::deleted`].
    async fn delete_project(&self, call: DeleteProject) -> Stored<(), Unmet>;

    /// One project.
    async fn project(&self, name: &ProjectName) -> Result<Option<ProjectView>, StoreError>;

    /// A page of projects, in the order of their names.
    async fn projects(&self, after: Option<ProjectName>, limit: usize) -> Result<Vec<ProjectView>, StoreError>;

    /// What applying these tasks would do and what of it would be refused, or why they cannot follow each other so. See
    /// [`leasehold_core::task::Plan::of`], [`leasehold_core::task::deleted`] and [`leasehold_core::chain::Edges::planned`].
    async fn plan_tasks(
        &self,
        project: &ProjectName,
        tasks: BTreeMap<TaskName, Revision>,
        prune: bool,
        cascade: bool,
    ) -> Result<Result<PlanView, Broken>, StoreError>;

    /// A person says what the tasks of a project are: all of it, or nothing. What is so already is a replay, whatever plan
    /// was shown. Its project comes with it, if it is not there.
    async fn apply_tasks(&self, call: ApplyTasks) -> Stored<(), Unmet>;

    /// A person deletes a task; with `cascade`, its runs that have not ended are cancelled in the same transaction. See
    /// [`leasehold_core::task::deleted`].
    async fn delete_task(&self, call: DeleteTask) -> Stored<(), Unmet>;

    /// One task.
    async fn task(&self, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, StoreError>;

    /// A page of a project's tasks, in the order of their names.
    async fn tasks(
        &self,
        project: &ProjectName,
        after: Option<TaskName>,
        limit: usize,
    ) -> Result<Vec<TaskView>, StoreError>;

    /// A page of the revisions that a task had, the newest first; those of a deleted one, too.
    async fn task_history(
        &self,
        project: &ProjectName,
        name: &TaskName,
        before: Option<RevisionNumber>,
        limit: usize,
    ) -> Result<Vec<TaskRevision>, StoreError>;

    /// One of the revisions that a task had.
    async fn task_revision(
        &self,
        project: &ProjectName,
        name: &TaskName,
        number: RevisionNumber,
    ) -> Result<Option<(TaskRevision, Revision)>, StoreError>;

    /// A person says that a trigger, or a task, starts nothing by itself; runs by hand are started still. What is due by then is
    /// settled first. See [`leasehold_core::schedule::pause`].
    async fn pause_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet>;

    /// That pause is over; what passed during it is one line of the ledger. See [`leasehold_core::schedule::resume`].
    async fn resume_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet>;

    /// The runs of instants that have passed: a page of them. An instant that has a run gets no second.
    async fn backfill_trigger(&self, call: BackfillTrigger) -> Stored<Backfilled, Unmet>;

    /// A page of triggers, in the order of their tasks and names.
    async fn triggers(&self, page: TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, StoreError>;

    /// A page of a task's schedule ledger, the newest nominal time first; also of a task that is deleted.
    async fn ledger(&self, page: LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, StoreError>;

    /// A person makes the token of a webhook. One that it had stops in this transaction; the same again is a replay. It goes
    /// with its trigger.
    async fn make_webhook_token(&self, call: MakeWebhookToken) -> Stored<TokenMade, Unmet>;

    /// The digest of a webhook's token, if it has one: for a look before anything of a call is read. What counts is decided
    /// again by [`Store::call_webhook`].
    async fn webhook_token(&self, trigger: &TriggerKey) -> Result<Option<Digest>, StoreError>;

    /// Somebody calls a webhook: its run is pending, or nothing changed. The same key finds the same run, whatever stands in
    /// the way by then. See [`leasehold_core::trigger::webhook::call`]: what stands in the way is looked at under the lock that
    /// schedules look at it under.
    async fn call_webhook(&self, call: CallWebhook) -> Stored<RunView, CallRefused>;

    /// Submits a run: it is pending, with attempt 1. Its project comes with it, if it is not there.
    async fn admit_run(&self, call: AdmitRun) -> Stored<RunView, Unmet>;

    /// The run that a key made in a project: what a request that comes again asks first, whatever became of its task since.
    async fn keyed_run(&self, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, StoreError>;

    /// What earlier claims say about a worker's asks; rebinds what it holds. See
    /// [`leasehold_core::claim::recover_ask`].
    async fn recover_asks(&self, session: SessionFence, asks: Vec<Ask>) -> Stored<PullState, Refusal>;

    /// The live lanes after `after` in key order, at most `lanes` of them with at most `heads` runs each.
    async fn lanes(&self, after: Option<LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, StoreError>;

    /// Further runs of lanes, in the order of each lane: at most `limit` of each that is asked for, one list for each.
    async fn heads(&self, of: Vec<LaneAfter>, limit: usize) -> Result<Vec<Vec<Candidate>>, StoreError>;

    /// Claims a run. See [`leasehold_core::claim::claim`]. Places of limits are counted under the locks of the run's project
    /// and task: see [`leasehold_core::occupancy`].
    async fn claim(&self, call: Claim) -> Stored<Grant, ClaimRefused>;

    /// `claimed → pending`, unstarted.
    async fn release(&self, call: Release) -> Stored<(), Refusal>;

    /// `claimed → starting`. See [`leasehold_core::attempt::starting`].
    async fn acknowledge_starting(&self, call: AttemptStep) -> Stored<Starting, Refusal>;

    /// `starting → running`. See [`leasehold_core::attempt::running`].
    async fn acknowledge_running(&self, call: AcknowledgeRunning) -> Stored<LeaseProjection, Refusal>;

    /// The attempt ended. See [`leasehold_core::end::end`].
    async fn end(&self, call: EndCall) -> Stored<Ended, Refusal>;

    /// Appends to a log; answers the durable length. A resend is a no-op, a gap or other bytes are refused.
    async fn append_log(&self, call: AppendLog) -> Stored<u64, Refusal>;

    /// Framed bytes of an attempt's log from `offset` on, at most `limit`.
    async fn read_log(&self, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, StoreError>;

    /// A person's wish that a run stop. See [`leasehold_core::cancel::cancel`]. Answers the run as it is then, too.
    async fn cancel_run(&self, call: CancelRun) -> Stored<(Cancel, RunView), Unmet>;

    /// A person's word on a lost run. See [`leasehold_core::resolve::resolve`]. Answers the run as it is then, too. `wait`
    /// changes no record, and each one is noted.
    async fn resolve_run(&self, call: ResolveRun) -> Stored<(Resolve, RunView), Unmet>;

    /// One run with everything a page shows.
    async fn run(&self, run: RunId) -> Result<Option<RunView>, StoreError>;

    /// The runs whose id begins with `prefix` (lower-case text of a UUID), at most two: enough to tell unique from ambiguous.
    async fn runs_by_prefix(&self, prefix: &str) -> Result<Vec<RunId>, StoreError>;

    /// A page of runs, newest first.
    async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, StoreError>;

    /// A page of a run's events, oldest first.
    async fn events(&self, page: EventsAfter, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// What an explanation of a run needs: the run and, in id order after `after`, the workers.
    async fn run_facts(
        &self,
        run: RunId,
        after: Option<WorkerId>,
        limit: usize,
    ) -> Result<Option<RunFacts>, StoreError>;

    /// One worker.
    async fn worker(&self, worker: &WorkerId) -> Result<Option<WorkerView>, StoreError>;

    /// A page of workers, in id order.
    async fn workers(&self, after: Option<WorkerId>, limit: usize) -> Result<Vec<WorkerView>, StoreError>;

    /// What there is, counted: for metrics. Costs what is waiting, running and enrolled, never what has ended.
    async fn statistics(&self) -> Result<Statistics, StoreError>;

    /// A page of the audit.
    async fn audit(&self, page: AuditPage, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;

    /// Declares leases that ran out, at most `limit`. See [`leasehold_core::expiry::expire`].
    async fn expire_leases(&self, limit: usize) -> Result<Scanned, StoreError>;

    /// Begins the attempts that are due, one per id given. See [`leasehold_core::expiry::retry_due`].
    async fn begin_retries(&self, ids: Vec<AttemptId>) -> Result<Scanned, StoreError>;

    /// Stores the wish to stop attempts whose time is up, at most `limit`. See [`leasehold_core::cancel::overdue`].
    async fn stop_overdue(&self, limit: usize) -> Result<Scanned, StoreError>;

    /// Settles triggers that are due, at most `limit` of them, and about as many runs: each admits its runs, writes its ledger
    /// and moves on, all in this transaction. See [`leasehold_core::schedule::settle`]. At most one run is ever admitted for
    /// a trigger's nominal time.
    async fn fire_triggers(&self, limit: usize) -> Result<Fired, StoreError>;

    /// Takes lines from ledgers that are kept no longer, those of triggers that are gone too: looks at `limit` ledgers at most,
    /// from that of `from` on, and takes as many lines at most. See [`leasehold_core::schedule::kept_from`]. What still waits
    /// stays; that a nominal time has its run stands in the run, which stays.
    async fn prune_ledgers(&self, from: Option<TriggerKey>, limit: usize) -> Result<Pruned, StoreError>;

    /// Settles successes that their followers have not looked at, at most `limit` of them and of their runs: a run is admitted
    /// and what it follows is used up in one transaction, or it stays. A success is kept for its followers in the transaction
    /// that makes it true, whichever that is. See [`leasehold_core::chain::settle`].
    async fn settle_chains(&self, limit: usize) -> Result<Chained, StoreError>;
}
