//! Killed at every step: at most one store lives, and what is begun again ends.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::actor::Actor;
use leasehold_store::port::Store as _;

use super::{Fixture, Progress, Settled, answers, run, settle};
use crate::migrate_store::{MoveError, take_back};
use crate::postgres::tests::wire::{Cut, Wire};
use crate::sqlite::{OpenError, Source, Stage};
use crate::test_server::{StopMode, TestServer};

/// Every step behind which a process can end, and how far the mark got by then.
const STEPS: [(Progress, Stage); 5] = [
    (Progress::Marked, Stage::Copying),
    (Progress::Copied { table: "lease", rows: 0, bytes: 0 }, Stage::Copying),
    (Progress::Compared, Stage::Copying),
    (Progress::Committing, Stage::Committing),
    (Progress::Committed, Stage::Committing),
];

fn is(found: Progress, wanted: Progress) -> bool {
    match (found, wanted) {
        (Progress::Copied { table, .. }, Progress::Copied { table: wanted, .. }) => table == wanted,
        (found, wanted) => discriminant(&found) == discriminant(&wanted),
    }
}

/// The command, ended as a crash would end it once it has done `step`.
async fn killed_behind(fixture: &Arc<Fixture<'static>>, step: Progress) {
    let killed = fixture.clone();
    let ended = tokio::spawn(async move {
        killed.run(|progress| assert!(!is(progress, step), "killed behind {progress:?}")).await.map(|_| ())
    });
    assert!(ended.await.unwrap_err().is_panic(), "it did not come to {step:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_ends_when_it_is_begun_again() {
    for (step, stage) in STEPS {
        let Some(fixture) = Fixture::new().await else { return };
        let fixture = Arc::new(fixture);
        let before = fixture.sqlite().unwrap();
        let said = answers::of(&before).await;
        before.close().await;
        killed_behind(&fixture, step).await;

        // Nobody opens the file, whatever became of the database.
        let refused = fixture.sqlite().unwrap_err();
        assert!(matches!(&refused, OpenError::Moved(moved) if moved.stage == stage), "{step:?}: {refused}");
        assert!(refused.to_string().contains("migrate-store"), "{refused}");
        assert_eq!(fixture.has_arrived().await, matches!(step, Progress::Committed), "{step:?}");

        let report = fixture.run(|_| {}).await.unwrap();
        assert_eq!(report.is_none(), matches!(step, Progress::Committed), "what arrived is not sent again: {step:?}");
        let after = fixture.postgres().await;
        assert_eq!(answers::of(&after).await, said, "{step:?}");
        after.close().await;
        let refused = fixture.sqlite().unwrap_err();
        assert!(matches!(&refused, OpenError::Moved(moved) if moved.stage == Stage::Finished), "{step:?}: {refused}");
        assert!(fixture.run(|_| {}).await.unwrap().is_none(), "once more does nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_can_be_taken_back_unless_it_arrived() {
    for (step, stage) in STEPS {
        let Some(fixture) = Fixture::new().await else { return };
        let fixture = Arc::new(fixture);
        let before = fixture.sqlite().unwrap();
        let said = answers::of(&before).await;
        before.close().await;
        killed_behind(&fixture, step).await;
        let source = Source::open(&fixture.path()).unwrap();
        let to = fixture.destination();
        let back = async |to, destroyed| take_back(&source, to, destroyed, &Actor::System, &*fixture.clock).await;
        if stage == Stage::Committing {
            let error = back(None, false).await.unwrap_err();
            assert!(matches!(error, MoveError::AskFirst(_)), "{step:?}: {error}");
        }
        if matches!(step, Progress::Committed) {
            for destroyed in [false, true] {
                let error = back(Some(&to), destroyed).await.unwrap_err();
                assert!(matches!(error, MoveError::Lives(_)), "{error}");
            }
            continue;
        }
        let place = back(Some(&to), false).await.unwrap().unwrap();
        assert_eq!(place.url, to.told);
        assert_eq!(back(Some(&to), false).await.unwrap(), None);
        drop(source);
        let after = fixture.sqlite().unwrap();
        assert_eq!(answers::of(&after).await, said, "{step:?}");
        let audited = answers::audit(&after, "").await;
        assert!(audited.last().unwrap().contains("take_back_store"), "{audited:?}");
        after.close().await;
        assert!(!fixture.has_arrived().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_stops_it_has_the_store_back() {
    let Some(fixture) = Fixture::new().await else { return };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);
    let at_the_logs = |progress| {
        if is(progress, Progress::Copied { table: "log_chunk", rows: 0, bytes: 0 })
            && let Some(stop) = stop.take()
        {
            stop.send(()).unwrap();
        }
    };
    let ended = fixture.run_until(at_the_logs, async { stopped.await.unwrap() }).await;
    assert!(matches!(ended, Err(MoveError::Stopped)), "{ended:?}");
    fixture.sqlite().unwrap().close().await;
    assert!(!fixture.has_arrived().await);
}

/// Ends every connection to the database, as a restart of it would.
fn cut(fixture: &Fixture<'_>) {
    let sql = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    fixture.database.query(sql).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_leaves_the_store_where_it_was() {
    for (step, _) in &STEPS[..4] {
        let Some(fixture) = Fixture::new().await else { return };
        let mut cut_once = false;
        let error = fixture
            .run(|progress| {
                if is(progress, *step) && !std::mem::replace(&mut cut_once, true) {
                    cut(&fixture);
                }
            })
            .await
            .unwrap_err();
        assert!(matches!(error, MoveError::Target(_) | MoveError::NotCommitted(_)), "{step:?}: {error}");
        fixture.sqlite().unwrap().close().await;
        assert!(!fixture.has_arrived().await, "{step:?}");
        fixture.run(|_| {}).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_not_answered_is_asked_for() {
    for cut in [Cut::BeforeTheServer, Cut::BeforeTheAnswer] {
        let Some(fixture) = Fixture::new().await else { return };
        let (wire, url) = Wire::to(&fixture.database.url()).await;
        let to = super::Destination { url, ..fixture.destination() };
        let cutting = |progress| {
            if progress == Progress::Committing {
                wire.cuts(Some(cut));
            }
        };
        let ended = run(&fixture.path(), &to, &fixture.clock, cutting, std::future::pending()).await;
        if cut == Cut::BeforeTheAnswer {
            assert!(ended.unwrap().is_some());
            assert!(fixture.has_arrived().await);
            let refused = fixture.sqlite().unwrap_err();
            assert!(matches!(&refused, OpenError::Moved(moved) if moved.stage == Stage::Finished), "{refused}");
        } else {
            let error = ended.unwrap_err();
            assert!(matches!(error, MoveError::NotCommitted(_)), "{error}");
            assert!(!fixture.has_arrived().await);
            fixture.sqlite().unwrap().close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_known_stays_closed_until_it_is() {
    if !TestServer::is_there_or_skip("what_cannot_be_known_stays_closed_until_it_is") {
        return;
    }
    let server = TestServer::start().unwrap();
    let fixture = Fixture::on(&server).await;
    let mut to = fixture.destination();
    to.patience = Duration::from_millis(10);
    let stop = |progress| {
        if progress == Progress::Committing {
            server.stop(StopMode::Immediate).unwrap();
        }
    };
    let error = run(&fixture.path(), &to, &fixture.clock, stop, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, MoveError::Unknown { .. }), "{error}");
    assert!(matches!(fixture.sqlite().unwrap_err(), OpenError::Moved(_)));
    let source = Source::open(&fixture.path()).unwrap();
    for _ in 0..2 {
        let error = settle(&source, &to, &*fixture.clock).await.unwrap_err();
        assert!(matches!(error, MoveError::Unknown { .. }), "{error}");
        let error = take_back(&source, Some(&to), false, &Actor::System, &*fixture.clock).await.unwrap_err();
        assert!(matches!(error, MoveError::Unknown { .. }), "{error}");
    }
    server.start_again().unwrap();
    // Another database of the server knows nothing of it.
    let other = server.database().unwrap();
    let elsewhere = super::Destination { url: other.url(), ..to.clone() };
    let error = settle(&source, &elsewhere, &*fixture.clock).await.unwrap_err();
    assert!(matches!(error, MoveError::Elsewhere(_)), "{error}");
    assert_eq!(settle(&source, &to, &*fixture.clock).await.unwrap(), Settled::Fresh);
    drop(source);
    fixture.run(|_| {}).await.unwrap().unwrap();
    assert!(fixture.has_arrived().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persons_word_stands_for_a_database_that_is_gone() {
    let Some(fixture) = Fixture::new().await else { return };
    let fixture = Arc::new(fixture);
    killed_behind(&fixture, Progress::Committing).await;
    let source = Source::open(&fixture.path()).unwrap();
    let mut gone = fixture.destination();
    gone.url = gone.url.replace(fixture.database.name(), "nowhere");
    let error = take_back(&source, Some(&gone), false, &Actor::System, &*fixture.clock).await.unwrap_err();
    assert!(matches!(error, MoveError::Unknown { .. }), "{error}");
    take_back(&source, Some(&gone), true, &Actor::System, &*fixture.clock).await.unwrap().unwrap();
    drop(source);
    let store = fixture.sqlite().unwrap();
    assert!(store.installation().await.unwrap().is_some());
    store.close().await;
}
