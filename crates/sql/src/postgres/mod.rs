//! The store on PostgreSQL: any number of replicas on one database, row locks, the database's clock.
//!
//! One file per verb of the port, facing SQLite's; `lock` takes the locks in the one order, `load` reads records, `apply`
//! writes what a decision answers, `carry` is how a call is carried out, and what its caller may conclude. (Control design,
//! *Store*.)

use std::collections::BTreeMap;
use std::sync::Arc;

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
use leasehold_store::hint::HintExchange;
use leasehold_store::observe::{Access, Observer};
use leasehold_store::outcome::{Outcome, StoreError, Stored};
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
mod beats;
mod cancel;
mod carry;
mod chains;
mod claim;
mod clock;
mod column;
mod connect;
mod connections;
mod deletion;
mod end;
mod enrollment;
mod faults;
mod hints;
mod history;
mod inspect;
mod installation;
mod lanes;
mod ledger;
mod load;
mod lock;
mod logs;
mod migrate;
pub(crate) mod moving;
mod open;
mod pauses;
mod places;
mod projects;
mod queries;
mod recovery;
mod renewals;
mod resolve;
mod rights;
mod rows;
mod sessions;
mod statistics;
mod tasks;
mod tls;
mod transaction;
mod triggers;
mod webhooks;
mod workers;

#[cfg(test)]
mod plans;
#[cfg(test)]
pub(crate) mod tests;

pub use history::Witness;
pub use inspect::{ClockSteps, Inspection, inspect};
pub use moving::TargetError;
pub use open::{OpenError, PostgresOptions};

use clock::Clocks;
use lock::Locks;

/// A store on one PostgreSQL database. Cheap to clone; the last clone closes its connections.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    connections: connections::Connections,
    /// What holds every table.
    schema: String,
    observer: Option<Arc<dyn Observer>>,
    clocks: Clocks,
    hints: Arc<hints::Hints>,
    beats: beats::Beats,
    /// Whether the plain case of a call is one statement; tests of the other way say no.
    plainly: bool,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresStore")
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn hints(&self) -> Option<Arc<dyn HintExchange>> {
        Some(self.inner.hints.clone())
    }

    async fn now(&self) -> Result<Now, StoreError> {
        self.called("now", Access::Read, self.attempted(|db| async move { db.peek_clock().await })).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        // A write like any other, down to the sync: a full disk shows nowhere else.
        match self.write("check", |db| async move { db.lock(Locks::none()).await?.leave_a_mark().await }).await {
            Ok(()) => self.look_again().await,
            // The look says it in a sentence.
            Err(error @ StoreError::NotAllowed { .. }) => self.look_again().await.and(Err(error)),
            Err(error) => Err(error),
        }
    }

    async fn warning(&self) -> Option<&'static str> {
        const FAILOVER: &str =
            "no commit waits for a standby of the database: a failover may lose what was acknowledged";
        const STEPPED: &str = "the database's clock stepped within the last day: set it right, and have it slewed";
        if self.clock_stepped_lately().await? {
            return Some(STEPPED);
        }
        self.loses_by_failover().await?.then_some(FAILOVER)
    }

    async fn installation(&self) -> Result<Option<Installation>, StoreError> {
        self.read("installation", |tx| async move { installation::installation(&tx).await }).await
    }

    async fn create_installation(&self, installation: Installation, first: NewApiToken) -> Stored<(), Unmet> {
        self.write("create_installation", |db| installation::create(db, &installation, &first)).await
    }

    async fn find_api_token(&self, digest: Digest) -> Result<Option<ApiTokenView>, StoreError> {
        self.read("find_api_token", |tx| async move { installation::find_api_token(&tx, digest).await }).await
    }

    async fn create_enrollment(&self, actor: Actor, enrollment: NewEnrollment) -> Stored<(), Unmet> {
        self.write("create_enrollment", |db| enrollment::create(db, &actor, &enrollment)).await
    }

    async fn find_enrollment(&self, token: Digest) -> Result<Option<EnrollmentView>, StoreError> {
        self.read("find_enrollment", |tx| async move { enrollment::find(&tx, token).await }).await
    }

    async fn enroll(&self, call: Enroll) -> Stored<Enrolled, Refusal> {
        self.write("enroll", |db| enrollment::enroll(db, &call)).await
    }

    async fn register_session(&self, call: RegisterSession) -> Stored<SessionProjection, Refusal> {
        self.write("register_session", |db| sessions::register(db, &call)).await
    }

    async fn heartbeat(&self, call: Heartbeat) -> Stored<Beaten, Refusal> {
        let call = Arc::new(call);
        let beaten = self.called("heartbeat", Access::Write, async {
            let together = if self.inner.plainly { self.inner.beats.beat(&call).await? } else { None };
            match together {
                Some(beaten) => Ok(Outcome::Applied(beaten)),
                None => self.attempted(|db| sessions::heartbeat(db, &call)).await,
            }
        });
        self.beaten_unless_in_doubt(beaten.await)
    }

    async fn drain_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.unless_in_doubt(self.write("drain_session", |db| sessions::drain(db, &call)).await)
    }

    async fn offline_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.unless_in_doubt(self.write("offline_session", |db| sessions::offline(db, &call)).await)
    }

    async fn drain_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.write("drain_worker", |db| workers::drain(db, &call)).await
    }

    async fn resume_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.write("resume_worker", |db| workers::resume(db, &call)).await
    }

    async fn grant_takeover(&self, call: GrantTakeover) -> Stored<WorkerView, Unmet> {
        self.write("grant_takeover", |db| workers::grant_takeover(db, &call)).await
    }

    async fn delete_worker(&self, call: DeleteWorker) -> Stored<Deletion, Unmet> {
        self.write("delete_worker", |db| deletion::delete(db, &call)).await
    }

    async fn create_project(&self, call: CreateProject) -> Stored<ProjectView, Unmet> {
        self.write("create_project", |db| projects::create(db, &call)).await
    }

    async fn set_project(&self, call: SetProject) -> Stored<ProjectView, Unmet> {
        self.write("set_project", |db| projects::set(db, &call)).await
    }

    async fn delete_project(&self, call: DeleteProject) -> Stored<(), Unmet> {
        self.write("delete_project", |db| projects::delete(db, &call)).await
    }

    async fn project(&self, name: &ProjectName) -> Result<Option<ProjectView>, StoreError> {
        self.read("project", |tx| async move { projects::project(&tx, name).await }).await
    }

    async fn projects(&self, after: Option<ProjectName>, limit: usize) -> Result<Vec<ProjectView>, StoreError> {
        let after = after.as_ref();
        self.read("projects", |tx| async move { projects::projects(&tx, after, limit).await }).await
    }

    async fn plan_tasks(
        &self,
        project: &ProjectName,
        tasks: BTreeMap<TaskName, Revision>,
        prune: bool,
        cascade: bool,
    ) -> Result<Result<PlanView, Broken>, StoreError> {
        let tasks = &tasks;
        self.read("plan_tasks", |tx| async move { tasks::plan(&tx, project, tasks, prune, cascade).await }).await
    }

    async fn apply_tasks(&self, call: ApplyTasks) -> Stored<(), Unmet> {
        self.write("apply_tasks", |db| tasks::apply(db, &call)).await
    }

    async fn delete_task(&self, call: DeleteTask) -> Stored<(), Unmet> {
        self.write("delete_task", |db| tasks::delete(db, &call)).await
    }

    async fn task(&self, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, StoreError> {
        self.read("task", |tx| async move { tasks::task(&tx, project, name).await }).await
    }

    async fn tasks(
        &self,
        project: &ProjectName,
        after: Option<TaskName>,
        limit: usize,
    ) -> Result<Vec<TaskView>, StoreError> {
        let after = after.as_ref();
        self.read("tasks", |tx| async move { tasks::tasks(&tx, project, after, limit).await }).await
    }

    async fn task_history(
        &self,
        project: &ProjectName,
        name: &TaskName,
        before: Option<RevisionNumber>,
        limit: usize,
    ) -> Result<Vec<TaskRevision>, StoreError> {
        self.read("task_history", |tx| async move { tasks::history(&tx, project, name, before, limit).await }).await
    }

    async fn task_revision(
        &self,
        project: &ProjectName,
        name: &TaskName,
        number: RevisionNumber,
    ) -> Result<Option<(TaskRevision, Revision)>, StoreError> {
        self.read("task_revision", |tx| async move { tasks::revision(&tx, project, name, number).await }).await
    }

    async fn pause_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.write("pause_triggers", |db| pauses::pause(db, &call)).await
    }

    async fn resume_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.write("resume_triggers", |db| pauses::resume(db, &call)).await
    }

    async fn backfill_trigger(&self, call: BackfillTrigger) -> Stored<Backfilled, Unmet> {
        self.write("backfill_trigger", |db| pauses::backfill(db, &call)).await
    }

    async fn triggers(&self, page: TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, StoreError> {
        let page = &page;
        self.read("triggers", |tx| async move { triggers::triggers(&tx, page, limit).await }).await
    }

    async fn ledger(&self, page: LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let page = &page;
        self.read("ledger", |tx| async move { ledger::page(&tx, page, limit).await }).await
    }

    async fn make_webhook_token(&self, call: MakeWebhookToken) -> Stored<TokenMade, Unmet> {
        self.write("make_webhook_token", |db| webhooks::make_token(db, &call)).await
    }

    async fn webhook_token(&self, trigger: &TriggerKey) -> Result<Option<Digest>, StoreError> {
        self.read("webhook_token", |tx| async move { webhooks::token(&tx, trigger).await }).await
    }

    async fn call_webhook(&self, call: CallWebhook) -> Stored<RunView, CallRefused> {
        self.write("call_webhook", |db| webhooks::call(db, &call)).await
    }

    async fn admit_run(&self, call: AdmitRun) -> Stored<RunView, Unmet> {
        self.write("admit_run", |db| admit::admit(db, &call)).await
    }

    async fn keyed_run(&self, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, StoreError> {
        self.read("keyed_run", |tx| async move { admit::of_key(&tx, project, key).await }).await
    }

    async fn recover_asks(&self, session: SessionFence, asks: Vec<Ask>) -> Stored<PullState, Refusal> {
        self.unless_in_doubt(self.write("recover_asks", |db| claim::recover_asks(db, &session, &asks)).await)
    }

    async fn lanes(&self, after: Option<LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, StoreError> {
        let after = after.as_ref();
        self.read("lanes", |tx| async move { lanes::lanes(&tx, after, lanes, heads).await }).await
    }

    async fn heads(&self, of: Vec<LaneAfter>, limit: usize) -> Result<Vec<Vec<Candidate>>, StoreError> {
        let of = of.as_slice();
        self.read("heads", |tx| async move { lanes::heads(&tx, of, limit).await }).await
    }

    async fn claim(&self, call: Claim) -> Stored<Grant, ClaimRefused> {
        let claimed = self.write_at_once("claim", |db| claim::plainly(db, &call), |db| claim::claim(db, &call));
        self.claimed_unless_in_doubt(Box::pin(claimed).await)
    }

    async fn release(&self, call: Release) -> Stored<(), Refusal> {
        self.unless_in_doubt(self.write("release", |db| claim::release(db, &call)).await)
    }

    async fn acknowledge_starting(&self, call: AttemptStep) -> Stored<Starting, Refusal> {
        let plain = |db| activation::starting_plainly(db, &call);
        let started = self.write_at_once("acknowledge_starting", plain, |db| activation::starting(db, &call));
        self.unless_in_doubt(started.await)
    }

    async fn acknowledge_running(&self, call: AcknowledgeRunning) -> Stored<LeaseProjection, Refusal> {
        let plain = |db| activation::running_plainly(db, &call);
        let run = self.write_at_once("acknowledge_running", plain, |db| activation::running(db, &call));
        self.unless_in_doubt(run.await)
    }

    async fn end(&self, call: EndCall) -> Stored<Ended, Refusal> {
        let ended = self.write_at_once("end", |db| end::plainly(db, &call), |db| end::end(db, &call));
        self.unless_in_doubt(ended.await)
    }

    async fn append_log(&self, call: AppendLog) -> Stored<u64, Refusal> {
        self.unless_in_doubt(self.write("append_log", |db| logs::append(db, &call)).await)
    }

    async fn read_log(&self, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, StoreError> {
        self.read("read_log", |tx| async move { logs::read(&tx, attempt, offset, limit).await }).await
    }

    async fn cancel_run(&self, call: CancelRun) -> Stored<(Cancel, RunView), Unmet> {
        self.write("cancel_run", |db| cancel::cancel(db, &call)).await
    }

    async fn resolve_run(&self, call: ResolveRun) -> Stored<(Resolve, RunView), Unmet> {
        self.write("resolve_run", |db| resolve::resolve(db, &call)).await
    }

    async fn run(&self, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.read("run", |tx| async move { queries::run(&tx, run).await }).await
    }

    async fn runs_by_prefix(&self, prefix: &str) -> Result<Vec<RunId>, StoreError> {
        self.read("runs_by_prefix", |tx| async move { queries::runs_by_prefix(&tx, prefix).await }).await
    }

    async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, StoreError> {
        let filter = &filter;
        self.read("runs", |tx| async move { queries::runs(&tx, filter, limit).await }).await
    }

    async fn events(&self, page: EventsAfter, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.read("events", |tx| async move { queries::events(&tx, page, limit).await }).await
    }

    async fn run_facts(
        &self,
        run: RunId,
        after: Option<WorkerId>,
        limit: usize,
    ) -> Result<Option<RunFacts>, StoreError> {
        let after = after.as_ref();
        self.read("run_facts", |tx| async move { queries::run_facts(&tx, run, after, limit).await }).await
    }

    async fn worker(&self, worker: &WorkerId) -> Result<Option<WorkerView>, StoreError> {
        self.read("worker", |tx| async move { queries::worker(&tx, worker).await }).await
    }

    async fn workers(&self, after: Option<WorkerId>, limit: usize) -> Result<Vec<WorkerView>, StoreError> {
        let after = after.as_ref();
        self.read("workers", |tx| async move { queries::workers(&tx, after, limit).await }).await
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        self.read("statistics", |tx| async move { statistics::statistics(&tx).await }).await
    }

    async fn audit(&self, page: AuditPage, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.read("audit", |tx| async move { audit::page(&tx, page, limit).await }).await
    }

    async fn expire_leases(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.write("expire_leases", |db| recovery::expire_leases(db, limit)).await
    }

    async fn begin_retries(&self, ids: Vec<AttemptId>) -> Result<Scanned, StoreError> {
        self.write("begin_retries", |db| recovery::begin_retries(db, &ids)).await
    }

    async fn stop_overdue(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.write("stop_overdue", |db| recovery::stop_overdue(db, limit)).await
    }

    async fn fire_triggers(&self, limit: usize) -> Result<Fired, StoreError> {
        self.write("fire_triggers", |db| triggers::fire(db, limit)).await
    }

    async fn prune_ledgers(&self, from: Option<TriggerKey>, limit: usize) -> Result<Pruned, StoreError> {
        self.write("prune_ledgers", |db| ledger::prune(db, from.as_ref(), limit)).await
    }

    async fn settle_chains(&self, limit: usize) -> Result<Chained, StoreError> {
        self.write("settle_chains", |db| chains::settle(db, limit)).await
    }
}
