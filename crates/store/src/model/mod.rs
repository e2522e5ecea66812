//! The store in memory: the same decisions, the same outcomes, one lock.
//!
//! For the simulation and for tests of what lies above the port; held to the contract suite like every other store.
//! Nothing here decides: each method loads, asks `leasehold-core` and applies the change in one place ([`apply`]).
//! Its lease clock is the boot-time clock it is given. (Control design, *Store*; proof, *Simulation*.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold_core::actor::Actor;
use leasehold_core::attempt::{Attempt, Starting};
use leasehold_core::cancel::Cancel;
use leasehold_core::chain::{Arrival, Broken};
use leasehold_core::claim::{Ask, Refused};
use leasehold_core::counter::{AttemptNumber, LeaseGeneration, RevisionNumber};
use leasehold_core::crypto::Digest;
use leasehold_core::end::{EndCall, Ended};
use leasehold_core::enrollment::Enrollment;
use leasehold_core::event::Event;
use leasehold_core::fault::Fault;
use leasehold_core::id::{AttemptId, EnrollmentId, ProjectName, RunId, SessionId, TaskName, WorkerId};
use leasehold_core::lease::{Lease, LeaseProjection};
use leasehold_core::project::Project;
use leasehold_core::refusal::Refusal;
use leasehold_core::resolve::Resolve;
use leasehold_core::revision::Revision;
use leasehold_core::run::Run;
use leasehold_core::session::{Session, SessionFence, SessionProjection};
use leasehold_core::task::Task;
use leasehold_core::time::{Clock, LeaseInstant, Now};
use leasehold_core::trigger::webhook::{KeptToken, TokenMade};
use leasehold_core::trigger::{KeptTrigger, TriggerKey};
use leasehold_core::worker::Worker;

use crate::call::{
    AcknowledgeRunning, AdmitRun, AppendLog, ApplyTasks, AttemptStep, AuditPage, BackfillTrigger, CancelRun, Claim,
    CreateProject, DeleteProject, DeleteTask, DeleteWorker, DrainWorker, Enroll, EventsAfter, GrantTakeover, Heartbeat,
    Installation, LaneAfter, LedgerPage, NewApiToken, NewEnrollment, PauseTriggers, RegisterSession, Release,
    ResolveRun, RunFilter, SessionStep, SetProject, TriggersAfter,
};
use crate::outcome::{StoreError, Stored};
use crate::port::{ClaimRefused, Store, Unmet};
use crate::view::{
    ApiTokenView, AuditEntry, Backfilled, Beaten, Candidate, Chained, Deletion, Enrolled, EnrollmentView, Fired, Grant,
    KeyedRun, Lane, LaneKey, LedgerEntry, LedgerKey, LogPage, PlanView, ProjectView, Pruned, PullState, RunFacts,
    RunSummary, RunView, Scanned, Statistics, TaskRevision, TaskView, TriggerView, WorkerView,
};
use crate::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

mod activation;
mod admit;
mod apply;
mod cancel;
mod chains;
mod claim;
mod deletion;
mod end;
mod enrollment;
mod installation;
mod lanes;
mod load;
mod logs;
mod pauses;
mod places;
mod projects;
mod queries;
mod recovery;
mod resolve;
mod sessions;
mod tasks;
mod triggers;
mod webhooks;
mod workers;

/// A store in memory.
pub struct ModelStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// Every row there is.
#[derive(Debug, Default)]
struct State {
    installation: Option<Installation>,
    api_tokens: Vec<NewApiToken>,
    enrollments: BTreeMap<EnrollmentId, Enrollment>,
    workers: BTreeMap<WorkerId, Worker>,
    /// What each worker said last of its faults.
    faults: BTreeMap<WorkerId, Vec<Fault>>,
    /// Every session that ever registered: a late duplicate of a registration is not a copy.
    sessions: BTreeMap<SessionId, Session>,
    projects: BTreeMap<ProjectName, Project>,
    tasks: BTreeMap<(ProjectName, TaskName), Task>,
    /// The oldest first.
    task_revisions: BTreeMap<(ProjectName, TaskName), Vec<TaskRevision>>,
    triggers: BTreeMap<TriggerKey, KeptTrigger>,
    webhook_tokens: BTreeMap<TriggerKey, KeptToken>,
    ledgers: BTreeMap<(ProjectName, TaskName), BTreeMap<LedgerKey, LedgerEntry>>,
    /// What each task follows.
    edges: BTreeSet<(ProjectName, TaskName, TaskName)>,
    /// The successes that a follower has not taken, and whether it has looked at each.
    arrivals: BTreeMap<(ProjectName, TaskName, Arrival), bool>,
    revisions: BTreeMap<[u8; 32], Revision>,
    runs: BTreeMap<RunId, Run>,
    idempotency_keys: BTreeMap<(ProjectName, String), KeyedRun>,
    attempts: BTreeMap<AttemptId, Attempt>,
    attempts_of: BTreeMap<(RunId, AttemptNumber), AttemptId>,
    leases: BTreeMap<(AttemptId, LeaseGeneration), Lease>,
    refused: BTreeMap<(RunId, WorkerId), Refused>,
    events: BTreeMap<RunId, Vec<StoredEvent>>,
    logs: BTreeMap<AttemptId, Vec<u8>>,
    audit: Vec<AuditEntry>,
}

#[derive(Debug)]
struct StoredEvent {
    event: Event,
    /// See [`leasehold_core::event::NewEvent::once`].
    once: Option<Digest>,
}

/// One method at work: the locked rows, and the clocks, read once after the lock.
struct Transaction<'a> {
    state: &'a mut State,
    now: Now,
}

impl ModelStore {
    /// An empty store that reads `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Every row as text, in a fixed order: two equal dumps are two equal stores.
    pub fn dump(&self) -> String {
        match self.state.lock() {
            Ok(state) => format!("{state:#?}"),
            Err(poisoned) => format!("{:#?}", poisoned.get_ref()),
        }
    }

    fn transaction<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self
            .state
            .lock()
            .map_err(|_| StoreError::Damaged { reason: "a transaction panicked half way".to_owned() })?;
        work(&mut Transaction { state: &mut state, now: self.clocks() })
    }

    fn clocks(&self) -> Now {
        Now { lease: LeaseInstant::new(self.clock.boot().get()), utc: self.clock.utc() }
    }
}

impl std::fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn now(&self) -> Result<Now, StoreError> {
        Ok(self.clocks())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.transaction(|_| Ok(()))
    }

    async fn installation(&self) -> Result<Option<Installation>, StoreError> {
        self.transaction(|tx| Ok(tx.state.installation.clone()))
    }

    async fn create_installation(&self, installation: Installation, first: NewApiToken) -> Stored<(), Unmet> {
        self.transaction(|tx| Ok(installation::create(tx, installation, first)))
    }

    async fn find_api_token(&self, digest: Digest) -> Result<Option<ApiTokenView>, StoreError> {
        self.transaction(|tx| Ok(installation::find_api_token(tx, digest)))
    }

    async fn create_enrollment(&self, actor: Actor, enrollment: NewEnrollment) -> Stored<(), Unmet> {
        self.transaction(|tx| Ok(enrollment::create(tx, &actor, enrollment)))
    }

    async fn find_enrollment(&self, token: Digest) -> Result<Option<EnrollmentView>, StoreError> {
        self.transaction(|tx| Ok(enrollment::find(tx, token)))
    }

    async fn enroll(&self, call: Enroll) -> Stored<Enrolled, Refusal> {
        self.transaction(|tx| enrollment::enroll(tx, call))
    }

    async fn register_session(&self, call: RegisterSession) -> Stored<SessionProjection, Refusal> {
        self.transaction(|tx| sessions::register(tx, &call))
    }

    async fn heartbeat(&self, call: Heartbeat) -> Stored<Beaten, Refusal> {
        self.transaction(|tx| sessions::heartbeat(tx, &call))
    }

    async fn drain_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.transaction(|tx| Ok(sessions::drain(tx, &call)))
    }

    async fn offline_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.transaction(|tx| Ok(sessions::offline(tx, &call)))
    }

    async fn drain_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.transaction(|tx| workers::drain(tx, &call))
    }

    async fn resume_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.transaction(|tx| workers::resume(tx, &call))
    }

    async fn grant_takeover(&self, call: GrantTakeover) -> Stored<WorkerView, Unmet> {
        self.transaction(|tx| workers::grant_takeover(tx, &call))
    }

    async fn delete_worker(&self, call: DeleteWorker) -> Stored<Deletion, Unmet> {
        self.transaction(|tx| deletion::delete(tx, &call))
    }

    async fn create_project(&self, call: CreateProject) -> Stored<ProjectView, Unmet> {
        self.transaction(|tx| projects::create(tx, &call))
    }

    async fn set_project(&self, call: SetProject) -> Stored<ProjectView, Unmet> {
        self.transaction(|tx| projects::set(tx, &call))
    }

    async fn delete_project(&self, call: DeleteProject) -> Stored<(), Unmet> {
        self.transaction(|tx| Ok(projects::delete(tx, &call)))
    }

    async fn project(&self, name: &ProjectName) -> Result<Option<ProjectView>, StoreError> {
        self.transaction(|tx| projects::project(tx, name))
    }

    async fn projects(&self, after: Option<ProjectName>, limit: usize) -> Result<Vec<ProjectView>, StoreError> {
        self.transaction(|tx| projects::projects(tx, after.as_ref(), limit))
    }

    async fn plan_tasks(
        &self,
        project: &ProjectName,
        tasks: BTreeMap<TaskName, Revision>,
        prune: bool,
        cascade: bool,
    ) -> Result<Result<PlanView, Broken>, StoreError> {
        self.transaction(|tx| {
            let plan = tasks::plan(tx, project, &tasks, prune);
            let broken = chains::edges(tx, project).planned(&plan, &tasks);
            Ok(broken.map(|_| PlanView { refused: tasks::refused(tx, project, &plan, cascade), plan }))
        })
    }

    async fn apply_tasks(&self, call: ApplyTasks) -> Stored<(), Unmet> {
        self.transaction(|tx| tasks::apply(tx, &call))
    }

    async fn delete_task(&self, call: DeleteTask) -> Stored<(), Unmet> {
        self.transaction(|tx| tasks::delete(tx, &call))
    }

    async fn task(&self, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, StoreError> {
        self.transaction(|tx| tasks::task(tx, project, name))
    }

    async fn tasks(
        &self,
        project: &ProjectName,
        after: Option<TaskName>,
        limit: usize,
    ) -> Result<Vec<TaskView>, StoreError> {
        self.transaction(|tx| tasks::tasks(tx, project, after.as_ref(), limit))
    }

    async fn task_history(
        &self,
        project: &ProjectName,
        name: &TaskName,
        before: Option<RevisionNumber>,
        limit: usize,
    ) -> Result<Vec<TaskRevision>, StoreError> {
        self.transaction(|tx| Ok(tasks::history(tx, project, name, before, limit)))
    }

    async fn task_revision(
        &self,
        project: &ProjectName,
        name: &TaskName,
        number: RevisionNumber,
    ) -> Result<Option<(TaskRevision, Revision)>, StoreError> {
        self.transaction(|tx| tasks::revision(tx, project, name, number))
    }

    async fn pause_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.transaction(|tx| pauses::pause(tx, &call))
    }

    async fn resume_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.transaction(|tx| pauses::resume(tx, &call))
    }

    async fn backfill_trigger(&self, call: BackfillTrigger) -> Stored<Backfilled, Unmet> {
        self.transaction(|tx| pauses::backfill(tx, &call))
    }

    async fn triggers(&self, page: TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, StoreError> {
        self.transaction(|tx| triggers::triggers(tx, &page, limit))
    }

    async fn ledger(&self, page: LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.transaction(|tx| Ok(triggers::ledger(tx, &page, limit)))
    }

    async fn make_webhook_token(&self, call: MakeWebhookToken) -> Stored<TokenMade, Unmet> {
        self.transaction(|tx| Ok(webhooks::make_token(tx, &call)))
    }

    async fn webhook_token(&self, trigger: &TriggerKey) -> Result<Option<Digest>, StoreError> {
        self.transaction(|tx| Ok(webhooks::token(tx, trigger)))
    }

    async fn call_webhook(&self, call: CallWebhook) -> Stored<RunView, CallRefused> {
        self.transaction(|tx| webhooks::call(tx, &call))
    }

    async fn admit_run(&self, call: AdmitRun) -> Stored<RunView, Unmet> {
        self.transaction(|tx| admit::admit(tx, &call))
    }

    async fn keyed_run(&self, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, StoreError> {
        self.transaction(|tx| Ok(admit::of_key(tx, project, key)))
    }

    async fn recover_asks(&self, session: SessionFence, asks: Vec<Ask>) -> Stored<PullState, Refusal> {
        self.transaction(|tx| claim::recover_asks(tx, &session, &asks))
    }

    async fn lanes(&self, after: Option<LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, StoreError> {
        self.transaction(|tx| lanes::lanes(tx, after.as_ref(), lanes, heads))
    }

    async fn heads(&self, of: Vec<LaneAfter>, limit: usize) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.transaction(|tx| of.iter().map(|of| lanes::heads(tx, of, limit)).collect())
    }

    async fn claim(&self, call: Claim) -> Stored<Grant, ClaimRefused> {
        self.transaction(|tx| claim::claim(tx, &call))
    }

    async fn release(&self, call: Release) -> Stored<(), Refusal> {
        self.transaction(|tx| claim::release(tx, &call))
    }

    async fn acknowledge_starting(&self, call: AttemptStep) -> Stored<Starting, Refusal> {
        self.transaction(|tx| activation::starting(tx, &call))
    }

    async fn acknowledge_running(&self, call: AcknowledgeRunning) -> Stored<LeaseProjection, Refusal> {
        self.transaction(|tx| activation::running(tx, &call))
    }

    async fn end(&self, call: EndCall) -> Stored<Ended, Refusal> {
        self.transaction(|tx| end::end(tx, &call))
    }

    async fn append_log(&self, call: AppendLog) -> Stored<u64, Refusal> {
        self.transaction(|tx| logs::append(tx, &call))
    }

    async fn read_log(&self, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, StoreError> {
        self.transaction(|tx| Ok(logs::read(tx, attempt, offset, limit)))
    }

    async fn cancel_run(&self, call: CancelRun) -> Stored<(Cancel, RunView), Unmet> {
        self.transaction(|tx| cancel::cancel(tx, &call))
    }

    async fn resolve_run(&self, call: ResolveRun) -> Stored<(Resolve, RunView), Unmet> {
        self.transaction(|tx| resolve::resolve(tx, &call))
    }

    async fn run(&self, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.transaction(|tx| tx.run_view(run))
    }

    async fn runs_by_prefix(&self, prefix: &str) -> Result<Vec<RunId>, StoreError> {
        self.transaction(|tx| Ok(queries::runs_by_prefix(tx, prefix)))
    }

    async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, StoreError> {
        self.transaction(|tx| queries::runs(tx, &filter, limit))
    }

    async fn events(&self, page: EventsAfter, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.transaction(|tx| Ok(queries::events(tx, page, limit)))
    }

    async fn run_facts(
        &self,
        run: RunId,
        after: Option<WorkerId>,
        limit: usize,
    ) -> Result<Option<RunFacts>, StoreError> {
        self.transaction(|tx| queries::run_facts(tx, run, after.as_ref(), limit))
    }

    async fn worker(&self, worker: &WorkerId) -> Result<Option<WorkerView>, StoreError> {
        self.transaction(|tx| queries::worker(tx, worker))
    }

    async fn workers(&self, after: Option<WorkerId>, limit: usize) -> Result<Vec<WorkerView>, StoreError> {
        self.transaction(|tx| queries::workers(tx, after.as_ref(), limit))
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        self.transaction(|tx| Ok(queries::statistics(tx)))
    }

    async fn audit(&self, page: AuditPage, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.transaction(|tx| Ok(queries::audit(tx, page, limit)))
    }

    async fn expire_leases(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.transaction(|tx| recovery::expire_leases(tx, limit))
    }

    async fn begin_retries(&self, ids: Vec<AttemptId>) -> Result<Scanned, StoreError> {
        self.transaction(|tx| recovery::begin_retries(tx, &ids))
    }

    async fn stop_overdue(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.transaction(|tx| recovery::stop_overdue(tx, limit))
    }

    async fn fire_triggers(&self, limit: usize) -> Result<Fired, StoreError> {
        self.transaction(|tx| triggers::fire(tx, limit))
    }

    async fn prune_ledgers(&self, from: Option<TriggerKey>, limit: usize) -> Result<Pruned, StoreError> {
        self.transaction(|tx| Ok(triggers::prune(tx, from.as_ref(), limit)))
    }

    async fn settle_chains(&self, limit: usize) -> Result<Chained, StoreError> {
        self.transaction(|tx| chains::settle(tx, limit))
    }
}
