//! A crash at any instant: what was answered is there, what was not committed is not, and the rest fits together.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use leasehold_store::contract::TestClock;
use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::super::column::values;
use super::super::transaction::Tx;
use super::super::{Options, SqliteStore};
use super::{Fixture, revision};

/// The files as a crash at this instant would leave them: no shared memory, no lock, the log cut at `length`.
fn crashed(fixture: &Fixture, into: &Path, length: Option<usize>) {
    std::fs::create_dir_all(into).unwrap();
    std::fs::copy(fixture.path(), into.join("store.db")).unwrap();
    let mut wal = std::fs::read(fixture.directory.path().join("store.db-wal")).unwrap();
    wal.truncate(length.unwrap_or(wal.len()));
    std::fs::write(into.join("store.db-wal"), wal).unwrap();
}

fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(directory.join("store.db"), Options::new(Arc::new(TestClock::new()))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_and_an_open_transaction_does_not() {
    let fixture = Fixture::new();
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(fixture.admit(revision(&[])).await);
    }
    // A transaction so large that part of it stands in the log before it commits.
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let once = Mutex::new(Some((begin, released)));
    let store = fixture.store.clone();
    let open_transaction = tokio::spawn(async move {
        let body = move |tx: &Tx<'_>| {
            let sql = "INSERT INTO audit (at, actor, action, subject, facts) \
                       VALUES (0, 'test', 'uncommitted', 'test', hex(zeroblob(4000000)))";
            tx.execute(sql, values![])?;
            if let Some((begin, released)) = once.lock().unwrap().take() {
                begin.send(()).unwrap();
                // An error is the signal: the sender was dropped.
                released.recv().unwrap_err();
            }
            Ok(())
        };
        store.write("large", body).await
    });
    begun.await.unwrap();
    let wal = fixture.directory.path().join("store.db-wal").metadata().unwrap().len();
    assert!(wal > 4_000_000, "the open transaction reached the log: {wal} bytes");
    let after = fixture.directory.path().join("after");
    crashed(&fixture, &after, None);
    drop(release);
    open_transaction.await.unwrap().unwrap();

    let store = open(&after);
    for run in &runs {
        assert!(store.run(*run).await.unwrap().is_some(), "{run}");
    }
    let audit = store.audit(leasehold_store::call::AuditPage::Oldest { after: None }, 64).await.unwrap();
    assert_eq!(audit.iter().filter(|entry| entry.action == "admit_run").count(), runs.len());
    assert_eq!(audit.len(), runs.len(), "nothing of the open transaction");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_anywhere_is_a_shorter_history() {
    let fixture = Fixture::new();
    let session = fixture.agent("nas").await;
    for _ in 0..8 {
        let run = fixture.admit(revision(&[])).await;
        fixture.claim(&session, run).await;
    }
    let whole = std::fs::read(fixture.directory.path().join("store.db-wal")).unwrap().len();
    let mut before = 0;
    for cut in (0..=whole).step_by(whole / 97 + 1).chain([whole]) {
        let directory = tempfile::tempdir().unwrap();
        crashed(&fixture, directory.path(), Some(cut));
        let store = open(directory.path());
        let runs = store.runs(leasehold_store::call::RunFilter::default(), 64).await.unwrap().len();
        store.close().await;
        assert!(runs >= before, "cut at {cut}: {runs} runs, {before} in a shorter log");
        before = runs;
        let connection = Connection::open(directory.path().join("store.db")).unwrap();
        let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok", "cut at {cut}");
        let orphans: i64 =
            connection.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
        assert_eq!(orphans, 0, "cut at {cut}");
        let torn: i64 = connection
            .query_row(
                "SELECT count(*) FROM attempt a WHERE (a.state = 'claimed') != EXISTS \
                 (SELECT 1 FROM lease l WHERE l.attempt = a.id AND l.state = 'active')",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(torn, 0, "attempt and lease change together; cut at {cut}");
    }
    assert_eq!(before, 8);
}
