//! Giving a claim back unstarted, and how long the worker is not asked again.

use leasehold_core::attempt::AttemptState;
use leasehold_core::claim::{Refused, ReleaseReason};
use leasehold_core::event::EventKind;
use leasehold_core::id::RunId;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;
use leasehold_core::time::Millis;

use super::Harness;
use super::fixture::{Expect, Taken, World, assert_code, exited, plain, seconds};
use crate::call::Release;

fn release(taken: &Taken) -> Release {
    Release { step: taken.step.clone(), reason: ReleaseReason::DiskLow }
}

/// What keeps a run from its one refusing worker, as the dispatcher sees it, with the time that is left.
async fn refused(world: &World<'_>, run: RunId) -> Option<(Refused, Millis)> {
    let lanes = world.store.lanes(None, 8, 8).await.unwrap();
    let lane = lanes.iter().find(|lane| lane.heads.iter().any(|head| head.run == run)).unwrap();
    let head = lane.heads.iter().find(|head| head.run == run).unwrap();
    let refused = head.refused.iter().map(|(_, refused)| *refused).find(|refused| refused.until > lane.now.lease)?;
    Some((refused, refused.until.since(lane.now.lease)))
}

/// A claim that was given back waits again; the repeat is answered and changes nothing.
pub async fn a_claim_that_was_given_back_waits_again(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.store.release(release(&taken)).await.applied();
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Pending, AttemptState::Pending));
    assert_eq!(view.attempts.len(), 1, "the same attempt");
    assert_eq!(world.worker(&machine.id).await.active, []);
    assert_eq!(
        world.story(taken.run).await,
        [EventKind::RunAdmitted, EventKind::AttemptClaimed, EventKind::AttemptReleased]
    );
    world.unchanged(world.store.release(release(&taken))).await.replayed();
    let facts = world.store.run_facts(taken.run, None, 8).await.unwrap().unwrap();
    assert_eq!(facts.refused.iter().map(|(worker, _)| worker).collect::<Vec<_>>(), [&machine.id]);
}

/// The worker is not asked again for 30 s, doubling to 10 min.
pub async fn the_wait_doubles_up_to_ten_minutes(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let run = world.run(plain()).await;
    for (times, wait) in [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 600), (7, 600)] {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.take(&session, run).await;
        world.store.release(release(&taken)).await.applied();
        let (refused, left) = refused(&world, run).await.unwrap();
        assert_eq!((refused.times, left), (times, seconds(wait)));
    }
    world.pass(seconds(600));
    assert_eq!(refused(&world, run).await, None);
}

/// What started is ended, never given back.
pub async fn what_started_is_not_given_back(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let starting = world.starting(&session, plain()).await;
    let running = world.running(&session, plain()).await;
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    for taken in [&starting, &running, &ended] {
        let refusal = world.unchanged(world.store.release(release(taken))).await.refused();
        assert_code(&refusal, RefusalCode::LeaseFenced);
    }
}

/// A claim window that has passed is the store's to end.
pub async fn a_claim_that_ran_out_is_not_given_back(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.pass(seconds(20));
    let refusal = world.unchanged(world.store.release(release(&taken))).await.refused();
    assert_code(&refusal, RefusalCode::LeaseExpired);
}

/// A claim that is given back under a cancel ends the run.
pub async fn giving_back_under_a_cancel_ends_the_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    world.store.release(release(&taken)).await.applied();
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Cancelled));
    world.unchanged(world.store.release(release(&taken))).await.replayed();
}
