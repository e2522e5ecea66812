//! Opening: who may, what is refused and with which words, and what stays when it is closed.

use std::error::Error as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_store::contract::TestClock;
use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::super::transaction::Tx;
use super::super::{OpenError, Options, SqliteStore, installation};
use super::{Fixture, revision};

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, Options::new(Arc::new(TestClock::new())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_open_is_refused_and_names_the_holder() {
    let fixture = Fixture::new();
    let error = open(&fixture.path()).unwrap_err();
    let pid = std::process::id();
    assert!(matches!(error, OpenError::Held { pid: Some(holder), .. } if holder == pid), "{error:?}");
    assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
    fixture.store.close().await;
    open(&fixture.path()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_after_closing() {
    let mut fixture = Fixture::new();
    let run = fixture.admit(revision(&[])).await;
    let before = fixture.store.run(run).await.unwrap();
    fixture.reopen().await;
    assert_eq!(fixture.store.run(run).await.unwrap(), before);
    assert!(before.is_some());
}

/// Whoever copies the file of a control plane that was stopped in order has copied everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_database_is_one_whole_file() {
    let fixture = Fixture::new();
    let run = fixture.admit(revision(&[])).await;
    // A reader that is still at work when the store is closed.
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let store = fixture.store.clone();
    let reading = tokio::spawn(async move {
        let finished = std::sync::Mutex::new(finished);
        let wait = move |tx: &Tx<'_>| {
            installation::installation(tx)?;
            begin.send(()).unwrap();
            let _ = finished.lock().unwrap().recv();
            Ok(())
        };
        store.read("wait", wait).await.unwrap();
    });
    begun.recv().unwrap();
    let store = fixture.store.clone();
    let mut closing = tokio::spawn(async move { store.close().await });
    tokio::time::timeout(Duration::from_millis(200), &mut closing).await.expect_err("it waits for the reader");
    drop(finish);
    reading.await.unwrap();
    closing.await.unwrap();
    let copy = fixture.path().with_file_name("copy.db");
    std::fs::copy(fixture.path(), &copy).unwrap();
    let store = open(&copy).unwrap();
    assert!(store.run(run).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_certainly_does_nothing() {
    let fixture = Fixture::new();
    fixture.store.close().await;
    fixture.store.close().await;
    let error = fixture.store.admit_run(fixture.submission(revision(&[]))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDone { .. }), "{error}");
    let error = fixture.store.installation().await.unwrap_err();
    assert!(matches!(error, StoreError::NotDone { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_can_read_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = open(&path).unwrap();
    assert_eq!(store.installation().await.unwrap(), None);
    for file in ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"] {
        let mode = directory.path().join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nowhere").join("store.db");
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(error.source().is_some(), "the system's words are the cause");
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let text = "a shopping list, long enough to be read as the header of a database file, which it is not\n".repeat(9);
    std::fs::write(&path, &text).unwrap();
    assert!(matches!(open(&path).unwrap_err(), OpenError::Sqlite { .. }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_and_a_changed_migration_are_refused_on_disk() {
    let fixture = Fixture::new();
    fixture.store.close().await;
    let connection = Connection::open(fixture.path()).unwrap();
    let tamper = |sql: &str| assert_eq!(connection.execute(sql, []).unwrap(), 1);
    tamper("INSERT INTO schema_migration VALUES (9999, 'later', zeroblob(32), 0)");
    let error = open(&fixture.path()).unwrap_err();
    assert!(error.to_string().contains("schema version 9999"), "{error}");
    tamper("DELETE FROM schema_migration WHERE version = 9999");
    tamper("UPDATE schema_migration SET checksum = zeroblob(32) WHERE version = 1");
    let error = open(&fixture.path()).unwrap_err();
    assert!(matches!(error, OpenError::ChangedMigration { version: 1, .. }), "{error:?}");
}
