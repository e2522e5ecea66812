//! A commit whose answer was lost: the replay finds the same result.
//!
//! One history that uses every changing method is written twice: to a store without faults, and to its twin through
//! [`Faulty`], by a caller that repeats each call as it was until it is answered. Answers and rows must be the same.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use leasehold_core::attempt::{Starting, StopReason};
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::end::{Ended, Ending};
use leasehold_core::fault::{self as worker, FaultKind};
use leasehold_core::id::ProjectName;
use leasehold_core::limits::LEDGER_AGE;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::resolve::Verb;
use leasehold_core::role::Role;
use leasehold_core::session::{SessionFence, SessionProjection};
use leasehold_core::time::Clock;
use leasehold_core::trigger::TriggerKey;

use super::Harness;
use super::fixture::{
    Machine, Taken, World, admin, exited, plain, retried_when_lost, revision_with, seconds, stopped, taken, tickets,
};
use crate::call::{
    AcknowledgeRunning, AdmitRun, AppendLog, ApplyTasks, BackfillTrigger, CreateProject, DeleteProject, DeleteTask,
    DeleteWorker, DrainWorker, GrantTakeover, Heartbeat, Installation, Keyed, NewApiToken, PauseTriggers, Release,
    SessionStep, SetProject,
};
use crate::faulty::{Fault, Faulty, Schedule};
use crate::method;
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Store;
use crate::view::{Beaten, Chained, Pruned, Scanned};
use crate::webhook::{CallWebhook, MakeWebhookToken};

/// The replaying caller, with everything it was answered.
struct Caller<'w, 'h> {
    world: &'w World<'h>,
    store: Arc<dyn Store>,
    answers: Vec<String>,
}

/// Repeats `call` as it was until it is answered.
async fn answered<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(StoreError::NotDone { .. } | StoreError::Unknown { .. }) => {}
            Err(final_word @ (StoreError::NotAllowed { .. } | StoreError::Damaged { .. })) => panic!("{final_word}"),
        }
    }
}

impl Caller<'_, '_> {
    fn note<T: Debug + Clone>(&mut self, what: &str, answer: &T) -> T {
        self.answers.push(format!("{what}: {answer:?}"));
        answer.clone()
    }

    /// A call that must succeed; applied and replayed are one answer.
    async fn done<T: Debug + Clone, R: Debug, F>(&mut self, what: &str, call: impl Fn() -> F) -> T
    where
        F: Future<Output = Stored<T, R>>,
    {
        let answer = answered(call).await.into_result().unwrap();
        self.note(what, &answer)
    }

    /// A call under a session version: a conflict by exactly one is its own lost answer.
    async fn versioned<T, F>(&mut self, what: &str, call: impl Fn() -> F, shown: impl Fn(T) -> SessionProjection)
    where
        F: Future<Output = Stored<T, Refusal>>,
    {
        let projection = match answered(call).await {
            Outcome::Applied(answer) | Outcome::Replayed(answer) => shown(answer),
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.code, RefusalCode::VersionConflict, "{refusal}");
                *refusal.session.unwrap()
            }
        };
        self.note(what, &projection);
    }

    async fn session(&mut self, machine: &Machine, boot: &str, before: Option<&SessionFence>) -> SessionFence {
        let ticket = match before {
            Some(fence) => tickets().next(&machine.id, fence.session, fence.generation),
            None => tickets().first(&machine.id, machine.enrollment),
        };
        let call = self.world.registration(machine, self.world.session_id(), ticket, boot);
        let store = self.store.clone();
        let projection = self.done("register_session", || store.register_session(call.clone())).await;
        SessionFence {
            worker: machine.id.clone(),
            session: call.registration.session,
            generation: projection.generation,
        }
    }

    async fn claimed(&mut self, session: &SessionFence, revision: leasehold_core::revision::Revision) -> Taken {
        let store = self.store.clone();
        let submission = self.world.submission(revision);
        self.done("admit_run", || store.admit_run(submission.clone())).await;
        let claim = self.world.claim_call(session, &self.world.ask(), submission.run);
        taken(session, self.done("claim", || store.claim(claim.clone())).await)
    }

    async fn starting(&mut self, session: &SessionFence, revision: leasehold_core::revision::Revision) -> Taken {
        let taken = self.claimed(session, revision).await;
        self.start(&taken).await;
        taken
    }

    async fn start(&mut self, taken: &Taken) {
        let (store, step) = (self.store.clone(), &taken.step);
        let answer = answered(|| store.acknowledge_starting(step.clone())).await.into_result().unwrap();
        // First and repeated answer say the same: whether it may start, and how long.
        match answer {
            Starting::Accepted(answer) | Starting::AlreadyStarting(answer) => self.note("starting", &answer).lease,
            Starting::Stopped(lease) => self.note("stopped", &lease),
            Starting::AlreadyRunning(_) => panic!("nobody said that it runs"),
        };
    }

    async fn running(&mut self, session: &SessionFence, revision: leasehold_core::revision::Revision) -> Taken {
        let taken = self.starting(session, revision).await;
        let call = AcknowledgeRunning { step: taken.step.clone(), call: taken.running_call() };
        let store = self.store.clone();
        self.done("acknowledge_running", || store.acknowledge_running(call.clone())).await;
        taken
    }

    async fn end(&mut self, taken: &Taken, ending: Ending) {
        let (store, call) = (self.store.clone(), taken.end_call(ending));
        match answered(|| store.end(call.clone())).await.into_result().unwrap() {
            Ended::Accepted(projection) | Ended::AlreadyTerminal(projection) => self.note("end", &projection),
        };
    }

    async fn log(&mut self, taken: &Taken, offset: u64, bytes: &[u8]) {
        let call = AppendLog { step: taken.step.clone(), offset, bytes: bytes.to_vec() };
        let store = self.store.clone();
        self.done("append_log", || store.append_log(call.clone())).await;
    }

    async fn beat(&mut self, session: &SessionFence, leases: &[&Taken], faults: Option<Vec<worker::Fault>>) {
        let store = self.store.clone();
        let call = Heartbeat { faults, ..self.world.beat_call(session, leases).await };
        self.versioned("heartbeat", || store.heartbeat(call.clone()), |beaten: Beaten| beaten.session).await;
    }

    async fn step(&self, session: &SessionFence) -> SessionStep {
        SessionStep { session: session.clone(), version: self.world.version(session).await }
    }

    /// A scan is repeated until it finds nothing: what it did is seen in the rows, not in its answer.
    async fn scan<F: Future<Output = Result<Scanned, StoreError>>>(&self, scan: impl Fn() -> F) {
        let before = self.world.dump().await;
        while !answered(&scan).await.runs.is_empty() {}
        assert_ne!(self.world.dump().await, before, "a scan that finds nothing loses nothing");
    }

    /// One history with every changing method in it.
    async fn history(&mut self) {
        let store = self.store.clone();
        let world = self.world;
        answered(|| store.check()).await;
        self.installs().await;

        let name = || "lab".parse().unwrap();
        let create = CreateProject {
            actor: admin(),
            name: name(),
            concurrency: Some(1),
            idempotency_key: Some("lab".to_owned()),
        };
        self.done("create_project", || store.create_project(create.clone())).await;
        let set = SetProject { actor: admin(), name: name(), concurrency: Some(2), seen: None };
        self.done("set_project", || store.set_project(set.clone())).await;
        let nightly = Value::map([("cron", Value::text("* * * * *"))]);
        let called = Value::map([("webhook", Value::Bool(true)), ("overlap", Value::text("allow-all"))]);
        let task = [("name", Value::text("report")), ("trigger", Value::List(vec![nightly, called]))];
        let tasks = [revision_with(task)];
        let tasks = tasks.map(|revision| ("report".parse().unwrap(), revision)).into();
        let apply = ApplyTasks { actor: admin(), project: name(), tasks, prune: true, cascade: false, plan: None };
        self.done("apply_tasks", || store.apply_tasks(apply.clone())).await;
        world.pass(seconds(60));
        self.fires(&store).await;
        self.webhook(name()).await;
        let (project, task) = (name(), "report".parse().unwrap());
        let pause = PauseTriggers { actor: admin(), project, task, trigger: None, why: Some("new disk".to_owned()) };
        self.done("pause_triggers", || store.pause_triggers(pause.clone())).await;
        self.done("resume_triggers", || store.resume_triggers(pause.clone())).await;
        let key = TriggerKey { project: name(), task: pause.task.clone(), name: "cron".parse().unwrap() };
        let first = world.clock().utc().minus(LEDGER_AGE.times(2));
        let backfill = BackfillTrigger { actor: admin(), trigger: key, first, last: first.plus(seconds(120)) };
        // What it admitted is told once; the repeat finds it done.
        answered(|| store.backfill_trigger(backfill.clone())).await.into_result().unwrap();
        let pruned = answered(|| store.prune_ledgers(None, 64)).await;
        assert_eq!(pruned, Pruned::default(), "old lines stay, too, while they are few");
        let task = "report".parse().unwrap();
        let delete = DeleteTask { actor: admin(), project: name(), name: task, cascade: true, seen: None };
        self.done("delete_task", || store.delete_task(delete.clone())).await;
        let delete = DeleteProject { actor: admin(), name: name(), seen: None };
        self.done("delete_project", || store.delete_project(delete.clone())).await;

        let enrollment = world.new_enrollment("nas");
        self.done("create_enrollment", || store.create_enrollment(admin(), enrollment.clone())).await;
        let call = world.enroll_call(&enrollment, "key");
        let enrolled = self.done("enroll", || store.enroll(call.clone())).await;
        let machine = Machine { id: enrolled.worker, enrollment: enrolled.enrollment };
        let first = self.session(&machine, "boot-a", None).await;

        self.chains(&first).await;
        let drain = DrainWorker { actor: admin(), worker: machine.id.clone(), why: Some("new disk".to_owned()) };
        self.done("drain_worker", || store.drain_worker(drain.clone())).await;
        self.done("resume_worker", || store.resume_worker(drain.clone())).await;
        let given_back = self.claimed(&first, plain()).await;
        let release = Release { step: given_back.step.clone(), reason: ReleaseReason::DiskLow };
        self.done("release", || store.release(release.clone())).await;
        let logged = self.running(&first, plain()).await;
        self.log(&logged, 0, b"one ").await;
        self.log(&logged, 4, b"two").await;
        self.beat(&first, &[&logged], None).await;
        let low = worker::Fault {
            kind: FaultKind::DiskLow,
            attempt: None,
            detail: "12 MiB left".to_owned(),
            since: world.clock().utc(),
        };
        self.beat(&first, &[&logged], Some(vec![low])).await;

        let session = self.session(&machine, "boot-a", Some(&first)).await;
        let asks = vec![leasehold_core::claim::Ask { offer: logged.step.lease.offer, token: logged.step.lease.token }];
        self.done("recover_asks", || store.recover_asks(session.clone(), asks.clone())).await;
        let logged = logged.held_by(&session);
        self.log(&logged, 7, b" three").await;
        self.end(&logged, exited(0)).await;

        let never = self.starting(&session, plain()).await;
        self.end(&never, Ending::NeverSpawned).await;
        let cancelled = self.claimed(&session, plain()).await;
        let cancel = world.cancel_call(cancelled.run);
        answered(|| store.cancel_run(cancel.clone())).await.into_result().unwrap();
        self.start(&cancelled).await;
        let limits = Value::map([("timeout", Value::text("30s"))]);
        let overdue = self.running(&session, revision_with([("limits", limits)])).await;
        world.pass(seconds(31));
        self.scan(|| store.stop_overdue(64)).await;
        self.end(&overdue, stopped(StopReason::Timeout)).await;
        let lost = self.running(&session, retried_when_lost()).await;
        let held = self.running(&session, plain()).await;
        self.begin_retries_and_expire(&held).await;
        let resolve = world.resolve_call(held.run, Verb::Retry);
        answered(|| store.resolve_run(resolve.clone())).await.into_result().unwrap();

        let session = self.session(&machine, "boot-a", Some(&session)).await;
        self.end(&lost.held_by(&session), exited(0)).await;
        let step = self.step(&session).await;
        self.versioned("drain_session", || store.drain_session(step.clone()), |shown| shown).await;
        let step = self.step(&session).await;
        self.done("offline_session", || store.offline_session(step.clone())).await;
        let (worker, expires_at) = (machine.id.clone(), world.clock().utc().plus(seconds(60)));
        let grant = GrantTakeover { actor: admin(), worker, why: None, expires_at };
        self.done("grant_takeover", || store.grant_takeover(grant.clone())).await;
        let worker = machine.id.clone();
        let delete = DeleteWorker { actor: admin(), worker, destroyed: false, limit: 64, why: None };
        self.done("delete_worker", || store.delete_worker(delete.clone())).await;
    }

    /// A trigger fires once, however often its scan was tried.
    async fn fires(&self, store: &Arc<dyn Store>) {
        let before = self.world.dump().await;
        while !answered(|| store.fire_triggers(64)).await.runs.is_empty() {}
        assert_ne!(self.world.dump().await, before, "what was due has fired");
    }

    /// A webhook that gets its token, and is called.
    async fn webhook(&mut self, project: ProjectName) {
        let (store, world) = (self.store.clone(), self.world);
        let trigger = TriggerKey { project, task: "report".parse().unwrap(), name: "webhook".parse().unwrap() };
        let token = Digest::of(Domain::WebhookToken, b"secret");
        let make = MakeWebhookToken { actor: admin(), trigger: trigger.clone(), token };
        self.done("make_webhook_token", || store.make_webhook_token(make.clone())).await;
        let view = world.store.task(&trigger.project, &trigger.task).await.unwrap().unwrap();
        let asked = Digest::of(Domain::Request, b"what is asked");
        let call = CallWebhook {
            actor: admin(),
            token,
            run: world.run_id(),
            attempt: world.attempt_id(),
            of: view.task.number,
            revision: view.revision,
            idempotency_key: Some(Keyed { key: trigger.keyed("build-17"), asked }),
            trigger,
        };
        self.done("call_webhook", || store.call_webhook(call.clone())).await;
    }

    /// A run that succeeds, and the one that follows it.
    async fn chains(&mut self, session: &SessionFence) {
        let (store, world) = (self.store.clone(), self.world);
        let of = |name: &str, after: &[&str]| {
            let (text, after) = (Value::text(name), Value::texts(after.iter().copied()));
            (name.parse().unwrap(), revision_with([("name", text), ("after", after)]))
        };
        let tasks = [of("first", &[]), of("second", &["first"])].into();
        let (actor, project) = (admin(), "default".parse().unwrap());
        let apply = ApplyTasks { actor, project, tasks, prune: false, cascade: false, plan: None };
        self.done("apply_tasks", || store.apply_tasks(apply.clone())).await;
        let submission = AdmitRun { task: Some("first".parse().unwrap()), ..world.submission(plain()) };
        self.done("admit_run", || store.admit_run(submission.clone())).await;
        let claim = world.claim_call(session, &world.ask(), submission.run);
        let first = taken(session, self.done("claim", || store.claim(claim.clone())).await);
        self.start(&first).await;
        self.end(&first, exited(0)).await;
        let settle = || async {
            let Chained { runs, more, .. } = store.settle_chains(64).await?;
            Ok(Scanned { runs, workers: BTreeSet::new(), more, next: None })
        };
        self.scan(settle).await;
    }

    async fn installs(&mut self) {
        let (store, world) = (self.store.clone(), self.world);
        let installation = Installation {
            trust_domain: "home.example".parse().unwrap(),
            ca_certificate: b"certificate".to_vec(),
            ca_key: b"sealed".to_vec(),
            ticket_key: b"sealed too".to_vec(),
            created_at: world.clock().utc(),
        };
        let token = NewApiToken {
            id: world.token_id(),
            name: "first".to_owned(),
            role: Role::Admin,
            digest: Digest::of(Domain::ApiToken, b"secret"),
            created_at: world.clock().utc(),
            expires_at: None,
        };
        self.done("create_installation", || store.create_installation(installation.clone(), token.clone())).await;
    }

    /// Lets a retried attempt begin and a lease run out.
    async fn begin_retries_and_expire(&self, lost: &Taken) {
        self.world.pass(lost.grant.lease.length.plus(seconds(2)));
        let ids = vec![self.world.attempt_id(), self.world.attempt_id()];
        self.scan(|| self.store.begin_retries(ids.clone())).await;
        self.scan(|| self.store.expire_leases(64)).await;
    }
}

/// What became of the history.
struct Written {
    answers: Vec<String>,
    rows: String,
    /// The methods whose answer was lost once they were done.
    lost: BTreeSet<&'static str>,
}

/// The history, written through a store with these faults.
async fn written(harness: &dyn Harness, schedule: Schedule) -> Written {
    let world = World::new(harness);
    let store = Arc::new(Faulty::new(harness.store(), schedule));
    let mut caller = Caller { world: &world, store: store.clone(), answers: Vec::new() };
    Box::pin(caller.history()).await;
    Written { answers: caller.answers, rows: world.dump().await, lost: store.lost() }
}

/// Answers the methods whose answer was lost once they were done.
async fn agrees(harness: &dyn Harness, twin: &dyn Harness, schedule: Schedule, why: &str) -> BTreeSet<&'static str> {
    let expected = written(harness, Schedule::cycle([])).await;
    let found = written(twin, schedule).await;
    assert_eq!(expected.answers, found.answers, "{why}");
    assert_eq!(expected.rows, found.rows, "{why}");
    found.lost
}

/// A method that changes something and is not in the history would be promised what nobody has tried.
fn are_all(lost: &BTreeSet<&'static str>) {
    assert_eq!(*lost, method::changing().collect(), "the history has every changing method in it");
}

/// Every call fails in every way, and is then answered.
pub async fn every_lost_answer_is_found_again(harness: &dyn Harness, twin: &dyn Harness) {
    let faults = [Fault::Before, Fault::Undone, Fault::After, Fault::None];
    are_all(&agrees(harness, twin, Schedule::cycle(faults), "each call fails in every way").await);
}

/// Every answer is lost twice.
pub async fn every_answer_may_be_lost_twice(harness: &dyn Harness, twin: &dyn Harness) {
    let faults = [Fault::After, Fault::After, Fault::None];
    are_all(&agrees(harness, twin, Schedule::cycle(faults), "each answer is lost twice").await);
}

/// Faults by chance, from a seed that is printed.
pub async fn answers_lost_by_chance_are_found_again(harness: &dyn Harness, twin: &dyn Harness) {
    const SEED: u64 = 20_260_711;
    agrees(harness, twin, Schedule::seeded(SEED, 20, 30), &format!("seed {SEED}")).await;
}
