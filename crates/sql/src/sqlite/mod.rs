//! The store on SQLite: one writer thread with group commit, a few readers, a lock of its own.
//!
//! One file per verb of the port; `load` reads records, `apply` writes what a decision answers. (Control design, *SQLite*;
//! ADR-0012 §6.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use leasehold_core::actor::Actor;
use leasehold_core::attempt::Starting;
use leasehold_core::cancel::Cancel;
use leasehold_core::chain::Broken;
use leasehold_core::claim::Ask;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::end::{EndCall, Ended};
use leasehold_core::event::Event;
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::refusal::Refusal;
use leasehold_core::resolve::Resolve;
use leasehold_core::revision::Revision;
use leasehold_core::session::{SessionFence, SessionProjection};
use leasehold_core::time::Now;
use leasehold_core::trigger::TriggerKey;
use leasehold_core::trigger::webhook::TokenMade;
use leasehold_store::call::{
    AcknowledgeRunning, AdmitRun, AppendLog, ApplyTasks, AttemptStep, AuditPage, BackfillTrigger, CancelRun, Claim,
    CreateProject, DeleteProject, DeleteTask, DeleteWorker, DrainWorker, Enroll, EventsAfter, GrantTakeover, Heartbeat,
    Installation, LaneAfter, LedgerPage, NewApiToken, NewEnrollment, PauseTriggers, RegisterSession, Release,
    ResolveRun, RunFilter, SessionStep, SetProject, TriggersAfter,
};
use leasehold_store::observe::{Access, Called, Observer};
use leasehold_store::outcome::{StoreError, Stored};
use leasehold_store::port::{ClaimRefused, Store, Unmet};
use leasehold_store::view::{
    ApiTokenView, AuditEntry, Backfilled, Beaten, Candidate, Chained, Deletion, Enrolled, EnrollmentView, Fired, Grant,
    KeyedRun, Lane, LaneKey, LedgerEntry, LogPage, PlanView, ProjectView, Pruned, PullState, RunFacts, RunSummary,
    RunView, Scanned, Statistics, TaskRevision, TaskView, TriggerView, WorkerView,
};
use leasehold_store::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

mod activation;
mod admit;
mod apply;
mod audit;
mod cancel;
mod chains;
mod claim;
mod clock;
mod column;
mod deletion;
mod end;
mod enrollment;
mod faults;
mod inspect;
mod installation;
mod lanes;
mod ledger;
mod load;
mod lock;
mod logs;
mod migrate;
mod moved;
pub(crate) mod moving;
mod open;
mod pauses;
mod places;
mod projects;
mod queries;
mod queue;
mod readers;
mod recovery;
mod reserve;
mod resolve;
mod rows;
mod sessions;
mod statistics;
mod tasks;
mod transaction;
mod triggers;
mod webhooks;
mod workers;
mod writer;

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

pub use inspect::{Contents, Holder, InspectError, Inspection, holder, inspect, mark, network_file_system};
pub use lock::Lock;
pub use moved::{Moved, Place, Stage};
pub use moving::{Source, SourceError};
pub use open::{OpenError, Options};

use transaction::{Fault, Tx};

/// A store on one SQLite file. Cheap to clone; the last clone closes the database.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    writes: queue::Queue,
    reads: queue::Queue,
    clock: Arc<clock::LeaseClock>,
    observer: Option<Arc<dyn Observer>>,
    /// The writer's, which ends after the readers'.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SqliteStore")
    }
}

impl SqliteStore {
    /// A call that may write, in the writer's next transaction.
    async fn write<T, F>(&self, name: &'static str, body: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.called(name, Access::Write, self.inner.writes.call(name, body)).await
    }

    /// A call that only reads, on a reader.
    async fn read<T, F>(&self, name: &'static str, body: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.called(name, Access::Read, self.inner.reads.call(name, body)).await
    }

    /// A call, measured where somebody wants to know.
    async fn called<T>(
        &self,
        name: &'static str,
        access: Access,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(observer) = &self.inner.observer else { return call.await };
        let begun = observer.elapsed();
        let answer = call.await;
        observer.called(name, access, observer.elapsed().saturating_sub(begun), Called::of(&answer));
        answer
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn now(&self) -> Result<Now, StoreError> {
        Ok(self.inner.clock.now())
    }

    async fn check(&self) -> Result<(), StoreError> {
        // A write like any other, down to the sync: a full disk shows nowhere else.
        self.write("check", clock::store).await
    }

    async fn installation(&self) -> Result<Option<Installation>, StoreError> {
        self.read("installation", installation::installation).await
    }

    async fn create_installation(&self, installation: Installation, first: NewApiToken) -> Stored<(), Unmet> {
        self.write("create_installation", move |tx| installation::create(tx, &installation, &first)).await
    }

    async fn find_api_token(&self, digest: Digest) -> Result<Option<ApiTokenView>, StoreError> {
        self.read("find_api_token", move |tx| installation::find_api_token(tx, digest)).await
    }

    async fn create_enrollment(&self, actor: Actor, enrollment: NewEnrollment) -> Stored<(), Unmet> {
        self.write("create_enrollment", move |tx| enrollment::create(tx, &actor, &enrollment)).await
    }

    async fn find_enrollment(&self, token: Digest) -> Result<Option<EnrollmentView>, StoreError> {
        self.read("find_enrollment", move |tx| enrollment::find(tx, token)).await
    }

    async fn enroll(&self, call: Enroll) -> Stored<Enrolled, Refusal> {
        self.write("enroll", move |tx| enrollment::enroll(tx, &call)).await
    }

    async fn register_session(&self, call: RegisterSession) -> Stored<SessionProjection, Refusal> {
        self.write("register_session", move |tx| sessions::register(tx, &call)).await
    }

    async fn heartbeat(&self, call: Heartbeat) -> Stored<Beaten, Refusal> {
        self.write("heartbeat", move |tx| sessions::heartbeat(tx, &call)).await
    }

    async fn drain_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.write("drain_session", move |tx| sessions::drain(tx, &call)).await
    }

    async fn offline_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.write("offline_session", move |tx| sessions::offline(tx, &call)).await
    }

    async fn drain_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.write("drain_worker", move |tx| workers::drain(tx, &call)).await
    }

    async fn resume_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.write("resume_worker", move |tx| workers::resume(tx, &call)).await
    }

    async fn grant_takeover(&self, call: GrantTakeover) -> Stored<WorkerView, Unmet> {
        self.write("grant_takeover", move |tx| workers::grant_takeover(tx, &call)).await
    }

    async fn delete_worker(&self, call: DeleteWorker) -> Stored<Deletion, Unmet> {
        self.write("delete_worker", move |tx| deletion::delete(tx, &call)).await
    }

    async fn create_project(&self, call: CreateProject) -> Stored<ProjectView, Unmet> {
        self.write("create_project", move |tx| projects::create(tx, &call)).await
    }

    async fn set_project(&self, call: SetProject) -> Stored<ProjectView, Unmet> {
        self.write("set_project", move |tx| projects::set(tx, &call)).await
    }

    async fn delete_project(&self, call: DeleteProject) -> Stored<(), Unmet> {
        self.write("delete_project", move |tx| projects::delete(tx, &call)).await
    }

    async fn project(&self, name: &ProjectName) -> Result<Option<ProjectView>, StoreError> {
        let name = name.clone();
        self.read("project", move |tx| projects::project(tx, &name)).await
    }

    async fn projects(&self, after: Option<ProjectName>, limit: usize) -> Result<Vec<ProjectView>, StoreError> {
        self.read("projects", move |tx| projects::projects(tx, after.as_ref(), limit)).await
    }

    async fn plan_tasks(
        &self,
        project: &ProjectName,
        tasks: BTreeMap<TaskName, Revision>,
        prune: bool,
        cascade: bool,
    ) -> Result<Result<PlanView, Broken>, StoreError> {
        let project = project.clone();
        self.read("plan_tasks", move |tx| tasks::plan(tx, &project, &tasks, prune, cascade)).await
    }

    async fn apply_tasks(&self, call: ApplyTasks) -> Stored<(), Unmet> {
        self.write("apply_tasks", move |tx| tasks::apply(tx, &call)).await
    }

    async fn delete_task(&self, call: DeleteTask) -> Stored<(), Unmet> {
        self.write("delete_task", move |tx| tasks::delete(tx, &call)).await
    }

    async fn task(&self, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, StoreError> {
        let (project, name) = (project.clone(), name.clone());
        self.read("task", move |tx| tasks::task(tx, &project, &name)).await
    }

    async fn tasks(
        &self,
        project: &ProjectName,
        after: Option<TaskName>,
        limit: usize,
    ) -> Result<Vec<TaskView>, StoreError> {
        let project = project.clone();
        self.read("tasks", move |tx| tasks::tasks(tx, &project, after.as_ref(), limit)).await
    }

    async fn task_history(
        &self,
        project: &ProjectName,
        name: &TaskName,
        before: Option<RevisionNumber>,
        limit: usize,
    ) -> Result<Vec<TaskRevision>, StoreError> {
        let (project, name) = (project.clone(), name.clone());
        self.read("task_history", move |tx| tasks::history(tx, &project, &name, before, limit)).await
    }

    async fn task_revision(
        &self,
        project: &ProjectName,
        name: &TaskName,
        number: RevisionNumber,
    ) -> Result<Option<(TaskRevision, Revision)>, StoreError> {
        let (project, name) = (project.clone(), name.clone());
        self.read("task_revision", move |tx| tasks::revision(tx, &project, &name, number)).await
    }

    async fn pause_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.write("pause_triggers", move |tx| pauses::pause(tx, &call)).await
    }

    async fn resume_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.write("resume_triggers", move |tx| pauses::resume(tx, &call)).await
    }

    async fn backfill_trigger(&self, call: BackfillTrigger) -> Stored<Backfilled, Unmet> {
        self.write("backfill_trigger", move |tx| pauses::backfill(tx, &call)).await
    }

    async fn triggers(&self, page: TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, StoreError> {
        self.read("triggers", move |tx| triggers::triggers(tx, &page, limit)).await
    }

    async fn ledger(&self, page: LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.read("ledger", move |tx| ledger::page(tx, &page, limit)).await
    }

    async fn make_webhook_token(&self, call: MakeWebhookToken) -> Stored<TokenMade, Unmet> {
        self.write("make_webhook_token", move |tx| webhooks::make_token(tx, &call)).await
    }

    async fn webhook_token(&self, trigger: &TriggerKey) -> Result<Option<Digest>, StoreError> {
        let trigger = trigger.clone();
        self.read("webhook_token", move |tx| webhooks::token(tx, &trigger)).await
    }

    async fn call_webhook(&self, call: CallWebhook) -> Stored<RunView, CallRefused> {
        self.write("call_webhook", move |tx| webhooks::call(tx, &call)).await
    }

    async fn admit_run(&self, call: AdmitRun) -> Stored<RunView, Unmet> {
        self.write("admit_run", move |tx| admit::admit(tx, &call)).await
    }

    async fn keyed_run(&self, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, StoreError> {
        let (project, key) = (project.clone(), key.to_owned());
        self.read("keyed_run", move |tx| admit::of_key(tx, &project, &key)).await
    }

    async fn recover_asks(&self, session: SessionFence, asks: Vec<Ask>) -> Stored<PullState, Refusal> {
        self.write("recover_asks", move |tx| claim::recover_asks(tx, &session, &asks)).await
    }

    async fn lanes(&self, after: Option<LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, StoreError> {
        self.read("lanes", move |tx| lanes::lanes(tx, after.as_ref(), lanes, heads)).await
    }

    async fn heads(&self, of: Vec<LaneAfter>, limit: usize) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.read("heads", move |tx| lanes::heads(tx, &of, limit)).await
    }

    async fn claim(&self, call: Claim) -> Stored<Grant, ClaimRefused> {
        self.write("claim", move |tx| claim::claim(tx, &call)).await
    }

    async fn release(&self, call: Release) -> Stored<(), Refusal> {
        self.write("release", move |tx| claim::release(tx, &call)).await
    }

    async fn acknowledge_starting(&self, call: AttemptStep) -> Stored<Starting, Refusal> {
        self.write("acknowledge_starting", move |tx| activation::starting(tx, &call)).await
    }

    async fn acknowledge_running(&self, call: AcknowledgeRunning) -> Stored<LeaseProjection, Refusal> {
        self.write("acknowledge_running", move |tx| activation::running(tx, &call)).await
    }

    async fn end(&self, call: EndCall) -> Stored<Ended, Refusal> {
        self.write("end", move |tx| end::end(tx, &call)).await
    }

    async fn append_log(&self, call: AppendLog) -> Stored<u64, Refusal> {
        self.write("append_log", move |tx| logs::append(tx, &call)).await
    }

    async fn read_log(&self, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, StoreError> {
        self.read("read_log", move |tx| logs::read(tx, attempt, offset, limit)).await
    }

    async fn cancel_run(&self, call: CancelRun) -> Stored<(Cancel, RunView), Unmet> {
        self.write("cancel_run", move |tx| cancel::cancel(tx, &call)).await
    }

    async fn resolve_run(&self, call: ResolveRun) -> Stored<(Resolve, RunView), Unmet> {
        self.write("resolve_run", move |tx| resolve::resolve(tx, &call)).await
    }

    async fn run(&self, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.read("run", move |tx| queries::run(tx, run)).await
    }

    async fn runs_by_prefix(&self, prefix: &str) -> Result<Vec<RunId>, StoreError> {
        let prefix = prefix.to_owned();
        self.read("runs_by_prefix", move |tx| queries::runs_by_prefix(tx, &prefix)).await
    }

    async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, StoreError> {
        self.read("runs", move |tx| queries::runs(tx, &filter, limit)).await
    }

    async fn events(&self, page: EventsAfter, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.read("events", move |tx| queries::events(tx, page, limit)).await
    }

    async fn run_facts(
        &self,
        run: RunId,
        after: Option<WorkerId>,
        limit: usize,
    ) -> Result<Option<RunFacts>, StoreError> {
        self.read("run_facts", move |tx| queries::run_facts(tx, run, after.as_ref(), limit)).await
    }

    async fn worker(&self, worker: &WorkerId) -> Result<Option<WorkerView>, StoreError> {
        let worker = worker.clone();
        self.read("worker", move |tx| queries::worker(tx, &worker)).await
    }

    async fn workers(&self, after: Option<WorkerId>, limit: usize) -> Result<Vec<WorkerView>, StoreError> {
        self.read("workers", move |tx| queries::workers(tx, after.as_ref(), limit)).await
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        self.read("statistics", statistics::statistics).await
    }

    async fn audit(&self, page: AuditPage, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.read("audit", move |tx| audit::page(tx, page, limit)).await
    }

    async fn expire_leases(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.write("expire_leases", move |tx| recovery::expire_leases(tx, limit)).await
    }

    async fn begin_retries(&self, ids: Vec<AttemptId>) -> Result<Scanned, StoreError> {
        self.write("begin_retries", move |tx| recovery::begin_retries(tx, &ids)).await
    }

    async fn stop_overdue(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.write("stop_overdue", move |tx| recovery::stop_overdue(tx, limit)).await
    }

    async fn fire_triggers(&self, limit: usize) -> Result<Fired, StoreError> {
        self.write("fire_triggers", move |tx| triggers::fire(tx, limit)).await
    }

    async fn prune_ledgers(&self, from: Option<TriggerKey>, limit: usize) -> Result<Pruned, StoreError> {
        self.write("prune_ledgers", move |tx| ledger::prune(tx, from.as_ref(), limit)).await
    }

    async fn settle_chains(&self, limit: usize) -> Result<Chained, StoreError> {
        self.write("settle_chains", move |tx| chains::settle(tx, limit)).await
    }
}
