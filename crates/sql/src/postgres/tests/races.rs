//! Two connections: what waits for what, what is seen afterwards, and that nobody waits in a circle.

use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_core::actor::Actor;
use leasehold_core::canonical::Value;
use leasehold_core::claim::{NotClaimed, ReleaseReason};
use leasehold_core::id::RunId;
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::time::Millis;
use leasehold_store::call::{CancelRun, Claim, DrainWorker, Heartbeat, Release, Renewal};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::{ClaimRefused, Store as _};
use tokio_postgres::{Client, NoTls};

use super::{Fixture, PostgresStore};
use crate::scene::{exited, revision, step};
use crate::test_server::TestServer;

/// A transaction of somebody else, who holds what `sql` locked until this is dropped or says COMMIT.
pub(super) async fn hold(fixture: &Fixture<'_>, sql: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&fixture.database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("BEGIN; SET LOCAL search_path TO leasehold; {sql}")).await.unwrap();
    client
}

/// Waits until a call waits for a lock.
pub(super) async fn wait_for_a_waiter(fixture: &Fixture<'_>) {
    let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND datname = current_database()";
    fixture.until(waiting, "t").await;
}

fn claim_of(fixture: &Fixture<'_>, session: &SessionFence, run: RunId) -> Claim {
    Claim { session: session.clone(), ask: fixture.ask(), run, score: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_while_a_claim_waited_for_the_session_is_counted() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let held = fixture.admit(revision(&[])).await;
    let wanted = fixture.admit(revision(&[])).await;
    // One slot, and somebody is about to take it: the lease is written, and not committed.
    fixture.sql("UPDATE session SET max_runs = 1, slots = 0");
    let blocker = hold(
        &fixture,
        &format!(
            "SELECT FROM worker FOR NO KEY UPDATE; \
             INSERT INTO lease SELECT a.id, 1, a.run, gen_random_uuid(), decode(repeat('ab', 32), 'hex'), 0, s.worker, s.id, \
             s.generation, 1, 600000, s.expires_lease, 'active', 0, 0 FROM attempt a, session s WHERE a.run = '{held}'"
        ),
    )
    .await;
    let (replica, call) = (fixture.replica().await, claim_of(&fixture, &session, wanted));
    let waiting = tokio::spawn(async move { replica.claim(call).await });
    wait_for_a_waiter(&fixture).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    let refused = waiting.await.unwrap().unwrap();
    assert!(
        matches!(refused, Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::NoFreeSlot))),
        "a count in the snapshot from before the lock sees a free slot: {refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_is_read_behind_the_last_lock() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let grant = fixture.claim(&session, run).await;
    let blocker = hold(&fixture, "SELECT FROM run FOR UPDATE").await;
    let replica = fixture.replica().await;
    let call = Release { step: step(&session, &grant), reason: ReleaseReason::DiskLow };
    let waiting = tokio::spawn(async move { replica.release(call).await });
    wait_for_a_waiter(&fixture).await;
    // The session's lease runs out while the call waits.
    fixture.clock.advance(Millis::from_secs(46));
    blocker.batch_execute("COMMIT").await.unwrap();
    let refused = waiting.await.unwrap().unwrap();
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
}

/// A test's clock is told before the locks are waited for; the database's is read behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_call_reads_the_databases_clock_behind_the_last_lock() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let (run, ended) = (fixture.admit(revision(&[])).await, fixture.running(&session).await);
    let store = PostgresStore::open(&fixture.database.url(), super::PostgresOptions::new()).await.unwrap();
    let claim = claim_of(&fixture, &session, run);
    let end = exited(&step(&session, &ended), &ended, 0, b"");
    for claims in [true, false] {
        fixture.sql("UPDATE session SET expires_lease = clock_millis() + 3600000");
        let blocker = hold(&fixture, "SELECT FROM run FOR UPDATE").await;
        let (replica, claim, end) = (store.clone(), claim.clone(), end.clone());
        let waiting = tokio::spawn(async move {
            if claims {
                replica.claim(claim).await.unwrap().into_result().is_ok()
            } else {
                replica.end(end).await.unwrap().into_result().is_ok()
            }
        });
        wait_for_a_waiter(&fixture).await;
        // The session's lease runs out while the call waits.
        blocker.batch_execute("UPDATE session SET expires_lease = clock_millis(); COMMIT").await.unwrap();
        assert!(!waiting.await.unwrap(), "claims: {claims}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_judges_where_no_test_sets_one() {
    let Some(fixture) = Fixture::new().await else { return };
    let store = PostgresStore::open(&fixture.database.url(), super::PostgresOptions::new()).await.unwrap();
    let before: i64 = fixture.value("SELECT clock_millis()").parse().unwrap();
    let now = store.now().await.unwrap();
    let after: i64 = fixture.value("SELECT clock_millis()").parse().unwrap();
    assert!((before..=after).contains(&now.lease.get()), "{now:?}");
    assert_eq!(now.utc.get(), now.lease.get());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_does_not_wait_for_a_run_in_other_hands() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run = fixture.admit(revision(&[])).await;
        fixture.claim(&session, run).await;
        runs.push(run);
    }
    fixture.clock.advance(Millis::from_secs(60));
    let blocker = hold(&fixture, &format!("SELECT FROM run WHERE id = '{}' FOR NO KEY UPDATE", runs[0])).await;
    let scanned = fixture.store.expire_leases(64).await.unwrap();
    assert_eq!(scanned.runs, [runs[1]]);
    assert!(scanned.next.is_some_and(|next| next <= Millis::from_secs(1)), "looked at again soon: {scanned:?}");
    drop(blocker);
    fixture.until("SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock'", "0").await;
    assert_eq!(fixture.store.expire_leases(64).await.unwrap().runs, [runs[0]]);
}

/// Everything that takes locks, on few rows, by two replicas: nobody waits in a circle, and nothing is claimed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_calls_ever_wait_for_each_other() {
    if TestServer::shared_or_skip("a stress of the lock order").is_none() {
        return;
    }
    let server = TestServer::start_with(&[("deadlock_timeout", "10ms")]).unwrap();
    let fixture = &Fixture::on(&server).await;
    let workers = &[fixture.agent("nas").await, fixture.agent("attic").await];
    let limited = || revision(&[("limits", Value::map([("concurrency", Value::Int(2))]))]);
    let claims = &AtomicU32::new(0);
    let callers = (0..8_usize).map(|n| async move {
        let store = if n.is_multiple_of(2) { fixture.store.clone() } else { fixture.replica().await };
        for round in 0..24_usize {
            let session = &workers[(n + round) % 2];
            let mut call = fixture.submission(limited());
            call.task = Some("nightly".parse().unwrap());
            let run = store.admit_run(call).await.unwrap().into_result().unwrap().run.id;
            turn(fixture, &store, session, run, n + round, claims).await;
        }
    });
    futures_util::future::join_all(callers).await;
    let deadlocks = fixture.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    assert_eq!(deadlocks, "0");
    assert!(claims.load(Ordering::SeqCst) > 8, "some are claimed");
    assert_eq!(fixture.value("SELECT count(*) FROM lease"), claims.load(Ordering::SeqCst).to_string());
}

async fn turn(
    fixture: &Fixture<'_>,
    store: &PostgresStore,
    session: &SessionFence,
    run: RunId,
    n: usize,
    claims: &AtomicU32,
) {
    let claimed = store.claim(claim_of(fixture, session, run)).await.unwrap().into_result();
    let cancel = CancelRun { actor: Actor::System, run, why: None };
    let drain = DrainWorker { actor: Actor::System, worker: session.worker.clone(), why: None };
    let Ok(grant) = claimed else {
        match n % 3 {
            0 => drop(store.drain_worker(drain).await.unwrap()),
            1 => drop(store.resume_worker(drain).await.unwrap()),
            _ => drop(store.cancel_run(cancel).await.unwrap()),
        }
        return;
    };
    claims.fetch_add(1, Ordering::SeqCst);
    let held = step(session, &grant);
    let version = store.worker(&session.worker).await.unwrap().unwrap().session.unwrap().version;
    let renewals = vec![Renewal { fence: held.lease.clone(), version: grant.lease.version, left: None }];
    let said = Said { slots: 9, obeys_drain: false };
    let beat = Heartbeat { session: session.clone(), version, said, faults: None, renewals };
    let (beaten, started, cancelled, scanned) = tokio::join!(
        store.heartbeat(beat),
        store.acknowledge_starting(held.clone()),
        store.cancel_run(cancel),
        store.expire_leases(64),
    );
    drop((beaten.unwrap(), cancelled.unwrap(), scanned.unwrap()));
    if started.unwrap().into_result().is_ok() {
        let end = store.end(exited(&held, &grant, 0, b""));
        let (ended, resumed, lanes) = tokio::join!(end, store.resume_worker(drain), store.lanes(None, 8, 8));
        drop((ended.unwrap(), resumed.unwrap(), lanes.unwrap()));
    }
}
