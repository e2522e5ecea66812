//! How SQLite carries the statements out: no call reads all runs, attempts, leases, events or log chunks there are.

use leasehold_core::actor::Actor;
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::SessionVersion;
use leasehold_core::id::{ProjectName, WorkerId};
use leasehold_core::resolve::Verb;
use leasehold_core::run::RunState;
use leasehold_core::session::Said;
use leasehold_core::time::{Clock as _, Millis};
use leasehold_store::call::{
    AcknowledgeRunning, AppendLog, AuditPage, CancelRun, CreateProject, DeleteProject, DeleteWorker, DrainWorker,
    EventsAfter, GrantTakeover, Heartbeat, LaneAfter, Release, Renewal, ResolveRun, RunFilter, SessionStep, SetProject,
};
use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::super::{SqliteStore, plans};
use super::{Fixture, exited, revision, running, step};

/// Indexes that hold only what is waiting or alive: reading one from end to end is the work itself.
const LIVE: [&str; 7] = [
    "run_pending",
    "run_due",
    "run_held",
    "attempt_deadline",
    "attempt_may_live",
    "lease_active",
    "lease_active_expiry",
];

/// Tables that grow with the installation's life.
const GROWING: [&str; 7] = ["run", "attempt", "lease", "event", "log_chunk", "audit", "session"];

/// Takes the store through every method of the port.
pub(super) async fn everything(fixture: &Fixture) {
    let store = &fixture.store;
    let session = fixture.agent("nas").await;
    let retried = revision(&[
        ("limits", Value::map([("timeout", Value::text("1m")), ("concurrency", Value::Int(2))])),
        ("retry", Value::map([("max_attempts", Value::Int(2))])),
    ]);
    let mut call = fixture.submission(retried);
    call.task = Some("nightly".parse().unwrap());
    call.idempotency_key = Some("key".to_owned());
    let failing = store.admit_run(call).await.unwrap().into_result().unwrap().run.id;
    let (released, lost, waiting) =
        (fixture.admit(revision(&[])).await, fixture.admit(revision(&[])).await, fixture.admit(revision(&[])).await);

    limits(fixture).await;
    store.recover_asks(session.clone(), vec![fixture.ask()]).await.unwrap().into_result().unwrap();

    let grant = fixture.claim(&session, released).await;
    let release = Release { step: step(&session, &grant), reason: ReleaseReason::DiskLow };
    store.release(release).await.unwrap().into_result().unwrap();

    let grant = fixture.claim(&session, failing).await;
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
    fixture.clock.advance(Millis::from_secs(30));
    let begun = store.begin_retries(vec![fixture.attempt_id(), fixture.attempt_id()]).await.unwrap();
    assert_eq!(begun.runs, [failing]);

    let grant = fixture.claim(&session, failing).await;
    store.acknowledge_starting(step(&session, &grant)).await.unwrap().into_result().unwrap();
    let started = fixture.claim(&session, lost).await;
    store.acknowledge_starting(step(&session, &started)).await.unwrap().into_result().unwrap();
    fixture.clock.advance(Millis::from_secs(60));
    assert_eq!(store.stop_overdue(64).await.unwrap().runs, [failing]);
    let cancel = |run| CancelRun { actor: Actor::System, run, why: Some("enough".to_owned()) };
    store.cancel_run(cancel(waiting)).await.unwrap().into_result().unwrap();
    fixture.clock.advance(Millis::from_secs(3600));
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
    let takeover = GrantTakeover { actor, worker, why: None, expires_at: fixture.clock.utc() };
    store.grant_takeover(takeover).await.unwrap().into_result().unwrap();
    store.drain_session(SessionStep { session: session.clone(), version: beaten.session.version }).await.unwrap();
    store.offline_session(SessionStep { session: session.clone(), version: beaten.session.version }).await.unwrap();

    let filters = [
        RunFilter::default(),
        RunFilter { states: vec![RunState::Lost, RunState::Pending], ..RunFilter::default() },
        RunFilter { project: Some(grant.run.project.clone()), before: Some(lost), ..RunFilter::default() },
        RunFilter {
            project: Some(grant.run.project.clone()),
            task: grant.run.task.clone(),
            since: Some(fixture.clock.utc()),
            ..RunFilter::default()
        },
    ];
    for filter in filters {
        store.runs(filter, 64).await.unwrap();
    }
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
    deletes(store, session.worker).await;
}

/// Projects, the places of limits, and lanes read on.
async fn limits(fixture: &Fixture) {
    let store = &fixture.store;
    let lanes = store.lanes(None, 8, 8).await.unwrap();
    assert_eq!(lanes.len(), 2);
    assert!(store.lanes(Some(lanes[1].key.clone()), 8, 8).await.unwrap().is_empty());
    let name = || ProjectName::default();
    let create = CreateProject { actor: Actor::System, name: "lab".parse().unwrap(), concurrency: Some(3) };
    store.create_project(create).await.unwrap().into_result().unwrap();
    let set = SetProject { actor: Actor::System, name: name(), concurrency: Some(5) };
    store.set_project(set).await.unwrap().into_result().unwrap();
    let delete = DeleteProject { actor: Actor::System, name: "lab".parse().unwrap() };
    store.delete_project(delete).await.unwrap().into_result().unwrap();
    assert!(store.project(&name()).await.unwrap().is_some());
    assert_eq!(store.projects(None, 64).await.unwrap().len(), 1);
    let mut limited = fixture.submission(revision(&[("limits", Value::map([("concurrency", Value::Int(1))]))]));
    limited.task = Some("nightly".parse().unwrap());
    let limited = store.admit_run(limited).await.unwrap().into_result().unwrap().run.id;
    assert_eq!(store.run_facts(limited, None, 64).await.unwrap().unwrap().limits.len(), 2);
    let head = lanes[0].heads[0].key();
    let after = |after| LaneAfter { lane: lanes[0].key.clone(), after };
    assert_eq!(store.heads(vec![after(None), after(Some(head))], 8).await.unwrap().len(), 2);
}

async fn deletes(store: &SqliteStore, worker: WorkerId) {
    for destroyed in [false, true] {
        let (actor, worker) = (Actor::System, worker.clone());
        store.delete_worker(DeleteWorker { actor, worker, destroyed, limit: 64, why: None }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_scans_a_table_that_grows() {
    let fixture = Fixture::new();
    everything(&fixture).await;
    let connection = Connection::open(fixture.path()).unwrap();
    let statements = plans::prepared();
    assert!(statements.len() > 60, "the scenario prepares the statements of every method: {}", statements.len());
    let mut problems = Vec::new();
    for sql in statements.iter().filter(|sql| !sql.starts_with("PRAGMA")) {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = explain.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let detail: String = row.get("detail").unwrap();
            let mut words = detail.split(' ');
            let scanned = (words.next() == Some("SCAN")).then(|| words.next().unwrap_or_default());
            let live = LIVE.iter().any(|index| detail.ends_with(&format!("INDEX {index}")));
            let grows = scanned.is_some_and(|table| GROWING.contains(&table));
            if (grows && !live) || detail.contains("TEMP B-TREE") {
                problems.push(format!("{detail}: {sql}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
