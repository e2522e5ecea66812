//! A follower sees every byte once and knows when there will be no more.

use std::pin::pin;
use std::task::Poll;

use futures_util::poll;
use leasehold_core::limits;
use leasehold_core::run::RunState;
use leasehold_core::time::{Clock as _, Millis};

use super::LogPiece;
use crate::error::{Denied, ServiceError};
use crate::fixture::{Agent, Taken, World, caller, plain};

async fn started(world: &World, agent: &Agent<'_>) -> Taken {
    world.submit(plain()).await;
    let taken = agent.take().await;
    agent.starting(&taken).await;
    agent.running(&taken).await;
    taken
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_each_piece_when_it_arrives_and_ends_with_the_pinned_length() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    let mut follower = world.plane.follow_log(taken.offer.run, taken.offer.attempt, 0).await.unwrap();
    {
        let mut next = pin!(follower.next());
        assert!(poll!(next.as_mut()).is_pending());
        agent.log(&taken, 0, b"first ").await;
        let Poll::Ready(piece) = poll!(next.as_mut()) else { panic!("the piece did not wake the follower") };
        assert_eq!(piece.unwrap(), Some(LogPiece { offset: 0, bytes: b"first ".to_vec() }));
    }
    // The end arrives before the rest of the log does.
    agent.exited(&taken, 0, b"first second").await;
    {
        let mut next = pin!(follower.next());
        assert!(poll!(next.as_mut()).is_pending(), "the pinned length is not here yet");
        agent.log(&taken, 6, b"second").await;
        let Poll::Ready(piece) = poll!(next.as_mut()) else { panic!("the piece did not wake the follower") };
        assert_eq!(piece.unwrap(), Some(LogPiece { offset: 6, bytes: b"second".to_vec() }));
    }
    assert_eq!(follower.next().await.unwrap(), None);
    assert_eq!(follower.offset(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_follower_ends_when_contact_is_over_and_the_rest_will_not_come() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    agent.log(&taken, 0, b"half").await;
    agent.exited(&taken, 0, b"half of it").await;
    let mut follower = world.plane.follow_log(taken.offer.run, taken.offer.attempt, 0).await.unwrap();
    assert_eq!(follower.next().await.unwrap().unwrap().bytes, b"half");
    let mut next = pin!(follower.next());
    assert!(poll!(next.as_mut()).is_pending(), "its worker is live and may ship the rest");
    world.clock.advance(limits::SESSION_LEASE);
    assert_eq!(next.await.unwrap(), None);
}

/// Time passes, and the agent beats.
async fn live_for(world: &World, agent: &Agent<'_>, span: Millis) {
    for _ in 0..2 {
        world.clock.advance(span.part(2));
        agent.beat().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_does_not_wait_for_ever_for_what_a_live_worker_does_not_bring() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    let mut follower = world.plane.follow_log(taken.offer.run, taken.offer.attempt, 0).await.unwrap();
    agent.exited(&taken, 0, b"one, two, three").await;
    for (offset, piece) in [(0, &b"one, "[..]), (5, b"two, ")] {
        let mut next = pin!(follower.next());
        assert!(poll!(next.as_mut()).is_pending(), "its worker is live and may ship the rest");
        // Each piece begins the wait anew.
        live_for(&world, &agent, limits::LOG_FOLLOW_PATIENCE.minus(Millis::from_secs(1))).await;
        agent.log(&taken, offset, piece).await;
        assert_eq!(next.await.unwrap().unwrap().bytes, piece);
    }
    let mut next = pin!(follower.next());
    assert!(poll!(next.as_mut()).is_pending());
    live_for(&world, &agent, limits::LOG_FOLLOW_PATIENCE).await;
    assert_eq!(next.await.unwrap(), None, "the run has ended, and its reader may know it");
}

#[tokio::test(start_paused = true)]
async fn a_follower_ends_with_a_lost_attempt_and_with_one_that_never_started() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    agent.log(&taken, 0, b"last words").await;
    world.clock.advance(taken.offer.lease.plus(limits::LOST_GRACE));
    world.plane.recovery_round().await.unwrap();
    let mut follower = world.plane.follow_log(taken.offer.run, taken.offer.attempt, 5).await.unwrap();
    assert_eq!(follower.next().await.unwrap(), Some(LogPiece { offset: 5, bytes: b"words".to_vec() }));
    assert_eq!(follower.next().await.unwrap(), None);

    let run = world.submit(plain()).await;
    let attempt = world.plane.run_view(run).await.unwrap().attempts[0].id;
    let mut follower = world.plane.follow_log(run, attempt, 0).await.unwrap();
    let mut next = pin!(follower.next());
    assert!(poll!(next.as_mut()).is_pending());
    world.plane.cancel(&caller(), run, None).await.unwrap();
    let Poll::Ready(end) = poll!(next.as_mut()) else { panic!("the cancel did not wake the follower") };
    assert_eq!(end.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_follower_waits_for_the_rest_of_a_lost_attempt_whose_receipt_came_late() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    // It is in contact, and says nothing of the lease.
    let end = world.clock.boot().plus(taken.offer.lease).plus(limits::LOST_GRACE);
    while world.clock.boot() < end {
        live_for(&world, &agent, limits::SESSION_LEASE).await;
    }
    world.plane.recovery_round().await.unwrap();
    assert_eq!(world.plane.run_view(taken.offer.run).await.unwrap().run.state, RunState::Lost);
    agent.exited(&taken, 0, b"done").await;
    let mut follower = world.plane.follow_log(taken.offer.run, taken.offer.attempt, 0).await.unwrap();
    let mut next = Box::pin(follower.next());
    assert!(poll!(next.as_mut()).is_pending(), "the receipt says how much there is, and its worker is live");
    agent.log(&taken, 0, b"done").await;
    assert_eq!(next.await.unwrap(), Some(LogPiece { offset: 0, bytes: b"done".to_vec() }));
    assert_eq!(follower.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_piece_over_the_limit_and_a_foreign_attempt_are_refused() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    let bytes = vec![0; limits::LOG_CHUNK + 1];
    let refused = world.plane.append_log(&agent.principal, agent.session, taken.lease.clone(), 0, bytes).await;
    assert!(matches!(refused, Err(ServiceError::Refused(_))));
    let other = world.submit(plain()).await;
    let refused = world.plane.follow_log(other, taken.offer.attempt, 0).await;
    assert!(matches!(refused, Err(ServiceError::Refused(Denied::NotFound { what: "attempt", .. }))));
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_a_follower_without_saying_that_the_log_ended() {
    let world = World::new().await;
    let agent = world.agent("nas", 1).await;
    let taken = started(&world, &agent).await;
    let running = world.start();
    let mut follower = world.plane.follow_log(taken.offer.run, taken.offer.attempt, 0).await.unwrap();
    let next = tokio::spawn(async move { follower.next().await });
    tokio::time::sleep(Millis::new(10).to_std()).await;
    running.stop().await;
    assert!(matches!(next.await.unwrap(), Err(ServiceError::NotDone { .. })));
}
