//! What the schema refuses, whatever the code above it believes.

use super::Fixture;
use crate::scene::{exited, revision, step};
use leasehold_store::port::Store as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_and_what_was_told_never_changes() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let grant = fixture.claim(&session, run).await;
    let fence = step(&session, &grant);
    fixture.store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    fixture.store.end(exited(&fence, &grant, 0, b"")).await.unwrap().into_result().unwrap();
    for (sql, words) in [
        ("UPDATE run SET state = 'running', closed_at = NULL", "a terminal run never changes"),
        ("UPDATE attempt SET state = 'failed'", "a terminal attempt never changes"),
        ("UPDATE attempt SET outcome = '{\"kind\":\"never_spawned\"}'", "a terminal attempt never changes"),
        ("UPDATE lease SET state = 'active'", "a lease that ended never changes"),
        ("UPDATE revision SET canonical = '\\x00'", "a revision never changes"),
        ("UPDATE event SET actor = 'nobody'", "an event never changes"),
        ("UPDATE audit SET actor = 'nobody'", "an audit row never changes"),
    ] {
        let error = fixture.database.query(&format!("SET search_path TO leasehold; {sql}")).unwrap_err();
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    fixture.sql("UPDATE attempt SET resolution = 'person', may_live = true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_is_not_in_the_table_cannot_be_stored() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.admit(revision(&[])).await;
    for sql in [
        "UPDATE run SET state = 'sleeping'",
        "UPDATE run SET state = 'succeeded'",
        "UPDATE run SET state = 'retry_wait'",
        "UPDATE run SET due_lease = 1",
        "UPDATE attempt SET state = 'succeeded'",
        "UPDATE run SET priority = 101",
        "UPDATE run SET concurrency = 0",
    ] {
        let error = fixture.database.query(&format!("SET search_path TO leasehold; {sql}")).unwrap_err();
        assert!(error.to_string().contains("violates check constraint"), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_stays_in_its_page() {
    let Some(fixture) = Fixture::new().await else { return };
    for table in ["session", "lease"] {
        let hot = "version session session_generation expires_lease spoke_lease slots obeys_drain";
        let indexed = fixture.value(&format!(
            "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) \
             WHERE i.indrelid = '{table}'::regclass AND a.attname = ANY (string_to_array('{hot}', ' '))"
        ));
        assert_eq!(indexed, "0", "an index on what a heartbeat writes to {table}");
    }
}
