//! What an open pull hears, and what becomes of one that is cut off.

use std::pin::pin;
use std::task::Poll;

use futures_util::poll;
use leasehold_core::cancel::StopDirective;
use leasehold_core::directive::Directive;
use leasehold_core::limits;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::time::Millis;
use leasehold_store::faulty::{Fault, Schedule};

use super::{AskAnswer, DIRECTIVE_REPEAT, FIRST_LOOK, Pull, Pulled};
use crate::dispatch::Dispatcher;
use crate::error::ServiceError;
use crate::fixture::{Taken, World, caller, granted, plain};

const LONG: Millis = Millis::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_pull_that_is_cut_off_loses_nothing_the_same_ask_gets_the_same_offer() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let run = world.submit(plain()).await;
    let ask = world.ask();
    let mut pull = Box::pin(agent.pull(vec![ask.clone()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    world.dispatch().await;
    assert_eq!(world.plane.run_view(run).await.unwrap().run.state, RunState::Dispatching, "claimed, not answered");
    drop(pull);
    assert_eq!(world.plane.open_pulls().len(), 0);

    let pulled = agent.pull(vec![ask, world.ask()], LONG).await.unwrap();
    assert_eq!(granted(&pulled).len(), 1);
    assert_eq!(granted(&pulled)[0].run, run);
    assert!(matches!(pulled.asks[1].1, AskAnswer::None(_)));
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_claim_that_nobody_asks_for_again_goes_to_another_worker() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let run = world.submit(plain()).await;
    let mut pull = Box::pin(agent.pull(vec![world.ask()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    world.dispatch().await;
    drop(pull);
    world.clock.advance(limits::CLAIM_WINDOW.plus(limits::LOST_GRACE));
    world.plane.recovery_round().await.unwrap();
    let other = world.agent("other", 1).await;
    let taken = other.take().await;
    assert_eq!(taken.offer.run, run);
    assert_eq!(taken.offer.fence.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_open_pull_of_a_full_worker_at_once_and_then_at_its_pace() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let run = world.submit(plain()).await;
    let taken = agent.take().await;
    agent.starting(&taken).await;
    agent.running(&taken).await;
    let mut pull = pin!(agent.pull(Vec::new(), LONG));
    assert!(poll!(pull.as_mut()).is_pending());

    world.plane.cancel(&caller(), run, Some("enough".to_owned())).await.unwrap();
    let Poll::Ready(pulled) = poll!(pull.as_mut()) else { panic!("the cancel did not wake the pull") };
    let directives = pulled.unwrap().directives;
    let stop = StopDirective { attempt: taken.offer.attempt, reason: StopIntentReason::Cancel };
    assert_eq!(directives, [Directive::Stop(stop.clone())]);

    let began = tokio::time::Instant::now();
    let again = agent.pull(Vec::new(), LONG).await.unwrap();
    assert_eq!(again.directives, directives, "repeated until the end is known");
    assert_eq!(began.elapsed(), DIRECTIVE_REPEAT.to_std(), "and not as fast as the network goes");
    agent.exited(&taken, 0, b"").await;
    let began = tokio::time::Instant::now();
    assert_eq!(agent.pull(Vec::new(), Millis::from_secs(7)).await.unwrap().directives, []);
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_pulls_is_in_the_next_answer_at_once() {
    let world = World::new().await;
    let agent = world.agent("nas", 2).await;
    let run = world.submit(plain()).await;
    let taken = agent.take().await;
    agent.starting(&taken).await;
    world.plane.cancel(&caller(), run, None).await.unwrap();
    let mut pull = pin!(agent.pull(vec![world.ask()], LONG));
    let Poll::Ready(pulled) = poll!(pull.as_mut()) else { panic!("the directive waited") };
    let stop = StopDirective { attempt: taken.offer.attempt, reason: StopIntentReason::Cancel };
    assert_eq!(pulled.unwrap().directives, [Directive::Stop(stop)]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_an_end_frees_is_used_by_the_pull_that_waits() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    world.submit(plain()).await;
    let taken = agent.take().await;
    agent.starting(&taken).await;
    let running = world.start();
    let next = world.submit(plain()).await;
    let mut pull = pin!(agent.pull(vec![world.ask()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    let began = tokio::time::Instant::now();
    agent.exited(&taken, 0, b"").await;
    assert_eq!(granted(&pull.await.unwrap())[0].run, next);
    assert!(began.elapsed().is_zero(), "by the hint, not by a scan");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_of_a_replaced_session_is_fenced_at_once() {
    let world = World::new().await;
    let mut agent = world.agent("nas", 1).await;
    let mut pull = pin!(agent.pull(vec![world.ask()], LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    agent.register().await;
    let Poll::Ready(Err(ServiceError::Refused(refusal))) = poll!(pull.as_mut()) else { panic!("not fenced") };
    assert_eq!(refusal.code, RefusalCode::SessionFenced);
}

#[tokio::test(start_paused = true)]
async fn a_later_pull_of_a_worker_takes_the_place_of_its_earlier_one() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let ask = world.ask();
    let mut earlier = pin!(agent.pull(vec![ask.clone()], LONG));
    assert!(poll!(earlier.as_mut()).is_pending());
    let mut later = pin!(agent.pull(vec![ask], LONG));
    assert!(poll!(later.as_mut()).is_pending());
    let Poll::Ready(Ok(pulled)) = poll!(earlier.as_mut()) else { panic!("the earlier pull still waits") };
    assert!(granted(&pulled).is_empty());
    let run = world.submit(plain()).await;
    world.dispatch().await;
    assert_eq!(granted(&later.await.unwrap())[0].run, run);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_answers_open_pulls_and_new_ones_at_once() {
    let world = World::new().await;
    let agents = [world.agent("a", 1).await, world.agent("b", 1).await];
    let running = world.start();
    let pulls = agents.each_ref().map(|agent| tokio::spawn(agent.pull(vec![world.ask()], LONG)));
    while world.plane.open_pulls().len() < 2 {
        tokio::task::yield_now().await;
    }
    let began = tokio::time::Instant::now();
    running.stop().await;
    for pull in pulls {
        assert!(granted(&pull.await.unwrap().unwrap()).is_empty());
    }
    assert!(granted(&agents[0].pull(vec![world.ask()], LONG).await.unwrap()).is_empty());
    assert!(began.elapsed().is_zero());
    assert_eq!(world.plane.open_pulls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn how_long_an_answer_was_held_is_told_by_the_boot_clock() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let mut pull = pin!(agent.pull(Vec::new(), Millis::from_secs(2)));
    assert!(poll!(pull.as_mut()).is_pending());
    world.clock.advance(Millis::new(1234));
    assert_eq!(pull.await.unwrap().held, Millis::new(1234));
}

#[tokio::test(start_paused = true)]
async fn too_many_asks_and_doubled_ones_are_refused_before_the_store() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let before = world.store.dump();
    let ask = world.ask();
    let cases = [
        (world.asks(limits::PULL_ASKS + 1), RefusalCode::LimitExceeded),
        (vec![ask.clone(), ask], RefusalCode::InvalidRequest),
    ];
    for (asks, code) in cases {
        let Err(ServiceError::Refused(refusal)) = agent.pull(asks, LONG).await else { panic!("not refused") };
        assert_eq!(refusal.code, code);
    }
    assert_eq!(world.store.dump(), before);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_claim_is_answered_as_unknown_and_recovered_by_the_same_ask() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let run = world.submit(plain()).await;
    // The look at the asks and the lanes succeed; the answer of the claim is lost.
    let replica = world.replica(Schedule::cycle([Fault::None, Fault::None, Fault::After]));
    let pull = Pull { session: agent.session, asks: world.asks(1), wait: LONG };
    let mut waiting = pin!(replica.pull(&agent.principal, pull.clone()));
    assert!(poll!(waiting.as_mut()).is_pending());
    replica.dispatch_cycle(&mut Dispatcher::default()).await.unwrap();
    assert!(matches!(waiting.await, Err(ServiceError::Unknown { .. })), "never `none`");
    assert_eq!(granted(&world.plane.pull(&agent.principal, pull).await.unwrap())[0].run, run);
}

#[tokio::test(start_paused = true)]
async fn a_pull_during_whose_claim_the_dispatcher_goes_away_is_answered_as_unknown() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let mut pull = pin!(agent.pull(world.asks(1), LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    let reserved = world.plane.open_pulls().with_room()[0].reserve().unwrap();
    drop(reserved);
    assert!(matches!(pull.await, Err(ServiceError::Unknown { .. })));
}

/// Asks, or says, the same until the store decides.
macro_rules! until_decided {
    ($call:expr) => {
        loop {
            match $call.await {
                Ok(answer) => break answer,
                Err(ServiceError::NotDone { .. } | ServiceError::Unknown { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
}

#[tokio::test(start_paused = true)]
async fn over_a_failing_store_every_run_ends_once_and_no_attempt_starts_twice() {
    for seed in 0..20 {
        let world = World::new().await;
        let agents = [world.agent("a", 2).await, world.agent("b", 3).await];
        let mut runs = Vec::new();
        for _ in 0..12 {
            runs.push(world.submit(plain()).await);
        }
        let replica = world.replica(Schedule::seeded(seed, 15, 15));
        let stop = tokio::sync::Notify::new();
        let work = async {
            let mut ended = Vec::new();
            while ended.len() < runs.len() {
                for agent in &agents {
                    let pull = Pull { session: agent.session, asks: world.asks(2), wait: Millis::from_secs(1) };
                    let answer: Pulled = until_decided!(replica.pull(&agent.principal, pull.clone()));
                    for (ask, offer) in pull.asks.iter().flat_map(|ask| {
                        granted(&answer)
                            .into_iter()
                            .filter(|offer| offer.offer == ask.offer)
                            .map(move |offer| (ask, offer))
                    }) {
                        let taken = Taken::of(ask, offer);
                        let lease = &taken.lease;
                        until_decided!(replica.starting(&agent.principal, agent.session, lease.clone()));
                        let end = agent.exit(&taken, 0, b"");
                        until_decided!(replica.end(&agent.principal, agent.session, end.clone()));
                        ended.push(taken.offer.run);
                    }
                }
            }
            stop.notify_one();
            ended
        };
        let (mut ended, ()) = tokio::join!(work, replica.run(stop.notified()));
        ended.sort();
        assert_eq!(ended, runs, "seed {seed}");
        for run in runs {
            let view = world.plane.run_view(run).await.unwrap();
            assert_eq!((view.run.state, view.attempts.len()), (RunState::Succeeded, 1), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_pull_that_does_not_wait_gets_the_work_there_is_and_knows_why_there_is_none() {
    let world = World::new().await;
    let running = world.start();
    let agent = world.agent("nas", 2).await;
    let run = world.submit(plain()).await;
    let pulled = agent.pull(vec![world.ask()], Millis::ZERO).await.unwrap();
    assert_eq!(granted(&pulled).into_iter().map(|offer| offer.run).collect::<Vec<_>>(), [run]);
    let pulled = agent.pull(vec![world.ask()], Millis::ZERO).await.unwrap();
    let AskAnswer::None(reason) = &pulled.asks[0].1 else { panic!("{pulled:?}") };
    assert!(!reason.truncated, "it was looked for: {reason:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_does_not_wait_is_answered_though_nobody_dispatches() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let began = tokio::time::Instant::now();
    let pulled = agent.pull(vec![world.ask()], Millis::ZERO).await.unwrap();
    assert!(matches!(&pulled.asks[0].1, AskAnswer::None(reason) if reason.truncated), "{pulled:?}");
    assert_eq!(began.elapsed(), FIRST_LOOK.to_std());
}
