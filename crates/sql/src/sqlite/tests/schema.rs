//! What the schema itself refuses, whatever the code above it believes.

use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::{Fixture, exited, revision, step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_or_was_told_never_changes() {
    let fixture = Fixture::new();
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let grant = fixture.claim(&session, run).await;
    let fence = step(&session, &grant);
    fixture.store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    fixture.store.end(exited(&fence, &grant, 0, b"")).await.unwrap().into_result().unwrap();
    fixture.store.close().await;
    let connection = Connection::open(fixture.path()).unwrap();
    for (sql, words) in [
        ("UPDATE run SET state = 'running', closed_at = NULL", "a terminal run never changes"),
        ("UPDATE attempt SET state = 'failed'", "a terminal attempt never changes"),
        ("UPDATE attempt SET outcome = '{\"kind\":\"never_spawned\"}'", "a terminal attempt never changes"),
        ("UPDATE lease SET state = 'active'", "a lease that ended never changes"),
        ("UPDATE revision SET canonical = zeroblob(2)", "a revision never changes"),
        ("UPDATE event SET actor = 'nobody'", "an event never changes"),
        ("UPDATE audit SET actor = 'nobody'", "an audit row never changes"),
        ("DELETE FROM event", "an event is never deleted"),
        ("DELETE FROM audit", "an audit row is never deleted"),
    ] {
        let error = connection.execute(sql, []).unwrap_err();
        assert_eq!(error.to_string(), words, "{sql}");
    }
    assert_eq!(connection.execute("UPDATE attempt SET resolution = 'person', may_live = 1", []).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_is_not_in_the_table_cannot_be_stored() {
    let fixture = Fixture::new();
    fixture.admit(revision(&[])).await;
    fixture.store.close().await;
    let connection = Connection::open(fixture.path()).unwrap();
    for sql in [
        "UPDATE run SET state = 'sleeping'",
        "UPDATE run SET state = 'succeeded'",
        "UPDATE run SET state = 'retry_wait'",
        "UPDATE run SET due_lease = 1",
        "UPDATE attempt SET state = 'succeeded'",
        "UPDATE attempt SET id = zeroblob(15)",
        "UPDATE run SET priority = 101",
    ] {
        assert!(connection.execute(sql, []).unwrap_err().to_string().starts_with("CHECK constraint failed"), "{sql}");
    }
}
