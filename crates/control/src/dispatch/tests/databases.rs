//! Lanes on real databases: whatever blocks 500 runs of high priority, one that somebody can take goes out as soon as if they
//! were not there. Counted in calls of the store, never in time; what else the dispatcher does is tested over the model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::canonical::Value;
use leasehold_core::id::RunId;
use leasehold_core::limits::{DISPATCH_PAGE, DISPATCH_PAGES};
use leasehold_core::time::Millis;
use leasehold_sql::postgres::{PostgresOptions, PostgresStore};
use leasehold_sql::sqlite::{Options, SqliteStore};
use leasehold_sql::test_server::{TestDatabase, TestServer};
use leasehold_store::faulty::Faulty;
use leasehold_store::port::Store;
use tokio::task::JoinHandle;

use super::super::Dispatcher;
use crate::error::WorkerResult;
use crate::fixture::{StoppedClock, World, granted, labelled, plain, revision};
use crate::plane::Settings;
use crate::pull::Pulled;

/// Longer than any of these tests: a pull that is not answered fails its test by what it did not get.
const LONG: Millis = leasehold_core::limits::PULL_WAIT;

/// Held by the test that runs: each alone keeps a machine busy, and a pull lasts no longer than its half minute.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How many are submitted or enrolled at once, to set a scene.
const AT_ONCE: usize = 25;

/// A control plane over a database, and what it asks of it.
struct Scene {
    world: World<Faulty>,
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Scene {
    async fn over(store: impl Store + 'static, clock: Arc<StoppedClock>) -> Self {
        let calls = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let counted = calls.clone();
        let told = move |method| *counted.lock().unwrap().entry(method).or_insert(0) += 1;
        let store = Arc::new(Faulty::telling(Arc::new(store), told));
        Self { world: World::over(store, clock, Settings::default()).await, calls }
    }

    async fn submit_many(&self, revisions: impl IntoIterator<Item = leasehold_core::revision::Revision>) -> Vec<RunId> {
        let revisions: Vec<_> = revisions.into_iter().collect();
        let mut runs = Vec::new();
        for some in revisions.chunks(AT_ONCE) {
            runs.extend(join_all(some.iter().map(|revision| self.world.submit(revision.clone()))).await);
        }
        runs
    }

    /// Waits until all these pulls wait, then forgets what was asked so far.
    async fn until_waiting(&self, pulls: &[JoinHandle<WorkerResult<Pulled>>]) {
        while self.world.plane.open_pulls().with_room().len() < pulls.len() {
            assert!(!pulls.iter().any(JoinHandle::is_finished), "a pull was answered before there was anything for it");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.calls.lock().unwrap().clear();
    }

    /// Cycles until `pull` is answered, at most `most`; what it got.
    async fn answered(&self, pull: JoinHandle<WorkerResult<Pulled>>, most: usize) -> Vec<RunId> {
        let (mut dispatcher, room) = (Dispatcher::default(), self.world.plane.open_pulls().with_room().len());
        for _ in 0..most {
            self.world.plane.dispatch_cycle(&mut dispatcher).await.unwrap();
            if self.world.plane.open_pulls().with_room().len() < room {
                let pulled = pull.await.unwrap().unwrap();
                return granted(&pulled).iter().map(|offer| offer.run).collect();
            }
        }
        panic!("not answered within {most} cycles");
    }

    /// How often the store was asked for lanes, and for more of their runs, and how many claims were tried.
    fn asked(&self) -> (usize, usize, usize) {
        let calls = self.calls.lock().unwrap();
        let of = |method| calls.get(method).copied().unwrap_or(0);
        (of("lanes"), of("heads"), of("claim"))
    }
}

async fn five_hundred_runs_that_nobody_can_take(scene: &Scene) {
    let nobody = Value::map([("labels", Value::map([("site", Value::text("moon"))]))]);
    let urgent = revision([("placement", Value::map([("require", nobody)])), ("priority", Value::Int(90))]);
    scene.submit_many((0..500).map(|_| urgent.clone())).await;
    let free = scene.world.submit(plain()).await;
    let agent = scene.world.agent("nas", 1).await;
    let mut pulls = vec![tokio::spawn(agent.pull(scene.world.asks(1), LONG))];
    scene.until_waiting(&pulls).await;
    assert_eq!(scene.answered(pulls.remove(0), 1).await, [free]);
    let (lanes, heads, claims) = scene.asked();
    assert!(lanes == 1 && heads <= 1 && claims == 1, "{lanes} pages, {heads} inside, {claims} claims");
}

async fn five_hundred_runs_whose_limit_is_full(scene: &Scene) {
    let limits = Value::map([("concurrency", Value::Int(1))]);
    let name = Value::text("report");
    let urgent = revision([("name", name), ("limits", limits), ("priority", Value::Int(90))]);
    let reports = scene.submit_many((0..500).map(|_| urgent.clone())).await;
    let holder = scene.world.agent("holder", 1).await;
    assert!(reports.contains(&holder.take().await.offer.run));
    let free = scene.world.submit(plain()).await;
    let agent = scene.world.agent("nas", 4).await;
    let mut pulls = vec![tokio::spawn(agent.pull(scene.world.asks(4), LONG))];
    scene.until_waiting(&pulls).await;
    assert_eq!(scene.answered(pulls.remove(0), 1).await, [free]);
    let (lanes, heads, claims) = scene.asked();
    assert!(lanes == 1 && heads <= 1 && claims == 1, "{lanes} pages, {heads} inside, {claims} claims");
}

async fn two_hundred_placements_that_nobody_meets(scene: &Scene) {
    scene.submit_many((0..200).map(|lane| labelled("nobody-has", &lane.to_string()))).await;
    let free = scene.world.submit(plain()).await;
    let agent = scene.world.agent("nas", 1).await;
    let mut pulls = vec![tokio::spawn(agent.pull(scene.world.asks(1), LONG))];
    scene.until_waiting(&pulls).await;
    let pages = 201_usize.div_ceil(DISPATCH_PAGE);
    assert_eq!(scene.answered(pulls.remove(0), pages.div_ceil(DISPATCH_PAGES)).await, [free]);
    let (lanes, heads, claims) = scene.asked();
    assert!(lanes <= pages && heads <= 1 && claims == 1, "{lanes} pages, {heads} inside, {claims} claims");
}

async fn five_hundred_workers_of_which_the_last_alone_fits(scene: &Scene) {
    let names: Vec<usize> = (0..500).collect();
    let mut agents = Vec::new();
    for some in names.chunks(AT_ONCE) {
        let each = some.iter().map(|number| async move {
            let site = BTreeMap::from([("site".to_owned(), format!("attic-{number}"))]);
            scene.world.agent_with(&format!("worker-{number:03}"), 1, site).await
        });
        agents.extend(join_all(each).await);
    }
    let mut pulls = Vec::new();
    for some in agents.chunks(AT_ONCE) {
        pulls.extend(some.iter().map(|agent| tokio::spawn(agent.pull(scene.world.asks(1), LONG))));
        scene.until_waiting(&pulls).await;
    }
    let run = scene.world.submit(labelled("site", "attic-499")).await;
    assert_eq!(scene.answered(pulls.pop().unwrap(), 1).await, [run]);
    let (lanes, heads, claims) = scene.asked();
    assert!(lanes == 1 && heads <= 1 && claims == 1, "{lanes} pages, {heads} inside, {claims} claims");
    assert_eq!(scene.world.plane.open_pulls().with_room().len(), 499, "nobody else was woken");
    for pull in pulls {
        pull.abort();
    }
}

/// A scene on SQLite, and the directory that it lies in.
async fn sqlite() -> (Scene, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(StoppedClock::new());
    let store = SqliteStore::open(directory.path().join("store.db"), Options::new(clock.clone())).unwrap();
    (Scene::over(store, clock).await, directory)
}

/// A scene on PostgreSQL, and the database that it has to itself.
async fn postgres() -> Option<(Scene, TestDatabase<'static>)> {
    let database = TestServer::shared_or_skip("lanes on PostgreSQL")?.database().unwrap();
    let clock = Arc::new(StoppedClock::new());
    let store = PostgresStore::open(&database.url(), PostgresOptions::new().timed_by(clock.clone())).await.unwrap();
    Some((Scene::over(store, clock).await, database))
}

macro_rules! on_both_databases {
    ($($case:ident)+) => {
        mod on_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let _alone = super::ONE_AT_A_TIME.lock().await;
                    let (scene, _directory) = super::sqlite().await;
                    super::$case(&scene).await;
                }
            )+
        }

        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let _alone = super::ONE_AT_A_TIME.lock().await;
                    let Some((scene, _database)) = super::postgres().await else { return };
                    super::$case(&scene).await;
                }
            )+
        }
    };
}

on_both_databases! {
    five_hundred_runs_that_nobody_can_take
    five_hundred_runs_whose_limit_is_full
    two_hundred_placements_that_nobody_meets
    five_hundred_workers_of_which_the_last_alone_fits
}
