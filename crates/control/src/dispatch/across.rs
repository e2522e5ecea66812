//! Several replicas: which of them takes a run, what that costs, and what it costs when their hints are lost.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select_all;
use futures_util::poll;
use leasehold_core::canonical::Value;
use leasehold_core::limits::{ANNOUNCE_EVERY, ANNOUNCED, ANNOUNCED_FOR, PLACEMENT_PREFERENCE};
use leasehold_core::revision::Revision;
use leasehold_core::time::Millis;
use leasehold_store::hint::Hint;
use tokio::time::Instant;

use crate::fixture::{Replicas, granted, plain, revision};

const LONG: Millis = Millis::from_secs(30);

/// Longer than it takes to get through the loops of a few replicas, and much shorter than any wait.
const AT_ONCE: Duration = Duration::from_millis(25);

pub(super) fn on_ssd() -> BTreeMap<String, String> {
    BTreeMap::from([("disk".to_owned(), "ssd".to_owned())])
}

/// Prefers a worker with a fast disk.
pub(super) fn fast() -> Revision {
    let prefer = Value::map([("label", Value::text("disk=ssd")), ("weight", Value::Int(10))]);
    revision([("placement", Value::map([("prefer", Value::List(vec![prefer]))]))])
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_to_the_best_worker_wherever_it_waits_and_was_submitted() {
    let replicas = Replicas::new(2).await;
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (roomy, quick) = (a.agent("a-roomy", 9).await, b.agent_with("z-fast", 1, on_ssd()).await);
    let mut roomy = pin!(tokio::spawn(roomy.pull(a.asks(4), LONG)));
    let quick = tokio::spawn(quick.pull(b.asks(1), LONG));
    a.until_it_knows_of(vec!["z-fast".to_owned()]).await;
    b.until_it_knows_of(vec!["a-roomy".to_owned()]).await;
    let began = Instant::now();
    let run = a.submit(fast()).await;
    let pulled = quick.await.unwrap().unwrap();
    assert_eq!((granted(&pulled)[0].run, granted(&pulled)[0].score), (run, 10));
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert!(poll!(roomy.as_mut()).is_pending());
    // The fast one is gone: the next is for the other, at once.
    a.until_it_knows_of(vec![]).await;
    let began = Instant::now();
    let next = b.submit(fast()).await;
    assert_eq!(granted(&roomy.await.unwrap().unwrap())[0].run, next);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert_eq!(replicas.claims(), 2, "one for each run");
    at_a.stop().await;
    at_b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_left_to_a_replica_that_died_waits_for_a_moment_and_the_next_run_not_at_all() {
    let replicas = Replicas::new(2).await;
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (plain_one, quick) = (a.agent("plain", 2).await, b.agent_with("fast", 1, on_ssd()).await);
    let gone = tokio::spawn(quick.pull(b.asks(1), LONG));
    a.until_it_knows_of(vec!["fast".to_owned()]).await;
    at_b.kill().await;
    for most in [PLACEMENT_PREFERENCE.to_std() + AT_ONCE, AT_ONCE] {
        let pull = tokio::spawn(plain_one.pull(a.asks(1), LONG));
        a.until_open(1).await;
        let began = Instant::now();
        let run = a.submit(fast()).await;
        assert_eq!(granted(&pull.await.unwrap().unwrap())[0].run, run);
        let took = began.elapsed();
        assert!(took <= most, "{took:?}");
        assert!(most == AT_ONCE || took >= PLACEMENT_PREFERENCE.to_std(), "it was left to the other: {took:?}");
    }
    gone.abort();
    at_a.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_not_heard_of_any_more_is_forgotten() {
    let replicas = Replicas::new(2).await;
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (plain_one, quick) = (a.agent("plain", 1).await, b.agent_with("fast", 1, on_ssd()).await);
    let gone = tokio::spawn(quick.pull(b.asks(1), LONG));
    a.until_it_knows_of(vec!["fast".to_owned()]).await;
    at_b.kill().await;
    let died = Instant::now();
    a.until_it_knows_of(vec![]).await;
    let silent = died.elapsed();
    assert!(silent <= ANNOUNCED_FOR.to_std() && silent >= (ANNOUNCED_FOR.minus(ANNOUNCE_EVERY)).to_std(), "{silent:?}");
    let pull = tokio::spawn(plain_one.pull(a.asks(1), LONG));
    a.until_open(1).await;
    let began = Instant::now();
    a.submit(fast()).await;
    pull.await.unwrap().unwrap();
    assert!(began.elapsed() < AT_ONCE);
    gone.abort();
    at_a.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_drains_says_so_and_nothing_is_left_to_it() {
    let replicas = Replicas::new(2).await;
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (plain_one, quick) = (a.agent("plain", 1).await, b.agent_with("fast", 1, on_ssd()).await);
    let answered = tokio::spawn(quick.pull(b.asks(1), LONG));
    a.until_it_knows_of(vec!["fast".to_owned()]).await;
    at_b.stop().await;
    assert!(granted(&answered.await.unwrap().unwrap()).is_empty());
    let pull = tokio::spawn(plain_one.pull(a.asks(1), LONG));
    a.until_open(1).await;
    let began = Instant::now();
    a.submit(fast()).await;
    pull.await.unwrap().unwrap();
    assert!(began.elapsed() < AT_ONCE);
    at_a.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_announcements_cost_the_preference_and_no_time() {
    // As with a replica of a version that announces nothing.
    let replicas = Replicas::new(2).await;
    replicas.bus.lose(|hint| matches!(hint, Hint::Waits(_)));
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (plain_one, quick) = (a.agent("plain", 1).await, b.agent_with("fast", 1, on_ssd()).await);
    let pulls = [tokio::spawn(plain_one.pull(a.asks(1), LONG)), tokio::spawn(quick.pull(b.asks(1), LONG))];
    a.until_open(1).await;
    b.until_open(1).await;
    let began = Instant::now();
    let run = a.submit(fast()).await;
    let (first, _, others) = select_all(pulls).await;
    assert_eq!(granted(&first.unwrap().unwrap())[0].run, run);
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(others.into_iter().filter(tokio::task::JoinHandle::is_finished).count(), 0, "one waiter was woken");
    at_a.stop().await;
    at_b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_hints_cost_at_most_one_polling_interval() {
    let replicas = Replicas::new(2).await;
    let [a, b] = &replicas.worlds[..] else { unreachable!() };
    let (at_a, at_b) = (a.start(), b.start());
    let (plain_one, quick) = (a.agent("plain", 1).await, b.agent_with("fast", 1, on_ssd()).await);
    let interval = b.plane.settings().dispatch_scan.to_std();

    // Nobody at the replica that it was submitted at: the other one looks by itself.
    let pull = tokio::spawn(quick.pull(b.asks(1), LONG));
    a.until_it_knows_of(vec!["fast".to_owned()]).await;
    replicas.bus.lose(|_| true);
    let began = Instant::now();
    let run = a.submit(fast()).await;
    assert_eq!(granted(&pull.await.unwrap().unwrap())[0].run, run);
    assert!(began.elapsed() <= interval + AT_ONCE, "{:?}", began.elapsed());

    // The best one waits elsewhere and is never told: then it is for whoever is here, after a moment.
    replicas.bus.lose(|hint| *hint == Hint::Dispatch);
    let pulls = [tokio::spawn(plain_one.pull(a.asks(1), LONG)), tokio::spawn(quick.pull(b.asks(1), LONG))];
    a.until_open(1).await;
    a.until_it_knows_of(vec!["fast".to_owned()]).await;
    let began = Instant::now();
    let run = a.submit(fast()).await;
    let (first, ..) = select_all(pulls).await;
    assert_eq!(granted(&first.unwrap().unwrap())[0].run, run);
    assert!(began.elapsed() <= interval + AT_ONCE, "{:?}", began.elapsed());
    at_a.stop().await;
    at_b.stop().await;
}

/// As many workers with one slot each at each of three replicas, all waiting and all announced.
async fn three_hundred(
    replicas: &Replicas,
) -> Vec<tokio::task::JoinHandle<crate::error::WorkerResult<crate::pull::Pulled>>> {
    let mut pulls = Vec::new();
    for number in 0..100 {
        for (at, world) in replicas.worlds.iter().enumerate() {
            let agent = world.agent(&format!("w{number:03}-{at}"), 1).await;
            pulls.push(tokio::spawn(agent.pull(world.asks(1), LONG)));
        }
    }
    for (at, world) in replicas.worlds.iter().enumerate() {
        world.until_open(100).await;
        let others = (0..ANNOUNCED).flat_map(|number| {
            let others = (0..3).filter(move |other| *other != at);
            others.map(move |other| format!("w{number:03}-{other}"))
        });
        world.until_it_knows_of(others.collect()).await;
    }
    pulls
}

#[tokio::test(start_paused = true)]
async fn one_new_run_wakes_one_waiter_of_three_hundred_and_costs_one_claim() {
    let replicas = Replicas::new(3).await;
    let mut running = Vec::new();
    for world in &replicas.worlds {
        running.push(world.start());
    }
    let mut pulls = three_hundred(&replicas).await;
    for number in 0..60 {
        // Faster than anybody repeats what was announced.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        let run = replicas.worlds[number % 3].submit(plain()).await;
        let (first, _, others) = select_all(pulls).await;
        assert_eq!(granted(&first.unwrap().unwrap())[0].run, run);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        pulls = others;
    }
    tokio::time::sleep(PLACEMENT_PREFERENCE.to_std() * 2).await;
    let woken = pulls.iter_mut().filter_map(futures_util::FutureExt::now_or_never).count();
    assert_eq!((woken, replicas.claims()), (0, 60), "nobody else was woken, and nobody claimed in vain");
    for running in running {
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_new_runs_at_once_are_shared_out_between_the_replicas() {
    let replicas = Replicas::new(3).await;
    let mut running = Vec::new();
    for world in &replicas.worlds {
        running.push(world.start());
    }
    let pulls = three_hundred(&replicas).await;
    let began = Instant::now();
    for number in 0..90 {
        replicas.worlds[number % 3].submit_elsewhere(plain()).await;
    }
    replicas.worlds[0].plane.hints().dispatch();
    let mut granted_runs = 0;
    let mut pulls = pulls;
    while granted_runs < 90 {
        let (first, _, others) = select_all(pulls).await;
        granted_runs += granted(&first.unwrap().unwrap()).len();
        pulls = others;
    }
    assert!(began.elapsed() < PLACEMENT_PREFERENCE.to_std() + AT_ONCE, "{:?}", began.elapsed());
    // Without a word between them it is three for each run.
    assert!(replicas.claims() <= 99, "each replica took its own share: {}", replicas.claims());
    for running in running {
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_with_nothing_to_do_hardly_talks_about_it() {
    let replicas = Replicas::new(3).await;
    let mut running = Vec::new();
    for world in &replicas.worlds {
        running.push(world.start());
    }
    let mut idle = tokio::task::JoinSet::new();
    for number in 0..200_u64 {
        let world = &replicas.worlds[usize::try_from(number % 3).unwrap()];
        let agent = world.agent(&format!("idle-{number:03}"), 1).await;
        let asks = world.asks(1);
        let pulls = (0..4).map(|_| agent.pull(asks.clone(), LONG)).collect::<Vec<_>>();
        idle.spawn(async move {
            // Spread over the interval, each away for a moment between two pulls.
            tokio::time::sleep(Duration::from_millis(number * 150)).await;
            for pull in pulls {
                pull.await.unwrap();
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(31)).await;
    replicas.bus.said();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let said = replicas.bus.said();
    let repeats = 3 * 60_000 / usize::try_from(ANNOUNCE_EVERY.get()).unwrap();
    assert!(said.iter().all(|hint| hint.starts_with("waits ")), "{said:?}");
    assert!(said.len() <= repeats * 3 / 2, "400 pulls ended and began: {}", said.len());
    assert_eq!(replicas.claims(), 0);
    for running in running {
        running.stop().await;
    }
}
