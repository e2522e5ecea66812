//! A store that fails on purpose: before a transaction, or with an answer that is lost, whether it was done or not.
//!
//! Wraps any store; the faults come from a schedule that a seed or a list decides, so a failing history replays
//! exactly. A reader that fails is always *not done*. For tests and the simulation. (Proof, *Simulation*.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

use crate::call::{
    AcknowledgeRunning, AdmitRun, AppendLog, ApplyTasks, AttemptStep, AuditPage, BackfillTrigger, CancelRun, Claim,
    CreateProject, DeleteProject, DeleteTask, DeleteWorker, DrainWorker, Enroll, EventsAfter, GrantTakeover, Heartbeat,
    Installation, LaneAfter, LedgerPage, NewApiToken, NewEnrollment, PauseTriggers, RegisterSession, Release,
    ResolveRun, RunFilter, SessionStep, SetProject, TriggersAfter,
};
use crate::hint::HintExchange;
use crate::method;
use crate::observe::Access;
use crate::outcome::{StoreError, Stored};
use crate::port::{ClaimRefused, Store, Unmet};
use crate::view::{
    ApiTokenView, AuditEntry, Backfilled, Beaten, Candidate, Chained, Deletion, Enrolled, EnrollmentView, Fired, Grant,
    KeyedRun, Lane, LaneKey, LedgerEntry, LogPage, PlanView, ProjectView, Pruned, PullState, RunFacts, RunSummary,
    RunView, Scanned, Statistics, TaskRevision, TaskView, TriggerView, WorkerView,
};
use crate::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It fails before anything is done, and says so.
    Before,
    /// It is done, and the answer is lost: whether it was done is unknown.
    After,
    /// It is not done, and whether it was is unknown just the same.
    Undone,
}

/// Which calls fail, and how.
#[derive(Debug)]
pub enum Schedule {
    /// These faults in turn, over and over.
    Cycle {
        /// The faults.
        faults: Vec<Fault>,
        /// How many calls there were.
        calls: usize,
    },
    /// By chance.
    Seeded {
        /// The state of the generator.
        state: u64,
        /// Of a hundred calls, those that fail before.
        before: u64,
        /// Of a hundred calls, those whose answer is lost; half of them are done.
        lost: u64,
    },
}

impl Schedule {
    /// These faults in turn, over and over; no fault at all if the list is empty.
    pub fn cycle(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self::Cycle { faults: faults.into_iter().collect(), calls: 0 }
    }

    /// Faults by chance, the same for the same seed: of a hundred calls `before` fail before, and `lost` lose their answer,
    /// half of them done.
    pub const fn seeded(seed: u64, before: u64, lost: u64) -> Self {
        Self::Seeded { state: seed, before, lost }
    }

    fn next(&mut self) -> Fault {
        match self {
            Self::Cycle { faults, calls } => {
                let place = calls.checked_rem(faults.len());
                *calls = calls.wrapping_add(1);
                place.and_then(|place| faults.get(place)).copied().unwrap_or(Fault::None)
            }
            Self::Seeded { state, before, lost } => match split_mix(state) % 100 {
                chance if chance < *before => Fault::Before,
                chance if chance < before.saturating_add(*lost) => {
                    if split_mix(state) & 1 == 0 {
                        Fault::After
                    } else {
                        Fault::Undone
                    }
                }
                _ => Fault::None,
            },
        }
    }
}

/// The next number of a `SplitMix64` generator: small, and the same on every machine.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Who is told which method is called, before it is.
type Told = Box<dyn Fn(&'static str) + Send + Sync>;

/// A store whose calls fail by a schedule.
pub struct Faulty {
    inner: Arc<dyn Store>,
    schedule: Mutex<Schedule>,
    /// The methods that were done and whose answer was lost.
    lost: Mutex<BTreeSet<&'static str>>,
    told: Option<Told>,
    hints: Option<Arc<dyn HintExchange>>,
    takes: Duration,
}

impl Faulty {
    /// `inner` with faults.
    pub fn new(inner: Arc<dyn Store>, schedule: Schedule) -> Self {
        let (lost, takes) = (Mutex::default(), Duration::ZERO);
        Self { inner, schedule: Mutex::new(schedule), lost, told: None, hints: None, takes }
    }

    /// `inner` without faults of ours; `told` hears which method is called, before it is, and may see to other faults.
    pub fn telling(inner: Arc<dyn Store>, told: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self { told: Some(Box::new(told)), ..Self::new(inner, Schedule::cycle([])) }
    }

    /// The same as one replica's store, whose hints go by `exchange`.
    #[must_use]
    pub fn hinting(self, exchange: Arc<dyn HintExchange>) -> Self {
        Self { hints: Some(exchange), ..self }
    }

    /// The same, and each call is on its way for this long before anything is done: others come in between.
    #[must_use]
    pub fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    /// The methods that were done and whose answer was lost.
    pub fn lost(&self) -> BTreeSet<&'static str> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next(&self) -> Fault {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    async fn call<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if let Some(told) = &self.told {
            told(method);
        }
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        match (self.next(), method::access_of(method)) {
            (Fault::None, _) => call.await,
            (Fault::Before, _) | (_, Access::Read) => Err(not_done()),
            (Fault::Undone, Access::Write) => Err(unknown()),
            (Fault::After, Access::Write) => {
                call.await?;
                self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(method);
                Err(unknown())
            }
        }
    }
}

fn not_done() -> StoreError {
    StoreError::NotDone { reason: "it failed on purpose".to_owned() }
}

fn unknown() -> StoreError {
    StoreError::Unknown { reason: "the answer was lost on purpose".to_owned() }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Faulty {
    fn hints(&self) -> Option<Arc<dyn HintExchange>> {
        self.hints.clone()
    }

    async fn now(&self) -> Result<Now, StoreError> {
        self.call("now", self.inner.now()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call("check", self.inner.check()).await
    }

    async fn installation(&self) -> Result<Option<Installation>, StoreError> {
        self.call("installation", self.inner.installation()).await
    }

    async fn create_installation(&self, installation: Installation, first: NewApiToken) -> Stored<(), Unmet> {
        self.call("create_installation", self.inner.create_installation(installation, first)).await
    }

    async fn find_api_token(&self, digest: Digest) -> Result<Option<ApiTokenView>, StoreError> {
        self.call("find_api_token", self.inner.find_api_token(digest)).await
    }

    async fn create_enrollment(&self, actor: Actor, enrollment: NewEnrollment) -> Stored<(), Unmet> {
        self.call("create_enrollment", self.inner.create_enrollment(actor, enrollment)).await
    }

    async fn find_enrollment(&self, token: Digest) -> Result<Option<EnrollmentView>, StoreError> {
        self.call("find_enrollment", self.inner.find_enrollment(token)).await
    }

    async fn enroll(&self, call: Enroll) -> Stored<Enrolled, Refusal> {
        self.call("enroll", self.inner.enroll(call)).await
    }

    async fn register_session(&self, call: RegisterSession) -> Stored<SessionProjection, Refusal> {
        self.call("register_session", self.inner.register_session(call)).await
    }

    async fn heartbeat(&self, call: Heartbeat) -> Stored<Beaten, Refusal> {
        self.call("heartbeat", self.inner.heartbeat(call)).await
    }

    async fn drain_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.call("drain_session", self.inner.drain_session(call)).await
    }

    async fn offline_session(&self, call: SessionStep) -> Stored<SessionProjection, Refusal> {
        self.call("offline_session", self.inner.offline_session(call)).await
    }

    async fn drain_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.call("drain_worker", self.inner.drain_worker(call)).await
    }

    async fn resume_worker(&self, call: DrainWorker) -> Stored<WorkerView, Unmet> {
        self.call("resume_worker", self.inner.resume_worker(call)).await
    }

    async fn grant_takeover(&self, call: GrantTakeover) -> Stored<WorkerView, Unmet> {
        self.call("grant_takeover", self.inner.grant_takeover(call)).await
    }

    async fn delete_worker(&self, call: DeleteWorker) -> Stored<Deletion, Unmet> {
        self.call("delete_worker", self.inner.delete_worker(call)).await
    }

    async fn create_project(&self, call: CreateProject) -> Stored<ProjectView, Unmet> {
        self.call("create_project", self.inner.create_project(call)).await
    }

    async fn set_project(&self, call: SetProject) -> Stored<ProjectView, Unmet> {
        self.call("set_project", self.inner.set_project(call)).await
    }

    async fn delete_project(&self, call: DeleteProject) -> Stored<(), Unmet> {
        self.call("delete_project", self.inner.delete_project(call)).await
    }

    async fn project(&self, name: &ProjectName) -> Result<Option<ProjectView>, StoreError> {
        self.call("project", self.inner.project(name)).await
    }

    async fn projects(&self, after: Option<ProjectName>, limit: usize) -> Result<Vec<ProjectView>, StoreError> {
        self.call("projects", self.inner.projects(after, limit)).await
    }

    async fn plan_tasks(
        &self,
        project: &ProjectName,
        tasks: BTreeMap<TaskName, Revision>,
        prune: bool,
        cascade: bool,
    ) -> Result<Result<PlanView, Broken>, StoreError> {
        self.call("plan_tasks", self.inner.plan_tasks(project, tasks, prune, cascade)).await
    }

    async fn apply_tasks(&self, call: ApplyTasks) -> Stored<(), Unmet> {
        self.call("apply_tasks", self.inner.apply_tasks(call)).await
    }

    async fn delete_task(&self, call: DeleteTask) -> Stored<(), Unmet> {
        self.call("delete_task", self.inner.delete_task(call)).await
    }

    async fn task(&self, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, StoreError> {
        self.call("task", self.inner.task(project, name)).await
    }

    async fn tasks(
        &self,
        project: &ProjectName,
        after: Option<TaskName>,
        limit: usize,
    ) -> Result<Vec<TaskView>, StoreError> {
        self.call("tasks", self.inner.tasks(project, after, limit)).await
    }

    async fn task_history(
        &self,
        project: &ProjectName,
        name: &TaskName,
        before: Option<RevisionNumber>,
        limit: usize,
    ) -> Result<Vec<TaskRevision>, StoreError> {
        self.call("task_history", self.inner.task_history(project, name, before, limit)).await
    }

    async fn task_revision(
        &self,
        project: &ProjectName,
        name: &TaskName,
        number: RevisionNumber,
    ) -> Result<Option<(TaskRevision, Revision)>, StoreError> {
        self.call("task_revision", self.inner.task_revision(project, name, number)).await
    }

    async fn pause_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.call("pause_triggers", self.inner.pause_triggers(call)).await
    }

    async fn resume_triggers(&self, call: PauseTriggers) -> Stored<(), Unmet> {
        self.call("resume_triggers", self.inner.resume_triggers(call)).await
    }

    async fn backfill_trigger(&self, call: BackfillTrigger) -> Stored<Backfilled, Unmet> {
        self.call("backfill_trigger", self.inner.backfill_trigger(call)).await
    }

    async fn triggers(&self, page: TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, StoreError> {
        self.call("triggers", self.inner.triggers(page, limit)).await
    }

    async fn ledger(&self, page: LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.call("ledger", self.inner.ledger(page, limit)).await
    }

    async fn make_webhook_token(&self, call: MakeWebhookToken) -> Stored<TokenMade, Unmet> {
        self.call("make_webhook_token", self.inner.make_webhook_token(call)).await
    }

    async fn webhook_token(&self, trigger: &TriggerKey) -> Result<Option<Digest>, StoreError> {
        self.call("webhook_token", self.inner.webhook_token(trigger)).await
    }

    async fn call_webhook(&self, call: CallWebhook) -> Stored<RunView, CallRefused> {
        self.call("call_webhook", self.inner.call_webhook(call)).await
    }

    async fn admit_run(&self, call: AdmitRun) -> Stored<RunView, Unmet> {
        self.call("admit_run", self.inner.admit_run(call)).await
    }

    async fn keyed_run(&self, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, StoreError> {
        self.call("keyed_run", self.inner.keyed_run(project, key)).await
    }

    async fn recover_asks(&self, session: SessionFence, asks: Vec<Ask>) -> Stored<PullState, Refusal> {
        self.call("recover_asks", self.inner.recover_asks(session, asks)).await
    }

    async fn lanes(&self, after: Option<LaneKey>, lanes: usize, heads: usize) -> Result<Vec<Lane>, StoreError> {
        self.call("lanes", self.inner.lanes(after, lanes, heads)).await
    }

    async fn heads(&self, of: Vec<LaneAfter>, limit: usize) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.call("heads", self.inner.heads(of, limit)).await
    }

    async fn claim(&self, call: Claim) -> Stored<Grant, ClaimRefused> {
        self.call("claim", self.inner.claim(call)).await
    }

    async fn release(&self, call: Release) -> Stored<(), Refusal> {
        self.call("release", self.inner.release(call)).await
    }

    async fn acknowledge_starting(&self, call: AttemptStep) -> Stored<Starting, Refusal> {
        self.call("acknowledge_starting", self.inner.acknowledge_starting(call)).await
    }

    async fn acknowledge_running(&self, call: AcknowledgeRunning) -> Stored<LeaseProjection, Refusal> {
        self.call("acknowledge_running", self.inner.acknowledge_running(call)).await
    }

    async fn end(&self, call: EndCall) -> Stored<Ended, Refusal> {
        self.call("end", self.inner.end(call)).await
    }

    async fn append_log(&self, call: AppendLog) -> Stored<u64, Refusal> {
        self.call("append_log", self.inner.append_log(call)).await
    }

    async fn read_log(&self, attempt: AttemptId, offset: u64, limit: usize) -> Result<Option<LogPage>, StoreError> {
        self.call("read_log", self.inner.read_log(attempt, offset, limit)).await
    }

    async fn cancel_run(&self, call: CancelRun) -> Stored<(Cancel, RunView), Unmet> {
        self.call("cancel_run", self.inner.cancel_run(call)).await
    }

    async fn resolve_run(&self, call: ResolveRun) -> Stored<(Resolve, RunView), Unmet> {
        self.call("resolve_run", self.inner.resolve_run(call)).await
    }

    async fn run(&self, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.call("run", self.inner.run(run)).await
    }

    async fn runs_by_prefix(&self, prefix: &str) -> Result<Vec<RunId>, StoreError> {
        self.call("runs_by_prefix", self.inner.runs_by_prefix(prefix)).await
    }

    async fn runs(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>, StoreError> {
        self.call("runs", self.inner.runs(filter, limit)).await
    }

    async fn events(&self, page: EventsAfter, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.call("events", self.inner.events(page, limit)).await
    }

    async fn run_facts(
        &self,
        run: RunId,
        after: Option<WorkerId>,
        limit: usize,
    ) -> Result<Option<RunFacts>, StoreError> {
        self.call("run_facts", self.inner.run_facts(run, after, limit)).await
    }

    async fn worker(&self, worker: &WorkerId) -> Result<Option<WorkerView>, StoreError> {
        self.call("worker", self.inner.worker(worker)).await
    }

    async fn workers(&self, after: Option<WorkerId>, limit: usize) -> Result<Vec<WorkerView>, StoreError> {
        self.call("workers", self.inner.workers(after, limit)).await
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        self.call("statistics", self.inner.statistics()).await
    }

    async fn audit(&self, page: AuditPage, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.call("audit", self.inner.audit(page, limit)).await
    }

    async fn expire_leases(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.call("expire_leases", self.inner.expire_leases(limit)).await
    }

    async fn begin_retries(&self, ids: Vec<AttemptId>) -> Result<Scanned, StoreError> {
        self.call("begin_retries", self.inner.begin_retries(ids)).await
    }

    async fn stop_overdue(&self, limit: usize) -> Result<Scanned, StoreError> {
        self.call("stop_overdue", self.inner.stop_overdue(limit)).await
    }

    async fn fire_triggers(&self, limit: usize) -> Result<Fired, StoreError> {
        self.call("fire_triggers", self.inner.fire_triggers(limit)).await
    }

    async fn prune_ledgers(&self, from: Option<TriggerKey>, limit: usize) -> Result<Pruned, StoreError> {
        self.call("prune_ledgers", self.inner.prune_ledgers(from, limit)).await
    }

    async fn settle_chains(&self, limit: usize) -> Result<Chained, StoreError> {
        self.call("settle_chains", self.inner.settle_chains(limit)).await
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::crypto::{Digest, Domain};
    use leasehold_core::time::Clock;

    use super::*;
    use crate::contract::TestClock;
    use crate::model::ModelStore;

    fn faults(mut schedule: Schedule) -> Vec<Fault> {
        (0..300).map(|_| schedule.next()).collect()
    }

    #[test]
    fn the_same_seed_is_the_same_schedule() {
        let seed = 7;
        let one = faults(Schedule::seeded(seed, 15, 15));
        assert_eq!(one, faults(Schedule::seeded(seed, 15, 15)), "seed {seed}");
        assert_ne!(one, faults(Schedule::seeded(seed + 1, 15, 15)), "seed {seed}");
        for kind in [Fault::None, Fault::Before, Fault::After, Fault::Undone] {
            assert!(one.contains(&kind), "seed {seed}: {kind:?}");
        }
    }

    #[test]
    fn a_list_comes_in_turn_and_an_empty_one_never_fails() {
        let mut schedule = Schedule::cycle([Fault::Before, Fault::None]);
        let turns: Vec<_> = (0..4).map(|_| schedule.next()).collect();
        assert_eq!(turns, [Fault::Before, Fault::None, Fault::Before, Fault::None]);
        assert!(faults(Schedule::cycle([])).iter().all(|fault| *fault == Fault::None));
    }

    #[tokio::test]
    async fn only_an_answer_lost_after_leaves_something_done() {
        let clock = Arc::new(TestClock::new());
        for (fault, done) in [(Fault::Before, false), (Fault::After, true), (Fault::Undone, false)] {
            let inner = Arc::new(ModelStore::new(clock.clone()));
            let faulty = Faulty::new(inner.clone(), Schedule::cycle([fault]));
            let enrollment = NewEnrollment {
                id: "01900000-0000-7000-8000-000000000001".parse().unwrap(),
                worker: "nas".parse().unwrap(),
                labels: std::collections::BTreeMap::new(),
                token: Digest::of(Domain::EnrollmentToken, b"token"),
                expires_at: clock.utc().plus(leasehold_core::time::Millis::from_secs(60)),
            };
            let error = faulty.create_enrollment(Actor::System, enrollment.clone()).await.unwrap_err();
            assert_eq!(matches!(error, StoreError::NotDone { .. }), fault == Fault::Before, "{fault:?}: {error}");
            assert_eq!(inner.find_enrollment(enrollment.token).await.unwrap().is_some(), done, "{fault:?}");
        }
    }
}
