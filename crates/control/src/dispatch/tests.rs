//! Who gets what, in which order, and what it costs.

mod databases;

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::str::FromStr as _;
use std::task::Poll;

use futures_util::poll;
use leasehold_core::attempt::EvidenceKind;
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::end::Ending;
use leasehold_core::id::ProjectName;
use leasehold_core::limits;
use leasehold_core::placement::{MismatchClass, Score};
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;
use leasehold_core::time::Millis;
use leasehold_store::port::Store as _;

use super::{Landed, Proposal};
use crate::admit::Submit;
use crate::end::End;
use crate::error::WorkerResult;
use crate::fixture::{Agent, World, caller, granted, labelled, plain, revision};
use crate::pull::{AskAnswer, Pulled};

const LONG: Millis = Millis::from_secs(30);

#[tokio::test(start_paused = true)]
async fn one_new_run_wakes_exactly_one_of_the_waiting_workers() {
    let world = World::new().await;
    let (a, b, c) = (world.agent("a", 1).await, world.agent("b", 1).await, world.agent("c", 1).await);
    let mut pulls = [a, b, c].map(|agent| Box::pin(agent.pull(vec![world.ask()], LONG)));
    for pull in &mut pulls {
        assert!(poll!(pull.as_mut()).is_pending());
    }
    let run = world.submit(plain()).await;
    world.dispatch().await;
    let mut answers = Vec::new();
    for pull in &mut pulls {
        if let Poll::Ready(pulled) = poll!(pull.as_mut()) {
            answers.push(pulled.unwrap());
        }
    }
    assert_eq!(answers.len(), 1);
    assert_eq!(granted(&answers[0])[0].run, run);
    assert_eq!(world.plane.open_pulls().with_room().len(), 2, "the others go on waiting");
}

#[tokio::test(start_paused = true)]
async fn heads_go_by_priority_then_in_the_order_they_came_across_lanes() {
    let world = World::new().await;
    let labels = BTreeMap::from([("site".to_owned(), "attic".to_owned())]);
    let agent = world.agent_with("nas", 8, labels).await;
    let first = world.submit(plain()).await;
    let second = world.submit(labelled("site", "attic")).await;
    let third = world.submit(plain()).await;
    let urgent = world.submit(revision([("priority", Value::Int(5))])).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(agent.take().await.offer.run);
    }
    assert_eq!(order, [urgent, first, second, third]);
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_answered_with_everything_a_cycle_got_for_it() {
    let world = World::new().await;
    let agent = world.agent("nas", 3).await;
    for _ in 0..5 {
        world.submit(plain()).await;
    }
    let mut pull = pin!(agent.pull(world.asks(5), LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    world.dispatch().await;
    let pulled = pull.await.unwrap();
    assert_eq!(granted(&pulled).len(), 3, "as many as it has slots");
    assert!(matches!(pulled.asks[4].1, AskAnswer::None(_)));
}

#[tokio::test(start_paused = true)]
async fn the_better_score_wins_over_the_freer_worker() {
    let world = World::new().await;
    let ssd = BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]);
    let (roomy, fast) = (world.agent("a-roomy", 9).await, world.agent_with("z-fast", 1, ssd).await);
    let prefer = Value::map([("label", Value::text("disk=ssd")), ("weight", Value::Int(10))]);
    let run = world.submit(revision([("placement", Value::map([("prefer", Value::List(vec![prefer]))]))])).await;
    let mut roomy = pin!(roomy.pull(world.asks(4), LONG));
    let mut fast = pin!(fast.pull(world.asks(1), LONG));
    assert!(poll!(roomy.as_mut()).is_pending() && poll!(fast.as_mut()).is_pending());
    world.dispatch().await;
    let pulled = fast.await.unwrap();
    assert_eq!((granted(&pulled)[0].run, granted(&pulled)[0].score), (run, 10));
    assert!(poll!(roomy.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_gave_a_run_back_is_passed_over_until_its_time() {
    let world = World::new().await;
    let agent = world.agent("nas", 4).await;
    let run = world.submit(plain()).await;
    let taken = agent.take().await;
    world.plane.release(&agent.principal, agent.session, taken.lease.clone(), ReleaseReason::DiskLow).await.unwrap();

    let mut pull = Box::pin(agent.pull(vec![world.ask()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    world.dispatch().await;
    assert!(poll!(pull.as_mut()).is_pending(), "not to the one that gave it back");
    let other = world.agent("other", 1).await;
    assert_eq!(other.take().await.offer.run, run);

    let next = world.submit(plain()).await;
    world.dispatch().await;
    assert_eq!(granted(&pull.await.unwrap())[0].run, next, "what it did not give back it gets");
}

#[tokio::test(start_paused = true)]
async fn a_released_run_comes_back_to_the_same_worker_after_the_wait() {
    let world = World::new().await;
    let agent = world.agent("nas", 4).await;
    let run = world.submit(plain()).await;
    let taken = agent.take().await;
    world.plane.release(&agent.principal, agent.session, taken.lease.clone(), ReleaseReason::DiskLow).await.unwrap();
    world.clock.advance(limits::RELEASE_BACKOFF);
    let again = agent.take().await;
    assert_eq!((again.offer.run, again.offer.attempt), (run, taken.offer.attempt));
    assert!(again.offer.fence > taken.offer.fence && again.offer.lease_generation > taken.offer.lease_generation);
}

#[tokio::test(start_paused = true)]
async fn five_hundred_blocked_lanes_delay_a_free_one_by_no_more_than_their_pages() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    for lane in 0..500 {
        world.submit(labelled("nobody-has", &lane.to_string())).await;
    }
    let free = world.submit(plain()).await;
    let mut pull = pin!(agent.pull(vec![world.ask()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    let mut dispatcher = super::Dispatcher::default();
    let most = 501_usize.div_ceil(limits::DISPATCH_PAGE).div_ceil(limits::DISPATCH_PAGES);
    let mut cycles = 0;
    let pulled = loop {
        world.plane.dispatch_cycle(&mut dispatcher).await.unwrap();
        cycles += 1;
        if let Poll::Ready(pulled) = poll!(pull.as_mut()) {
            break pulled.unwrap();
        }
        assert!(cycles <= most, "not found in one way round");
    };
    assert_eq!(granted(&pulled)[0].run, free);
}

#[tokio::test(start_paused = true)]
async fn blocked_lanes_alone_settle_and_the_answer_counts_them() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    for lane in 0..300 {
        world.submit(labelled("nobody-has", &lane.to_string())).await;
    }
    let mut pull = pin!(agent.pull(vec![world.ask()], Millis::from_secs(3)));
    assert!(poll!(pull.as_mut()).is_pending());
    let cycles = world.dispatch().await;
    assert_eq!(cycles, 301_usize.div_ceil(limits::DISPATCH_PAGE).div_ceil(limits::DISPATCH_PAGES));
    let pulled = pull.await.unwrap();
    let AskAnswer::None(reason) = &pulled.asks[0].1 else { panic!("{pulled:?}") };
    assert_eq!(reason.counts, BTreeMap::from([(MismatchClass::Label, 300)]));
    assert!(!reason.truncated);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_hint_was_lost_is_found_by_the_scan() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let running = world.start();
    let pull = tokio::spawn(agent.pull(vec![world.ask()], LONG));
    while world.plane.open_pulls().with_room().is_empty() {
        tokio::task::yield_now().await;
    }
    let began = tokio::time::Instant::now();
    let run = world.submit_elsewhere(plain()).await;
    let pulled = pull.await.unwrap().unwrap();
    assert_eq!(granted(&pulled)[0].run, run);
    assert!(began.elapsed() <= world.plane.settings().dispatch_scan.to_std());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_run_goes_out_once_over_the_running_loops() {
    let world = World::new().await;
    let running = world.start();
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(world.submit(plain()).await);
    }
    let agents = [world.agent("a", 3).await, world.agent("b", 5).await];
    let mut got = Vec::new();
    while got.len() < runs.len() {
        for agent in &agents {
            let asks = world.asks(3);
            let pulled = agent.pull(asks.clone(), Millis::from_secs(1)).await.unwrap();
            for offer in granted(&pulled) {
                let ask = asks.iter().find(|ask| ask.offer == offer.offer).unwrap();
                let taken = crate::fixture::Taken::of(ask, offer);
                agent.starting(&taken).await;
                agent.exited(&taken, 0, b"").await;
                got.push(taken.offer.run);
            }
        }
    }
    got.sort();
    assert_eq!(got, runs);
    for run in runs {
        assert_eq!(world.plane.run_view(run).await.unwrap().run.state, RunState::Succeeded);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_begins_where_an_abandoned_one_stopped_comes_round_to_what_lies_before() {
    let world = World::new().await;
    for lane in 0..500 {
        world.submit(labelled("nobody-has", &lane.to_string())).await;
    }
    let agent = world.agent("nas", 1).await;
    let mut dispatcher = super::Dispatcher::default();
    {
        let mut abandoned = pin!(agent.pull(vec![world.ask()], LONG));
        assert!(poll!(abandoned.as_mut()).is_pending());
        assert_eq!(world.plane.dispatch_cycle(&mut dispatcher).await.unwrap(), super::CycleEnd::Again);
    }
    assert_eq!(world.plane.dispatch_cycle(&mut dispatcher).await.unwrap(), super::CycleEnd::Idle);
    let stopped = dispatcher.progress.cursor.clone().unwrap();

    // A lane that the abandoned pass had gone past: its key is smaller.
    let mut before = None;
    for lane in 0.. {
        let revision = labelled("site", &format!("attic-{lane}"));
        if revision.placement().digest().to_string() < stopped.placement {
            before = Some((world.submit(revision).await, format!("attic-{lane}")));
            break;
        }
    }
    let (run, site) = before.unwrap();
    let other = world.agent_with("other", 1, BTreeMap::from([("site".to_owned(), site)])).await;
    let mut pull = pin!(other.pull(vec![world.ask()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    let mut cycles = 0;
    while world.plane.dispatch_cycle(&mut dispatcher).await.unwrap() == super::CycleEnd::Again {
        cycles += 1;
        assert!(cycles < 10, "the pass never ends");
    }
    let Poll::Ready(pulled) = poll!(pull.as_mut()) else { panic!("the lane before the cursor was not found") };
    assert_eq!(granted(&pulled.unwrap())[0].run, run);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_gave_back_does_not_hide_what_waits_behind_it() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    for _ in 0..6 {
        world.submit(plain()).await;
        let taken = agent.take().await;
        let given_back = ReleaseReason::PolicyRefused;
        world.plane.release(&agent.principal, agent.session, taken.lease.clone(), given_back).await.unwrap();
    }
    let behind = world.submit(plain()).await;
    assert_eq!(agent.take().await.offer.run, behind, "at once, not when the others are offered again");
}

#[tokio::test(start_paused = true)]
async fn why_a_worker_got_nothing_is_told_for_each_kind_of_waiting() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let wait = Millis::from_secs(1);
    let reasons = async || {
        let mut pull = pin!(agent.pull(vec![world.ask()], wait));
        assert!(poll!(pull.as_mut()).is_pending());
        world.dispatch().await;
        match pull.await.unwrap().asks.remove(0).1 {
            AskAnswer::None(reason) => (reason.counts.into_iter().collect::<Vec<_>>(), reason.truncated),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reasons().await, (vec![], false), "no run waits");
    world.submit(plain()).await;
    let taken = agent.take().await;
    assert_eq!(reasons().await, (vec![(MismatchClass::NoFreeSlot, 1)], false));
    world.plane.release(&agent.principal, agent.session, taken.lease.clone(), ReleaseReason::DiskLow).await.unwrap();
    world.submit(labelled("site", "moon")).await;
    let both = vec![(MismatchClass::Label, 1), (MismatchClass::RefusedByWorker, 1)];
    assert_eq!(reasons().await, (both, false));
    world.plane.drain(&agent.principal, agent.session, agent.version().await).await.unwrap();
    assert_eq!(reasons().await, (vec![(MismatchClass::Draining, 1)], false));
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_for_a_pull_that_lost_its_place_reaches_the_pull_that_took_it() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let run = world.submit(plain()).await;
    let ask = world.ask();
    let wait = Millis::from_secs(30);
    let mut earlier = Box::pin(agent.pull(vec![ask.clone()], wait));
    assert!(poll!(earlier.as_mut()).is_pending());
    // A claim is on its way when the worker asks again, over another connection.
    let reserved = world.plane.open_pulls().with_room()[0].reserve().unwrap();
    let mut later = Box::pin(agent.pull(vec![ask], wait));
    assert!(poll!(later.as_mut()).is_pending());
    drop(earlier);
    let began = tokio::time::Instant::now();
    let proposal = Proposal { reserved, run, score: Score::new(0) };
    assert_eq!(world.plane.claim_one(proposal).await.unwrap(), Landed::Granted);
    assert_eq!(granted(&later.await.unwrap())[0].run, run);
    assert_eq!(began.elapsed(), std::time::Duration::ZERO, "at once, not when it looks again by itself");
}

fn limited(concurrency: i64, priority: i64) -> Revision {
    let limits = Value::map([("concurrency", Value::Int(concurrency))]);
    revision([("limits", limits), ("priority", Value::Int(priority))])
}

/// Runs cycles until the pull is answered, or panics after `most` of them.
async fn answered(world: &World, pull: Pin<&mut impl Future<Output = WorkerResult<Pulled>>>, most: usize) -> Pulled {
    let mut pull = pull;
    assert!(poll!(pull.as_mut()).is_pending());
    let mut dispatcher = super::Dispatcher::default();
    for _ in 0..most {
        world.plane.dispatch_cycle(&mut dispatcher).await.unwrap();
        if let Poll::Ready(pulled) = poll!(pull.as_mut()) {
            return pulled.unwrap();
        }
    }
    panic!("not answered within {most} cycles");
}

#[tokio::test(start_paused = true)]
async fn a_limited_queue_of_high_priority_delays_no_free_run() {
    let world = World::new().await;
    let agent = world.agent("nas", 4).await;
    for _ in 0..500 {
        world.submit_of("report", limited(1, 90)).await;
    }
    let free = world.submit(revision([("priority", Value::Int(10))])).await;
    // The queue has one place: its first run and the free one go out in the same cycle.
    let pulled = answered(&world, pin!(agent.pull(world.asks(4), LONG)), 1).await;
    let offers = granted(&pulled);
    assert_eq!((offers.len(), offers[0].run == free, offers[1].run), (2, false, free));

    // The place is held: the next free run goes out at once.
    let next = world.submit(revision([("priority", Value::Int(10))])).await;
    let pulled = answered(&world, pin!(agent.pull(world.asks(2), LONG)), 1).await;
    assert_eq!(granted(&pulled).iter().map(|offer| offer.run).collect::<Vec<_>>(), [next]);
    let AskAnswer::None(reason) = &pulled.asks[1].1 else { panic!("{pulled:?}") };
    assert_eq!(reason.counts, BTreeMap::from([(MismatchClass::Limit, 1)]), "one lane, one row");
    world.submit(labelled("site", "moon")).await;
    answered(&world, pin!(agent.pull(world.asks(1), Millis::ZERO)), 2).await;
    let told = world.plane.metrics().await;
    for series in ["leasehold_lanes_blocked{by=\"limit\"} 1", "leasehold_lanes_blocked{by=\"placement\"} 1"] {
        assert!(told.contains(series), "{series}: {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn five_hundred_runs_that_nobody_can_take_are_one_row() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    for _ in 0..500 {
        let labels = Value::map([("labels", Value::map([("site", Value::text("moon"))]))]);
        world.submit(revision([("placement", Value::map([("require", labels)])), ("priority", Value::Int(90))])).await;
    }
    let free = world.submit(plain()).await;
    let pulled = answered(&world, pin!(agent.pull(world.asks(1), LONG)), 1).await;
    assert_eq!(granted(&pulled)[0].run, free);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_placements_nobody_meets_delay_a_free_run_by_their_pages() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    for lane in 0..200 {
        world.submit(labelled("nobody-has", &lane.to_string())).await;
    }
    let free = world.submit(plain()).await;
    let most = 201_usize.div_ceil(limits::DISPATCH_PAGE).div_ceil(limits::DISPATCH_PAGES);
    let pulled = answered(&world, pin!(agent.pull(world.asks(1), LONG)), most).await;
    assert_eq!(granted(&pulled)[0].run, free);
}

#[tokio::test(start_paused = true)]
async fn of_five_hundred_workers_the_only_one_that_fits_gets_the_run() {
    let world = World::new().await;
    let mut pulls = Vec::new();
    for number in 0..500 {
        let site = BTreeMap::from([("site".to_owned(), format!("attic-{number}"))]);
        let agent = world.agent_with(&format!("worker-{number:03}"), 1, site).await;
        let mut pull = Box::pin(agent.pull(vec![world.ask()], LONG));
        assert!(poll!(pull.as_mut()).is_pending());
        pulls.push(pull);
    }
    let run = world.submit(labelled("site", "attic-499")).await;
    let mut dispatcher = super::Dispatcher::default();
    world.plane.dispatch_cycle(&mut dispatcher).await.unwrap();
    let Poll::Ready(pulled) = poll!(pulls[499].as_mut()) else { panic!("the last one was not asked") };
    assert_eq!(granted(&pulled.unwrap())[0].run, run);
    assert_eq!(world.plane.open_pulls().with_room().len(), 499, "nobody else was woken");
}

#[tokio::test(start_paused = true)]
async fn a_full_project_delays_no_other_project() {
    let world = World::new().await;
    let agent = world.agent("nas", 4).await;
    let lab = ProjectName::from_str("lab").unwrap();
    world.plane.create_project(&caller(), lab.clone(), Some(1), None).await.unwrap();
    let in_lab = |revision| Submit {
        project: lab.clone(),
        task: None,
        revision,
        parameters: BTreeMap::new(),
        idempotency_key: None,
    };
    for number in 0..120 {
        // As many lanes, which all can be taken.
        let name = Value::map([("worker_ids", Value::texts(["nas".to_owned(), format!("other-{number}")]))]);
        let placement = Value::map([("require", name)]);
        let submit = in_lab(revision([("placement", placement), ("priority", Value::Int(90))]));
        world.plane.admit(&caller(), submit).await.unwrap();
    }
    let free = world.submit(plain()).await;
    let pulled = answered(&world, pin!(agent.pull(world.asks(4), LONG)), 1).await;
    let offers = granted(&pulled);
    assert_eq!(
        (offers.len(), offers[0].project.clone(), offers[1].run),
        (2, lab, free),
        "one place, over all its lanes"
    );
    assert_eq!(world.store.statistics().await.unwrap().runs[&RunState::Pending], 119);
}

#[tokio::test(start_paused = true)]
async fn several_lanes_share_the_places_of_their_task() {
    let world = World::new().await;
    let labels = BTreeMap::from([("site".to_owned(), "attic".to_owned())]);
    let agent = world.agent_with("nas", 8, labels).await;
    let here = || {
        let labels = Value::map([("labels", Value::map([("site", Value::text("attic"))]))]);
        let limits = Value::map([("concurrency", Value::Int(3))]);
        revision([("placement", Value::map([("require", labels)])), ("limits", limits)])
    };
    let mut order = Vec::new();
    for _ in 0..2 {
        order.push(world.submit_of("report", limited(3, 0)).await);
        order.push(world.submit_of("report", here()).await);
    }
    let pulled = answered(&world, pin!(agent.pull(world.asks(8), LONG)), 1).await;
    assert_eq!(granted(&pulled).iter().map(|offer| offer.run).collect::<Vec<_>>(), order[..3]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_holds_the_place_goes_before_those_that_wait_for_it() {
    let world = World::new().await;
    let agent = world.agent("nas", 4).await;
    let held = world.submit_of("report", limited(1, 0)).await;
    let taken = agent.take().await;
    agent.starting(&taken).await;
    let may_live = Ending::Lost { evidence: EvidenceKind::LauncherKilledMayLive };
    let end = End { ending: may_live, callback: None, running: None, log: None, ..agent.exit(&taken, 0, b"") };
    world.plane.end(&agent.principal, agent.session, end).await.unwrap();
    for _ in 0..100 {
        world.submit_of("report", limited(1, 90)).await;
    }
    // A person wants it tried again: the place that all others wait for is its own.
    let said = crate::resolve::Said { verb: Verb::Retry, why: None, attempt: None };
    world.plane.resolve(&caller(), held, said).await.unwrap();
    world.plane.recovery_round().await.unwrap();
    let pulled = answered(&world, pin!(agent.pull(world.asks(4), LONG)), 1).await;
    assert_eq!(granted(&pulled).iter().map(|offer| offer.run).collect::<Vec<_>>(), [held]);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_free_again_is_given_to_whoever_waits_at_once() {
    let world = World::new().await;
    let running = world.start();
    let (nas, other) = (world.agent("nas", 1).await, world.agent("other", 1).await);
    world.submit_of("report", limited(1, 0)).await;
    let ask = world.ask();
    let pulled = nas.pull(vec![ask.clone()], LONG).await.unwrap();
    let taken = crate::fixture::Taken::of(&ask, granted(&pulled).remove(0));
    nas.starting(&taken).await;
    let next = world.submit_of("report", limited(1, 0)).await;
    let pull = tokio::spawn(other.pull(vec![world.ask()], LONG));
    while world.plane.open_pulls().len() == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!pull.is_finished(), "the place is held");
    let began = tokio::time::Instant::now();
    nas.exited(&taken, 0, b"").await;
    assert_eq!(granted(&pull.await.unwrap().unwrap())[0].run, next);
    assert!(began.elapsed() < std::time::Duration::from_millis(100), "{:?}", began.elapsed());
    running.stop().await;
}

/// Has `agent` take and give back `count` runs.
async fn given_back(world: &World, agent: &Agent<'_>, count: usize) {
    for _ in 0..count {
        world.submit(plain()).await;
    }
    let mut left = count;
    while left > 0 {
        let asks = world.asks(left.min(limits::PULL_ASKS));
        let before = world.plane.open_pulls().len();
        let pull = tokio::spawn(agent.pull(asks.clone(), LONG));
        while world.plane.open_pulls().len() == before && !pull.is_finished() {
            tokio::task::yield_now().await;
        }
        world.dispatch().await;
        let offers = granted(&pull.await.unwrap().unwrap());
        for offer in offers {
            let ask = asks.iter().find(|ask| ask.offer == offer.offer).unwrap();
            let lease = crate::fixture::Taken::of(ask, offer).lease;
            let reason = ReleaseReason::PolicyRefused;
            world.plane.release(&agent.principal, agent.session, lease, reason).await.unwrap();
            left -= 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_runs_that_were_given_back_hide_nothing() {
    let world = World::new().await;
    let agent = world.agent("nas", 16).await;
    given_back(&world, &agent, 150).await;
    let behind = world.submit(plain()).await;
    let pulled = answered(&world, pin!(agent.pull(world.asks(1), LONG)), 1).await;
    assert_eq!(granted(&pulled)[0].run, behind, "at once, not when the others are offered again");
}

#[tokio::test(start_paused = true)]
async fn what_a_cycle_cannot_read_of_a_lane_the_next_one_reads() {
    let world = World::new().await;
    let agent = world.agent("nas", 16).await;
    given_back(&world, &agent, 150).await;
    let other = world.submit(labelled("site", "moon")).await;
    let behind = world.submit(plain()).await;
    let mut pull = pin!(agent.pull(world.asks(1), LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    let mut dispatcher = super::Dispatcher { pages_inside: 1, ..super::Dispatcher::default() };
    let mut cycles = 0;
    let pulled = loop {
        let end = world.plane.dispatch_cycle(&mut dispatcher).await.unwrap();
        cycles += 1;
        if let Poll::Ready(pulled) = poll!(pull.as_mut()) {
            break pulled.unwrap();
        }
        assert_eq!(end, super::CycleEnd::Again, "an exhausted budget is no end of the pass");
    };
    assert_eq!((granted(&pulled)[0].run, cycles), (behind, 4), "150 rows behind the head, by 1, 64 and 64");
    assert_ne!(other, behind);

    // Nothing is left for it: the pass ends, and counts each lane once.
    let mut pull = pin!(agent.pull(world.asks(1), Millis::from_secs(3)));
    assert!(poll!(pull.as_mut()).is_pending());
    while world.plane.dispatch_cycle(&mut dispatcher).await.unwrap() == super::CycleEnd::Again {
        cycles += 1;
        assert!(cycles < 20, "the pass never ends");
    }
    let AskAnswer::None(reason) = &pull.await.unwrap().asks[0].1 else { panic!("nothing was left") };
    let both = BTreeMap::from([(MismatchClass::Label, 1), (MismatchClass::RefusedByWorker, 1)]);
    assert_eq!((&reason.counts, reason.truncated), (&both, false));
}
