//! The stored lease clock: restarts, downtime, and wall clocks that step.

use std::time::Duration;

use leasehold_core::time::{LeaseInstant, Millis};
use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::super::{Options, SqliteStore};
use super::{Fixture, revision, step};

const THREE_HOURS: i64 = 3 * 60 * 60 * 1000;

fn stored(fixture: &Fixture) -> LeaseInstant {
    let connection = Connection::open(fixture.path()).unwrap();
    let at = connection.query_row("SELECT at FROM lease_clock", [], |row| row.get(0)).unwrap();
    LeaseInstant::new(at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downtime_does_not_count() {
    let mut fixture = Fixture::new();
    fixture.clock.advance(Millis::from_secs(100));
    let before = fixture.store.now().await.unwrap().lease;
    fixture.store.close().await;
    fixture.clock.advance(Millis::from_secs(86_400));
    fixture.reopen().await;
    assert_eq!(fixture.store.now().await.unwrap().lease, before);
    fixture.clock.advance(Millis::from_secs(1));
    assert_eq!(fixture.store.now().await.unwrap().lease, before.plus(Millis::from_secs(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_stored_with_every_commit_that_changes_something() {
    let fixture = Fixture::new();
    let start = stored(&fixture);
    fixture.clock.advance(Millis::from_secs(7));
    assert!(fixture.store.expire_leases(64).await.unwrap().runs.is_empty());
    assert_eq!(stored(&fixture), start, "nothing changed, so nothing was written");
    fixture.admit(revision(&[])).await;
    assert_eq!(stored(&fixture), start.plus(Millis::from_secs(7)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_stored_now_and_then_while_a_lease_lives() {
    let mut fixture = Fixture::new();
    fixture.store.close().await;
    let options = Options::new(fixture.clock.clone());
    fixture.store = SqliteStore::open_with(&fixture.path(), options, Duration::from_millis(1)).unwrap();
    let session = fixture.agent("nas").await;
    fixture.clock.advance(Millis::from_secs(3));
    let idle = stored(&fixture);
    let run = fixture.admit(revision(&[])).await;
    fixture.claim(&session, run).await;
    fixture.clock.advance(Millis::from_secs(4));
    let now = fixture.store.now().await.unwrap().lease;
    assert!(idle < now);
    // The fact to wait for is in the file: only the writer's own round can bring it there.
    while stored(&fixture) < now {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_wall_clock_loses_no_lease() {
    for steps in [[THREE_HOURS, -THREE_HOURS], [-THREE_HOURS, THREE_HOURS]] {
        let mut fixture = Fixture::new();
        let session = fixture.agent("nas").await;
        let run = fixture.admit(revision(&[])).await;
        let grant = fixture.claim(&session, run).await;
        let step = step(&session, &grant);
        fixture.store.acknowledge_starting(step).await.unwrap().into_result().unwrap();
        for millis in steps {
            fixture.clock.step_utc(millis);
            assert!(fixture.store.expire_leases(64).await.unwrap().runs.is_empty(), "after a step of {millis}");
            fixture.reopen().await;
            assert!(fixture.store.expire_leases(64).await.unwrap().runs.is_empty(), "after a restart");
        }
        fixture.clock.advance(grant.lease.length);
        assert!(fixture.store.expire_leases(64).await.unwrap().runs.is_empty(), "lost is declared later");
        fixture.clock.advance(Millis::from_secs(2));
        assert_eq!(fixture.store.expire_leases(64).await.unwrap().runs, [run]);
    }
}
