//! Every method of the port once, with its usual turns: what each adapter's tests of its statements and facts look at.

use std::collections::BTreeSet;

use leasehold_core::actor::Actor;
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::SessionVersion;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::resolve::Verb;
use leasehold_core::role::Role;
use leasehold_core::run::{Run, RunState};
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::time::{Clock as _, Millis};
use leasehold_core::trigger::TriggerKey;
use leasehold_store::call::{
    AcknowledgeRunning, AdmitRun, AppendLog, ApplyTasks, AuditPage, BackfillTrigger, CancelRun, CreateProject,
    DeleteProject, DeleteTask, DeleteWorker, DrainWorker, EventsAfter, GrantTakeover, Heartbeat, Installation, Keyed,
    LaneAfter, LedgerPage, NewApiToken, PauseTriggers, Release, Renewal, ResolveRun, RunFilter, SessionStep,
    SetProject, TriggersAfter,
};
use leasehold_store::method::METHODS;
use leasehold_store::observe::Access;
use leasehold_store::port::Store;
use leasehold_store::webhook::{CallWebhook, MakeWebhookToken};

use super::{Scene, exited, revision, running, step};

/// Takes the store through every method of the port.
pub(crate) async fn every_call<S: Store>(scene: &Scene<S>) {
    let store = &scene.store;
    let session = scene.agent("nas").await;
    let retried = revision(&[
        ("limits", Value::map([("timeout", Value::text("1m")), ("concurrency", Value::Int(2))])),
        ("retry", Value::map([("max_attempts", Value::Int(2))])),
    ]);
    let mut call = scene.submission(retried);
    call.task = Some("nightly".parse().unwrap());
    call.idempotency_key = Some(Keyed { key: "key".to_owned(), asked: call.revision.digest() });
    let failing = store.admit_run(call).await.unwrap().into_result().unwrap().run.id;
    let (released, lost, waiting) =
        (scene.admit(revision(&[])).await, scene.admit(revision(&[])).await, scene.admit(revision(&[])).await);

    limits_and_tasks(scene).await;
    store.recover_asks(session.clone(), vec![scene.ask()]).await.unwrap().into_result().unwrap();

    let grant = scene.claim(&session, released).await;
    let release = Release { step: step(&session, &grant), reason: ReleaseReason::DiskLow };
    store.release(release).await.unwrap().into_result().unwrap();
    chains(scene, &session).await;

    let grant = scene.claim(&session, failing).await;
    let fence = step(&session, &grant);
    store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    let call = AcknowledgeRunning { step: fence.clone(), call: running(&grant) };
    store.acknowledge_running(call).await.unwrap().into_result().unwrap();
    for (offset, bytes) in [(0, &b"one "[..]), (4, b"two"), (2, b"e two")] {
        let call = AppendLog { step: fence.clone(), offset, bytes: bytes.to_vec() };
        store.append_log(call).await.unwrap().into_result().unwrap();
    }
    assert_eq!(store.read_log(grant.attempt.id, 2, 4).await.unwrap().unwrap().bytes, b"e tw");
    let renewals = vec![Renewal { fence: fence.lease.clone(), version: grant.lease.version, left: None }];
    let beat = Heartbeat {
        session: session.clone(),
        version: SessionVersion::FIRST,
        said: Said { slots: 9, obeys_drain: false },
        faults: None,
        renewals,
    };
    let beaten = store.heartbeat(beat).await.unwrap().into_result().unwrap();
    let end = exited(&fence, &grant, 1, b"one two");
    store.end(end.clone()).await.unwrap().into_result().unwrap();
    store.end(exited(&fence, &grant, 3, b"one two")).await.unwrap().into_result().unwrap();
    scene.clock.advance(Millis::from_secs(30));
    let begun = store.begin_retries(vec![scene.attempt_id(), scene.attempt_id()]).await.unwrap();
    assert_eq!(begun.runs, [failing]);

    let grant = scene.claim(&session, failing).await;
    store.acknowledge_starting(step(&session, &grant)).await.unwrap().into_result().unwrap();
    let started = scene.claim(&session, lost).await;
    store.acknowledge_starting(step(&session, &started)).await.unwrap().into_result().unwrap();
    scene.clock.advance(Millis::from_secs(60));
    assert_eq!(store.stop_overdue(64).await.unwrap().runs, [failing]);
    let cancel = |run| CancelRun { actor: Actor::System, run, why: Some("enough".to_owned()) };
    store.cancel_run(cancel(waiting)).await.unwrap().into_result().unwrap();
    scene.clock.advance(Millis::from_secs(3600));
    let mut expired = store.expire_leases(64).await.unwrap().runs;
    expired.sort();
    assert_eq!(expired, [failing, lost]);
    let drain = DrainWorker { actor: Actor::System, worker: session.worker.clone(), why: None };
    store.drain_worker(drain.clone()).await.unwrap().into_result().unwrap();
    store.resume_worker(drain).await.unwrap().into_result().unwrap();
    assert_eq!(store.statistics().await.unwrap().runs[&RunState::Lost], 1);
    let resolve = ResolveRun {
        actor: Actor::System,
        run: lost,
        verb: Verb::MarkFailed,
        why: Some("gone".to_owned()),
        attempt: None,
    };
    store.resolve_run(resolve).await.unwrap().into_result().unwrap();
    let (actor, worker) = (Actor::System, session.worker.clone());
    let takeover = GrantTakeover { actor, worker, why: None, expires_at: scene.clock.utc() };
    store.grant_takeover(takeover).await.unwrap().into_result().unwrap();
    store.drain_session(SessionStep { session: session.clone(), version: beaten.session.version }).await.unwrap();
    store.offline_session(SessionStep { session: session.clone(), version: beaten.session.version }).await.unwrap();

    lists_runs(scene, &grant.run, lost).await;
    let text = lost.to_string();
    assert_eq!(store.runs_by_prefix(&text).await.unwrap(), [lost]);
    assert!(!store.events(EventsAfter { run: lost, after: None }, 64).await.unwrap().is_empty());
    assert!(store.run_facts(released, None, 64).await.unwrap().is_some());
    assert_eq!(store.workers(None, 64).await.unwrap().len(), 1);
    assert!(!store.audit(AuditPage::Oldest { after: Some(1) }, 64).await.unwrap().is_empty());
    assert!(!store.audit(AuditPage::Newest { before: None }, 64).await.unwrap().is_empty());
    store.installation().await.unwrap();
    store.find_enrollment(end.body).await.unwrap();
    store.find_api_token(end.body).await.unwrap();
    assert!(store.run(lost).await.unwrap().is_some());
    deletes(store, session.worker).await;
    installs(scene).await;
}

/// Whether all of it was told as what the port says it is; what asks for no transaction is not told by every store.
pub(crate) fn told_of_every_method(calls: &BTreeSet<(&'static str, Access)>) {
    let methods = METHODS.iter().copied().filter(|(method, _)| !["now", "warning"].contains(method));
    let calls: BTreeSet<_> = calls.iter().copied().filter(|(method, _)| *method != "now").collect();
    assert_eq!(calls, methods.collect());
}

async fn lists_runs<S: Store>(scene: &Scene<S>, run: &Run, before: RunId) {
    let filters = [
        RunFilter::default(),
        RunFilter { states: vec![RunState::Lost, RunState::Pending], ..RunFilter::default() },
        RunFilter { project: Some(run.project.clone()), before: Some(before), ..RunFilter::default() },
        RunFilter {
            project: Some(run.project.clone()),
            task: run.task.clone(),
            since: Some(scene.clock.utc()),
            ..RunFilter::default()
        },
    ];
    for filter in filters {
        scene.store.runs(filter, 64).await.unwrap();
    }
}

async fn installs<S: Store>(scene: &Scene<S>) {
    let created_at = scene.store.now().await.unwrap().utc;
    let sealed = || b"sealed".to_vec();
    let installation = Installation {
        trust_domain: "home.example".parse().unwrap(),
        ca_certificate: sealed(),
        ca_key: sealed(),
        ticket_key: sealed(),
        created_at,
    };
    let first = NewApiToken {
        id: scene.token_id(),
        name: "first".to_owned(),
        role: Role::Admin,
        digest: Digest::of(Domain::ApiToken, b"secret"),
        created_at,
        expires_at: None,
    };
    scene.store.create_installation(installation, first).await.unwrap().into_result().unwrap();
    scene.store.check().await.unwrap();
}

/// Projects, the places of limits, and lanes read on.
async fn limits<S: Store>(scene: &Scene<S>) {
    let store = &scene.store;
    let lanes = store.lanes(None, 8, 8).await.unwrap();
    assert_eq!(lanes.len(), 2);
    assert!(store.lanes(Some(lanes[1].key.clone()), 8, 8).await.unwrap().is_empty());
    let name = || ProjectName::default();
    let create = CreateProject {
        actor: Actor::System,
        name: "lab".parse().unwrap(),
        concurrency: Some(3),
        idempotency_key: Some("lab".to_owned()),
    };
    store.create_project(create).await.unwrap().into_result().unwrap();
    let set = SetProject { actor: Actor::System, name: name(), concurrency: Some(5), seen: None };
    store.set_project(set).await.unwrap().into_result().unwrap();
    let delete = DeleteProject { actor: Actor::System, name: "lab".parse().unwrap(), seen: None };
    store.delete_project(delete).await.unwrap().into_result().unwrap();
    assert!(store.project(&name()).await.unwrap().is_some());
    assert_eq!(store.projects(None, 64).await.unwrap().len(), 1);
    let mut limited = scene.submission(revision(&[("limits", Value::map([("concurrency", Value::Int(1))]))]));
    limited.task = Some("nightly".parse().unwrap());
    let limited = store.admit_run(limited).await.unwrap().into_result().unwrap().run.id;
    assert_eq!(store.run_facts(limited, None, 64).await.unwrap().unwrap().limits.len(), 2);
    let head = lanes[0].heads[0].key();
    let after = |after| LaneAfter { lane: lanes[0].key.clone(), after };
    assert_eq!(store.heads(vec![after(None), after(Some(head))], 8).await.unwrap().len(), 2);
}

async fn limits_and_tasks<S: Store>(scene: &Scene<S>) {
    assert!(scene.store.keyed_run(&ProjectName::default(), "key").await.unwrap().is_some());
    limits(scene).await;
    tasks(scene).await;
}

/// Tasks, their history, and a run that goes with its task.
async fn tasks<S: Store>(scene: &Scene<S>) {
    let store = &scene.store;
    let (project, name) = (|| "lab".parse::<ProjectName>().unwrap(), || "report".parse::<TaskName>().unwrap());
    let apply = |priority| {
        let secondly = Value::map([("cron", Value::text("* * * * * *")), ("overlap", Value::text("cancel-other"))]);
        let called = Value::map([("webhook", Value::Bool(true)), ("overlap", Value::text("allow-all"))]);
        let revision = revision(&[
            ("name", Value::text("report")),
            ("priority", Value::Int(priority)),
            ("trigger", Value::List(vec![secondly, called])),
        ]);
        let tasks = [(name(), revision)].into();
        ApplyTasks { actor: Actor::System, project: project(), tasks, prune: true, cascade: false, plan: None }
    };
    for priority in [1, 2] {
        store.apply_tasks(apply(priority)).await.unwrap().into_result().unwrap();
    }
    let view = store.task(&project(), &name()).await.unwrap().unwrap();
    let planned = store.plan_tasks(&project(), apply(2).tasks, true, true).await.unwrap().unwrap();
    assert!(planned.plan.is_settled());
    assert_eq!(store.tasks(&project(), None, 64).await.unwrap().len(), 1);
    let history = store.task_history(&project(), &name(), None, 64).await.unwrap();
    assert_eq!(history.len(), 2);
    assert!(store.task_revision(&project(), &name(), history[1].number).await.unwrap().is_some());
    let submission = scene.submission(view.revision);
    let submission = AdmitRun { project: project(), task: Some(name()), of: Some(view.task.number), ..submission };
    store.admit_run(submission).await.unwrap().into_result().unwrap();
    fires(scene, project(), name()).await;
    called(scene, project(), name()).await;
    let delete = DeleteTask { actor: Actor::System, project: project(), name: name(), cascade: true, seen: None };
    store.delete_task(delete).await.unwrap().into_result().unwrap();
}

/// A trigger that is due and cancels what stands in its way, and what is told of it.
async fn fires<S: Store>(scene: &Scene<S>, project: ProjectName, task: TaskName) {
    let store = &scene.store;
    scene.clock.advance(Millis::from_secs(1));
    assert_eq!(store.fire_triggers(64).await.unwrap().runs.len(), 1, "the run in the way is cancelled");
    assert_eq!(store.fire_triggers(64).await.unwrap().runs.len(), 1, "and the next takes its place");
    let page = TriggersAfter { project: project.clone(), task: Some(task.clone()), after: None };
    assert_eq!(store.triggers(page, 64).await.unwrap().len(), 2);
    let page = LedgerPage { project: project.clone(), task: task.clone(), trigger: None, before: None };
    assert_eq!(store.ledger(page, 64).await.unwrap().len(), 1);
    assert_eq!(store.prune_ledgers(None, 64).await.unwrap().lines, 0, "a line that is young stays");
    for trigger in [Some("cron".parse().unwrap()), None] {
        let (project, task) = (project.clone(), task.clone());
        let call = PauseTriggers { actor: Actor::System, project, task, trigger, why: Some("new disk".to_owned()) };
        store.pause_triggers(call.clone()).await.unwrap().into_result().unwrap();
        store.resume_triggers(call).await.unwrap().into_result().unwrap();
    }
    let now = scene.clock.utc();
    let trigger = TriggerKey { project, task, name: "cron".parse().unwrap() };
    let call = BackfillTrigger { actor: Actor::System, trigger, first: now.minus(Millis::from_secs(10)), last: now };
    assert_eq!(store.backfill_trigger(call).await.unwrap().into_result().unwrap().runs.len(), 10);
}

/// A webhook gets a token, another one, and is called.
async fn called<S: Store>(scene: &Scene<S>, project: ProjectName, task: TaskName) {
    let store = &scene.store;
    let view = store.task(&project, &task).await.unwrap().unwrap();
    let trigger = TriggerKey { project, task, name: "webhook".parse().unwrap() };
    let token = |secret: &str| Digest::of(Domain::WebhookToken, secret.as_bytes());
    for secret in ["first", "second"] {
        let call = MakeWebhookToken { actor: Actor::System, trigger: trigger.clone(), token: token(secret) };
        store.make_webhook_token(call).await.unwrap().into_result().unwrap();
    }
    assert_eq!(store.webhook_token(&trigger).await.unwrap(), Some(token("second")));
    let made = scene.submission(view.revision);
    let call = CallWebhook {
        actor: Actor::System,
        idempotency_key: Some(Keyed { key: trigger.keyed("key"), asked: made.revision.digest() }),
        trigger,
        token: token("second"),
        run: made.run,
        attempt: made.attempt,
        of: view.task.number,
        revision: made.revision,
    };
    for _ in 0..2 {
        assert_eq!(store.call_webhook(call.clone()).await.unwrap().into_result().unwrap().run.id, call.run);
    }
}

/// A run that succeeds, and the one that follows it.
async fn chains<S: Store>(scene: &Scene<S>, session: &SessionFence) {
    let store = &scene.store;
    let name = |name: &str| name.parse::<TaskName>().unwrap();
    let project = || "chains".parse::<ProjectName>().unwrap();
    let of = |of: &str, after: &[&str]| {
        (name(of), revision(&[("name", Value::text(of)), ("after", Value::texts(after.iter().copied()))]))
    };
    let tasks = [of("first", &[]), of("second", &["first"]), of("third", &["first", "second"])].into();
    let apply =
        ApplyTasks { actor: Actor::System, project: project(), tasks, prune: false, cascade: false, plan: None };
    store.apply_tasks(apply).await.unwrap().into_result().unwrap();
    let submission = scene.submission(revision(&[]));
    let submission = AdmitRun { project: project(), task: Some(name("first")), ..submission };
    let first = store.admit_run(submission).await.unwrap().into_result().unwrap().run.id;
    let grant = scene.claim(session, first).await;
    let fence = step(session, &grant);
    store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    let call = AcknowledgeRunning { step: fence.clone(), call: running(&grant) };
    store.acknowledge_running(call).await.unwrap().into_result().unwrap();
    store.end(exited(&fence, &grant, 0, b"")).await.unwrap().into_result().unwrap();
    let runs = store.settle_chains(64).await.unwrap().runs;
    assert_eq!(runs.len(), 1);
    let after = store.run(runs[0]).await.unwrap().unwrap().run.after.unwrap();
    assert_eq!(after.to_string(), format!("first={first}"));
}

async fn deletes(store: &impl Store, worker: WorkerId) {
    assert!(store.worker(&worker).await.unwrap().is_some());
    for destroyed in [false, true] {
        let (actor, worker) = (Actor::System, worker.clone());
        store.delete_worker(DeleteWorker { actor, worker, destroyed, limit: 64, why: None }).await.unwrap();
    }
}
