//! Replicas on PostgreSQL: real connections, real hints, real time. Counts and generous bounds only; how quick it is the bench
//! says. Without PostgreSQL these tests skip aloud; in CI they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::limits::PLACEMENT_PREFERENCE;
use leasehold_core::registration::Cadence;
use leasehold_core::time::Millis;
use leasehold_sql::postgres::{PostgresOptions, PostgresStore};
use leasehold_sql::test_server::{TestDatabase, TestServer};
use leasehold_store::port::Store as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::across::{fast, on_ssd};
use crate::fixture::{StoppedClock, World, counting, granted, plain};
use crate::plane::Settings;

const LONG: Millis = Millis::from_secs(30);

/// More than anything takes here on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Control planes on one database, each with connections of its own.
struct Replicas {
    worlds: Vec<World<PostgresStore>>,
    claims: Arc<AtomicUsize>,
    // Dropped last: it ends the connections.
    database: TestDatabase<'static>,
}

impl Replicas {
    async fn new(count: usize) -> Option<Self> {
        let server = TestServer::shared_or_skip("replicas on PostgreSQL")?;
        let database = server.database().unwrap();
        let (worlds, claims) = replicas(&database.url(), count, Settings::default()).await;
        Some(Self { worlds, claims, database })
    }

    fn claims(&self) -> usize {
        self.claims.load(Ordering::Relaxed)
    }
}

async fn replicas(url: &str, count: usize, settings: Settings) -> (Vec<World<PostgresStore>>, Arc<AtomicUsize>) {
    let open = async || {
        let options = PostgresOptions::new().with_connections(6);
        Arc::new(PostgresStore::open(url, options).await.unwrap())
    };
    let first = World::over(open().await, Arc::new(StoppedClock::running()), settings).await;
    let (mut worlds, claims) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..count {
        let store = open().await;
        let port = counting(store.clone(), &claims).hinting(store.hints().unwrap());
        worlds.push(first.beside(store, Arc::new(port)));
    }
    (worlds, claims)
}

/// One claim for each run, while each went out within the moment for which it is left to the best: a machine that is too busy
/// for that says nothing. Replicas that do not know of each other try three.
fn judge_claims(claims: usize, runs: usize, in_its_moment: bool) {
    if in_its_moment {
        assert_eq!(claims, runs, "somebody claimed in vain");
    }
    assert!((runs..=runs * 3).contains(&claims), "{claims} claims for {runs} runs");
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes much too long")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_to_the_best_worker_wherever_it_waits_and_what_is_left_to_the_dead_is_taken_back() {
    let Some(replicas) = Replicas::new(2).await else { return };
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (roomy, quick) = (a.agent("a-roomy", 9).await, b.agent_with("z-fast", 1, on_ssd()).await);
    let roomy_pull = tokio::spawn(roomy.pull(a.asks(4), LONG));
    let quick_pull = tokio::spawn(quick.pull(b.asks(1), LONG));
    in_time(a.until_it_knows_of(vec!["z-fast".to_owned()])).await;
    in_time(b.until_it_knows_of(vec!["a-roomy".to_owned()])).await;
    let run = a.submit(fast()).await;
    let pulled = in_time(quick_pull).await.unwrap().unwrap();
    assert_eq!((granted(&pulled)[0].run, granted(&pulled)[0].score), (run, 10));
    assert_eq!(replicas.claims(), 1);
    assert!(!roomy_pull.is_finished());

    // Another fast one begins to wait there; then its replica dies without a word.
    let second = b.agent_with("y-fast", 1, on_ssd()).await;
    let lost = tokio::spawn(second.pull(b.asks(1), LONG));
    in_time(a.until_it_knows_of(vec!["y-fast".to_owned()])).await;
    at_b.kill().await;
    let began = Instant::now();
    let run = a.submit(fast()).await;
    let pulled = in_time(roomy_pull).await.unwrap().unwrap();
    assert_eq!(granted(&pulled)[0].run, run);
    assert!(began.elapsed() >= PLACEMENT_PREFERENCE.to_std(), "it was left to the other for its moment");
    assert!(began.elapsed() < a.plane.settings().dispatch_scan.to_std() + Duration::from_secs(5));
    lost.abort();
    at_a.stop().await;
}

/// Whoever listens is cut off, and cut off again as soon as it listens anew: no hint arrives.
async fn in_the_dark(database: &TestDatabase<'static>) {
    loop {
        database.cut_off_who_listens().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_that_are_lost_cost_at_most_one_polling_interval() {
    let Some(replicas) = Replicas::new(2).await else { return };
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let quick = b.agent_with("z-fast", 1, on_ssd()).await;
    let pull = tokio::spawn(quick.pull(b.asks(1), LONG));
    in_time(a.until_it_knows_of(vec!["z-fast".to_owned()])).await;

    let served = async {
        // Announced before, and never told of the run: its replica finds it by itself.
        let began = Instant::now();
        let run = a.submit(fast()).await;
        let pulled = in_time(pull).await.unwrap().unwrap();
        assert_eq!(granted(&pulled)[0].run, run);
        // One interval, and what a busy machine takes; its pull would have waited for thirty seconds.
        assert!(began.elapsed() < b.plane.settings().dispatch_scan.to_std() + Duration::from_secs(5));

        // Never announced: nothing is left to it, and whoever waits here is served at once.
        let (late, here) = (b.agent_with("y-fast", 1, on_ssd()).await, a.agent("a-plain", 1).await);
        let pulls = [tokio::spawn(late.pull(b.asks(1), LONG)), tokio::spawn(here.pull(a.asks(1), LONG))];
        in_time(a.until_open(1)).await;
        in_time(b.until_open(1)).await;
        let run = a.submit(fast()).await;
        let (first, _, others) = in_time(select_all(pulls)).await;
        assert_eq!(granted(&first.unwrap().unwrap())[0].run, run);
        assert!(!others[0].is_finished(), "it went to one of them");
        others[0].abort();
    };
    tokio::select! {
        () = served => {}
        () = in_the_dark(&replicas.database) => {}
    }
    at_a.stop().await;
    at_b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_new_run_wakes_one_waiter_of_three_replicas() {
    const RUNS: usize = 12;
    let Some(replicas) = Replicas::new(3).await else { return };
    let mut running = Vec::new();
    let mut pulls = Vec::new();
    for (at, world) in replicas.worlds.iter().enumerate() {
        running.push(world.start());
        for number in 0..8 {
            let agent = world.agent(&format!("w{number}-{at}"), 1).await;
            pulls.push(tokio::spawn(agent.pull(world.asks(1), LONG)));
        }
    }
    for (at, world) in replicas.worlds.iter().enumerate() {
        let others = (0..8)
            .flat_map(|number| (0..3).filter(|other| *other != at).map(move |other| format!("w{number}-{other}")));
        in_time(world.until_it_knows_of(others.collect())).await;
    }
    let mut in_its_moment = true;
    for number in 0..RUNS {
        let began = Instant::now();
        let run = replicas.worlds[number % 3].submit(plain()).await;
        let (first, _, others) = in_time(select_all(pulls)).await;
        assert_eq!(granted(&first.unwrap().unwrap())[0].run, run);
        pulls = others;
        in_its_moment &= began.elapsed() < PLACEMENT_PREFERENCE.to_std();
    }
    // Those who were not woken still wait, at the replicas that count them.
    let waiting: usize = replicas.worlds.iter().map(|world| world.plane.open_pulls().with_room().len()).sum();
    assert_eq!((waiting, pulls.iter().filter(|pull| pull.is_finished()).count()), (24 - RUNS, 0));
    judge_claims(replicas.claims(), RUNS, in_its_moment);
    for running in running {
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_idle_workers_write_nothing_but_their_beats_and_a_run_wakes_one_of_them() {
    const WORKERS: usize = 200;
    const RUNS: usize = 8;
    // A server of its own, since its writes are counted.
    if !TestServer::is_there_or_skip("an idle fleet on PostgreSQL") {
        return;
    }
    let server = TestServer::start().unwrap();
    let cadence = Cadence::every(Millis::from_secs(5 * 60)).unwrap();
    let settings = Settings { cadence, ..Settings::default() };
    let (worlds, claims) = replicas(&server.make_database("idle").unwrap(), 3, settings).await;
    let mut running = Vec::new();
    for world in &worlds {
        running.push(world.start());
    }
    let mut agents = Vec::new();
    for number in 0..WORKERS {
        agents.push(worlds[number % 3].agent(&format!("idle-{number:03}"), 1).await);
    }
    let mut fleet = JoinSet::new();
    for (number, agent) in agents.iter().enumerate() {
        let asks = worlds[number % 3].asks(1);
        let pulls: Vec<_> = (0..20).map(|_| agent.pull(asks.clone(), LONG)).collect();
        // As a worker does: it asks again when it got nothing.
        fleet.spawn(async move {
            for pull in pulls {
                if let Some(offer) = granted(&pull.await.unwrap()).first() {
                    return offer.run;
                }
            }
            panic!("it was asked for ten minutes")
        });
    }
    for (at, world) in worlds.iter().enumerate() {
        in_time(world.until_open((at..WORKERS).step_by(3).count())).await;
    }
    // Time enough for every pull to look at its session again.
    let looked_again = worlds[0].plane.settings().pull_refresh.to_std() + Duration::from_secs(1);
    let quiet = server.writes().unwrap();
    tokio::time::sleep(looked_again).await;
    let idle = server.writes().unwrap() - quiet;
    // Announcements, which are as many for any number of workers; and what the server does by itself.
    assert!(idle < 40, "{idle} transactions wrote something for {WORKERS} workers that only wait");
    let quiet = server.writes().unwrap();
    futures_util::future::join_all(agents.iter().map(crate::fixture::Agent::beat)).await;
    let beats = server.writes().unwrap() - quiet;
    assert!(beats < 40 + u64::try_from(WORKERS).unwrap(), "{beats} transactions wrote something for {WORKERS} beats");
    assert_eq!(claims.load(Ordering::Relaxed), 0);

    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let mut in_its_moment = true;
    for number in 0..RUNS {
        ticks.tick().await;
        let began = Instant::now();
        let run = worlds[number % 3].submit(plain()).await;
        assert_eq!(in_time(fleet.join_next()).await.unwrap().unwrap(), run);
        in_its_moment &= began.elapsed() < PLACEMENT_PREFERENCE.to_std();
    }
    judge_claims(claims.load(Ordering::Relaxed), RUNS, in_its_moment);
    assert_eq!((fleet.len(), fleet.try_join_next().is_none()), (WORKERS - RUNS, true), "nobody else was woken");
    fleet.shutdown().await;
    for running in running {
        running.stop().await;
    }
}
