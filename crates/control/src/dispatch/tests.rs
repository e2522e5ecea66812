//! Who gets what, in which order, and what it costs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;

use futures_util::poll;
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::limits;
use leasehold_core::placement::{MismatchClass, Score};
use leasehold_core::run::RunState;
use leasehold_core::time::Millis;

use super::{Landed, Proposal};
use crate::fixture::{World, granted, labelled, plain, revision};
use crate::pull::AskAnswer;

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
    let stopped = dispatcher.cursor.clone().unwrap();

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
