//! Damaged rows: said to be so, and in nobody else's way.

use leasehold_core::canonical::Value;
use leasehold_core::time::Millis;
use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;
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
