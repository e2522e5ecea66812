//! What the schema refuses, whatever the code above it believes.

use super::Fixture;
use crate::scene::{exited, revision, running, step};
use leasehold_store::call::AcknowledgeRunning;
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
        ("DELETE FROM event", "an event is never deleted"),
        ("DELETE FROM audit", "an audit row is never deleted"),
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

/// Columns of a table that one of its indexes stands on or selects by.
fn indexed(fixture: &Fixture<'_>, table: &str) -> Vec<String> {
    let rows = fixture.sql(&format!(
        "SELECT DISTINCT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid \
         WHERE i.indrelid = '{table}'::regclass AND (a.attnum = ANY (i.indkey) OR EXISTS (SELECT FROM pg_depend d \
         WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid = i.indrelid \
         AND d.refobjsubid = a.attnum)) ORDER BY a.attname"
    ));
    rows.into_iter().flatten().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_of_an_attempt_stay_in_its_page() {
    let Some(fixture) = Fixture::new().await else { return };
    // What an index selects by counts as much as what it stands on.
    assert_eq!(indexed(&fixture, "attempt"), ["id", "may_live", "number", "passing_lease", "run", "unsettled"]);
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let grant = fixture.claim(&session, run).await;
    let fence = step(&session, &grant);
    fixture.store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    let call = AcknowledgeRunning { step: fence.clone(), call: running(&grant) };
    fixture.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
    fixture.store.end(exited(&fence, &grant, 0, b"")).await.unwrap().into_result().unwrap();
    // Connections tell what they counted when they end, at the latest.
    fixture.store.close().await;
    let updated = "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'attempt'::regclass";
    fixture.until(updated, "4 4").await;
}
