//! The writer: one commit for many callers, and what each of them is told when something goes wrong.

use std::sync::mpsc;

use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;
use tokio::task::JoinSet;

use super::super::column::values;
use super::super::queue::{Job, Undo};
use super::super::transaction::Tx;
use super::super::writer::GROUP;
use super::{Fixture, revision};

/// The writer, held inside a transaction that writes nothing.
struct Held {
    release: mpsc::Sender<()>,
    holding: tokio::task::JoinHandle<()>,
    /// What the writer had been sent when it was held.
    sent: usize,
}

impl Held {
    async fn hold(fixture: &Fixture) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let held = std::sync::Mutex::new(Some((begin, released)));
        let store = fixture.store.clone();
        let holding = tokio::spawn(async move {
            let wait = move |_: &Tx<'_>| {
                if let Some((begin, released)) = held.lock().unwrap().take() {
                    begin.send(()).unwrap();
                    // An error is the signal: the sender was dropped.
                    released.recv().unwrap_err();
                }
                Ok(())
            };
            store.write("hold", wait).await.unwrap();
        });
        begun.await.unwrap();
        Self { release, holding, sent: fixture.store.inner.writes.sent() }
    }

    /// Waits until this many calls stand in the queue behind it: sent, not only about to be.
    async fn queued(&self, fixture: &Fixture, calls: usize) {
        while fixture.store.inner.writes.sent() < self.sent + calls {
            tokio::task::yield_now().await;
        }
    }

    async fn let_go(self) {
        drop(self.release);
        self.holding.await.unwrap();
    }
}

/// How many transactions the write-ahead log holds: frames that carry the size of the database after a commit.
fn commits(fixture: &Fixture) -> usize {
    let wal = std::fs::read(fixture.directory.path().join("store.db-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let frame = 24 + number(8) as usize;
    let frames = (32..wal.len()).step_by(frame).filter(|at| at + frame <= wal.len());
    frames.filter(|at| wal[at + 8..at + 16] == wal[16..24] && number(at + 4) != 0).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_share_one_commit() {
    let fixture = Fixture::new();
    let before = commits(&fixture);
    let held = Held::hold(&fixture).await;
    let mut callers = JoinSet::new();
    for _ in 0..GROUP {
        let (store, call) = (fixture.store.clone(), fixture.submission(revision(&[])));
        callers.spawn(async move { store.admit_run(call).await.unwrap().into_result().unwrap().run.id });
    }
    held.queued(&fixture, GROUP).await;
    held.let_go().await;
    for run in callers.join_all().await {
        assert!(fixture.store.run(run).await.unwrap().is_some());
    }
    assert_eq!(commits(&fixture) - before, 1, "the held call wrote nothing, the others went together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_or_panics_undoes_itself_alone() {
    let fixture = Fixture::new();
    let held = Held::hold(&fixture).await;
    let write = |tx: &Tx<'_>, action: &str| {
        let sql = "INSERT INTO audit (at, actor, action, subject, facts) VALUES (0, 'test', ?1, 'test', '{}')";
        tx.execute(sql, values![action.to_owned()])
    };
    let store = fixture.store.clone();
    let panics = tokio::spawn(async move {
        let body = move |tx: &Tx<'_>| -> Result<(), _> {
            write(tx, "of the call that panics")?;
            panic!("a defect")
        };
        store.write("panics", body).await
    });
    let store = fixture.store.clone();
    let fails = tokio::spawn(async move {
        let body = move |tx: &Tx<'_>| {
            write(tx, "of the call that fails")?;
            tx.execute("INSERT INTO lease_clock (one, at) VALUES (2, 0)", values![])
        };
        store.write("fails", body).await
    });
    let (store, call) = (fixture.store.clone(), fixture.submission(revision(&[])));
    let admits = tokio::spawn(async move { store.admit_run(call).await });
    held.queued(&fixture, 3).await;
    held.let_go().await;
    for answer in [panics.await.unwrap().map(|()| 0), fails.await.unwrap()] {
        assert!(matches!(answer, Err(StoreError::NotDone { .. })), "{answer:?}");
    }
    let run = admits.await.unwrap().unwrap().into_result().unwrap().run.id;
    assert!(fixture.store.run(run).await.unwrap().is_some());
    let actions: Vec<_> = fixture
        .store
        .audit(leasehold_store::call::AuditPage::Oldest { after: None }, 64)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.action)
        .collect();
    assert_eq!(actions, ["admit_run"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_sqlite_refuses_is_certainly_not_done() {
    let fixture = Fixture::new();
    let orphan = |tx: &Tx<'_>| {
        tx.execute("PRAGMA defer_foreign_keys = ON", values![])?;
        let sql = "INSERT INTO idempotency_key (project, key, run) VALUES ('default', 'k', zeroblob(16))";
        tx.execute(sql, values![])
    };
    let error = fixture.store.write("orphan", orphan).await.unwrap_err();
    assert!(matches!(&error, StoreError::NotDone { reason } if reason.starts_with("COMMIT")), "{error}");
    fixture.admit(revision(&[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_unique_race_is_decided_once_more() {
    let fixture = Fixture::new();
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = tries.clone();
    let races = move |tx: &Tx<'_>| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        tx.execute("INSERT INTO lease_clock (one, at) VALUES (1, 0)", values![])
    };
    let error = fixture.store.write("races", races).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDone { .. }), "{error}");
    assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// A job that brings its thread down, as a defect outside every guard would.
struct Deadly;

impl Job for Deadly {
    fn run(&mut self, _: &Tx<'_>) -> Result<(), Undo> {
        panic!("the writer dies");
    }

    fn answer(self: Box<Self>, _: Result<(), StoreError>) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_a_writer_that_died_are_told_that_it_is_unknown() {
    let fixture = Fixture::new();
    let held = Held::hold(&fixture).await;
    let (store, call) = (fixture.store.clone(), fixture.submission(revision(&[])));
    let (run, caller) = (call.run, tokio::spawn(async move { store.admit_run(call).await }));
    held.queued(&fixture, 1).await;
    assert!(fixture.store.inner.writes.send(Box::new(Deadly)).is_ok());
    held.let_go().await;
    let answer = caller.await.unwrap();
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    assert_eq!(fixture.store.run(run).await.unwrap(), None, "readers go on");
    let ended = || fixture.store.inner.thread.lock().unwrap().as_ref().unwrap().is_finished();
    while !ended() {
        tokio::task::yield_now().await;
    }
    let answer = fixture.store.admit_run(fixture.submission(revision(&[]))).await;
    assert!(matches!(answer, Err(StoreError::NotDone { .. })), "{answer:?}");
}
