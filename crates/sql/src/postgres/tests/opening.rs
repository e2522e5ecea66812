//! Opening: what is refused and with which words, what replicas do to each other, and what stays when it is closed.

use std::sync::Arc;

use leasehold_store::contract::TestClock;
use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;

use super::super::inspect::inspect;
use super::super::{OpenError, PostgresOptions, PostgresStore};
use super::{Fixture, open};
use crate::scene::revision;
use crate::test_server::TestServer;

async fn refused(url: &str) -> OpenError {
    PostgresStore::open(url, PostgresOptions::new()).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_start_at_once_make_one_schema() {
    let Some(server) = TestServer::shared_or_skip("opening") else { return };
    let database = server.database().unwrap();
    let clock = Arc::new(TestClock::new());
    let url = database.url();
    let opened = (0..6).map(|_| open(&url, &clock));
    let stores = futures_util::future::join_all(opened).await;
    for store in &stores {
        assert_eq!(store.installation().await.unwrap(), None);
    }
    let steps = database.query("SELECT count(*) FROM leasehold.schema_migration").unwrap();
    assert_eq!(steps[0][0].as_deref(), Some(super::super::migrate::MIGRATIONS.len().to_string().as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_certainly_does_nothing() {
    let Some(fixture) = Fixture::new().await else { return };
    let run = fixture.admit(revision(&[])).await;
    let before = fixture.store.run(run).await.unwrap();
    fixture.store.close().await;
    let error = fixture.store.admit_run(fixture.submission(revision(&[]))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDone { .. }), "{error}");
    assert_eq!(fixture.replica().await.run(run).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_a_changed_and_a_foreign_schema_are_refused() {
    let Some(fixture) = Fixture::new().await else { return };
    let url = fixture.database.url();
    fixture.sql("INSERT INTO schema_migration VALUES (9999, 'later', decode(repeat('00', 32), 'hex'))");
    let error = refused(&url).await;
    assert!(error.to_string().contains("schema version 9999"), "{error}");
    fixture.sql("DELETE FROM schema_migration WHERE version = 9999");
    fixture.sql("UPDATE schema_migration SET checksum = decode(repeat('00', 32), 'hex') WHERE version = 1");
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::ChangedMigration { version: 1, .. }), "{error:?}");
    fixture.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.thing (id integer)");
    let error = PostgresStore::open(&url, PostgresOptions::new().in_schema("theirs")).await.unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_wait_for_its_disk_is_refused_whoever_said_so() {
    let Some(fixture) = Fixture::new().await else { return };
    let (url, name) = (fixture.database.url(), fixture.database.name());
    for (set, reset) in [
        (
            format!("ALTER DATABASE {name} SET synchronous_commit TO off"),
            format!("ALTER DATABASE {name} RESET synchronous_commit"),
        ),
        (
            format!("ALTER ROLE leasehold IN DATABASE {name} SET synchronous_commit TO off"),
            format!("ALTER ROLE leasehold IN DATABASE {name} RESET synchronous_commit"),
        ),
    ] {
        fixture.sql(&set);
        let error = refused(&url).await;
        assert!(error.to_string().contains("synchronous_commit = off"), "{error}");
        fixture.sql(&reset);
    }
    // A replica that runs already takes no new connection to it either.
    let replica = fixture.replica().await;
    fixture.sql(&format!("ALTER DATABASE {name} SET synchronous_commit TO off"));
    let error = replica.check().await.unwrap_err();
    assert!(error.to_string().contains("synchronous_commit = off"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_only_read_and_write_rows_opens_what_another_migrated() {
    let Some(fixture) = Fixture::new().await else { return };
    let name = fixture.database.name();
    let role = format!("runtime_{name}");
    fixture.sql(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA leasehold TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO {role}"
    ));
    let own = fixture.database.url();
    let (_, address) = own.split_once('@').unwrap();
    let store = open(&format!("postgres://{role}:x@{address}"), &fixture.clock).await;
    store.check().await.unwrap();
    store.admit_run(fixture.submission(revision(&[]))).await.unwrap().into_result().unwrap();

    let url = format!("postgres://{role}:x@{address}");
    // What was told is never told otherwise, and nobody needs the right to.
    fixture.sql(&format!("REVOKE UPDATE, DELETE ON leasehold.audit, leasehold.event FROM {role}"));
    store.check().await.unwrap();
    open(&url, &fixture.clock).await.close().await;

    for (taken, told) in [
        ("INSERT ON leasehold.run FROM", "read and write its rows (no INSERT on run)"),
        ("ALL ON leasehold.event FROM", "(no INSERT on event, INSERT on run, SELECT on event)"),
        ("EXECUTE ON FUNCTION leasehold.lock_project FROM PUBLIC,", "(no EXECUTE on lock_project, INSERT on event, "),
        ("USAGE ON SCHEMA leasehold FROM", "look into its schema (no USAGE on leasehold)"),
    ] {
        fixture.sql(&format!("REVOKE {taken} {role}"));
        // A replica that runs names it, whoever asks.
        let missing = told.rsplit('(').next().unwrap().trim_end_matches(')');
        for error in
            [store.check().await.unwrap_err(), store.admit_run(fixture.submission(revision(&[]))).await.unwrap_err()]
        {
            let StoreError::NotAllowed { reason } = &error else { panic!("{taken}: {error:?}") };
            assert!(reason.contains(missing), "{taken}: {reason}");
        }
        let said = refused(&url).await.to_string();
        assert!(said.contains(told) && said.contains("roles.sql"), "{said}");
        let seen = inspect(&url).await.unwrap().schema.unwrap_err().to_string();
        assert_eq!(seen, said, "whoever looks from outside is told the same");
    }
    store.close().await;
    fixture.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
