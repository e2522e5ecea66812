//! Damaged rows: said to be so, and in nobody else's way.

use leasehold_core::canonical::Value;
use leasehold_core::counter::SessionVersion;
use leasehold_core::directive::Directive;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::time::Millis;
use leasehold_store::call::{Claim, Heartbeat, Renewal};
use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;
use leasehold_store::view::{AskState, Grant};
use rusqlite::Connection;

use super::{Fixture, revision, step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_attempt_does_not_keep_the_others_from_recovery() {
    let fixture = Fixture::new();
    let session = fixture.agent("nas").await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = fixture.admit(revision(&[])).await;
        let grant = fixture.claim(&session, run).await;
        fixture.store.acknowledge_starting(step(&session, &grant)).await.unwrap().into_result().unwrap();
        runs.push(run);
    }
    let broken = runs.remove(0);
    let connection = Connection::open(fixture.path()).unwrap();
    let damage = "UPDATE attempt SET boot = '' WHERE run = ?1";
    assert_eq!(connection.execute(damage, [broken.as_bytes()]).unwrap(), 1);

    let error = fixture.store.run(broken).await.unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { reason } if reason.contains("boot")), "{error}");
    fixture.clock.advance(Millis::from_secs(3600));
    let scanned = fixture.store.expire_leases(1).await.unwrap();
    assert!(!scanned.more, "a page of rows that cannot be read is not asked for again and again");
    let scanned = fixture.store.expire_leases(64).await.unwrap();
    assert_eq!((scanned.runs, scanned.next), (runs, None), "nor is it waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_placement_blocks_its_own_lane_alone() {
    let fixture = Fixture::new();
    let run = fixture.admit(revision(&[])).await;
    let linux = Value::map([("require", Value::map([("os", Value::texts(["linux"]))]))]);
    let other = fixture.admit(revision(&[("placement", linux)])).await;
    assert_eq!(fixture.store.lanes(None, 8, 8).await.unwrap().len(), 2);
    let connection = Connection::open(fixture.path()).unwrap();
    let damage =
        "UPDATE placement SET canonical = zeroblob(9) WHERE digest = (SELECT placement FROM run WHERE id = ?1)";
    assert_eq!(connection.execute(damage, [run.as_bytes()]).unwrap(), 1);
    let lanes = fixture.store.lanes(None, 8, 8).await.unwrap();
    let heads: Vec<_> = lanes.iter().flat_map(|lane| &lane.heads).map(|head| head.run).collect();
    assert_eq!(heads, [other]);
}

/// A started run of `session` whose attempt cannot be read, and one beside it that can.
async fn a_broken_run_and_a_whole_one(fixture: &Fixture, session: &SessionFence) -> (Grant, Grant) {
    let mut grants = Vec::new();
    for _ in 0..2 {
        let run = fixture.admit(revision(&[])).await;
        let grant = fixture.claim(session, run).await;
        fixture.store.acknowledge_starting(step(session, &grant)).await.unwrap().into_result().unwrap();
        grants.push(grant);
    }
    let whole = grants.pop().unwrap();
    let broken = grants.pop().unwrap();
    let connection = Connection::open(fixture.path()).unwrap();
    let damage = "UPDATE attempt SET boot = '' WHERE run = ?1";
    assert_eq!(connection.execute(damage, [broken.run.id.as_bytes()]).unwrap(), 1);
    (broken, whole)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_attempt_takes_neither_its_workers_session_nor_its_other_leases_along() {
    let fixture = Fixture::new();
    let session = fixture.agent("nas").await;
    let (broken, whole) = a_broken_run_and_a_whole_one(&fixture, &session).await;
    for run in [broken.run.id, whole.run.id] {
        let connection = Connection::open(fixture.path()).unwrap();
        let wish = "UPDATE run SET intent_reason = 'cancel', intent_by = 'system', intent_at = 1 WHERE id = ?1";
        assert_eq!(connection.execute(wish, [run.as_bytes()]).unwrap(), 1);
    }
    let renewals = [&broken, &whole].map(|grant| Renewal {
        fence: step(&session, grant).lease,
        version: grant.lease.version,
        left: None,
    });
    let beat = Heartbeat {
        session: session.clone(),
        version: SessionVersion::FIRST,
        said: Said { slots: 0, obeys_drain: false },
        faults: None,
        renewals: renewals.to_vec(),
    };
    let beaten = fixture.store.heartbeat(beat).await.unwrap().into_result().unwrap();
    let verdicts: Vec<_> = beaten.leases.iter().map(|(_, verdict)| verdict.as_ref().map_err(|no| no.code)).collect();
    // No code that would make the worker stop a job that it may keep: only a row of ours cannot be read.
    assert!(matches!(verdicts[..], [Err(RefusalCode::Overloaded), Ok(_)]), "{verdicts:?}");
    let stopped = beaten.directives.iter().map(|directive| match directive {
        Directive::Stop(stop) => stop.attempt,
        other => panic!("{other:?}"),
    });
    let stopped: Vec<_> = stopped.collect();
    assert_eq!(stopped, [whole.attempt.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_cannot_be_read_uses_up_its_own_ask_alone() {
    let fixture = Fixture::new();
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let ask = fixture.ask();
    let claim = Claim { session: session.clone(), ask: ask.clone(), run, score: 0 };
    fixture.store.claim(claim).await.unwrap().into_result().unwrap();
    let connection = Connection::open(fixture.path()).unwrap();
    assert_eq!(
        connection.execute("UPDATE run SET name = '', project = '' WHERE id = ?1", [run.as_bytes()]).unwrap(),
        1
    );
    let state = fixture.store.recover_asks(session, vec![ask, fixture.ask()]).await.unwrap().into_result().unwrap();
    assert_eq!(state.asks, [AskState::Gone, AskState::Open]);
}
