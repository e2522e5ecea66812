//! `claimed → starting`: the one permission to start, and what withdraws it.

use leasehold_core::attempt::{AttemptState, Starting};
use leasehold_core::canonical::Value;
use leasehold_core::event::EventKind;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;

use super::Harness;
use super::fixture::{Expect, World, assert_code, boot, plain, revision_with, seconds};

/// The first acknowledgement stores the boot, fixes the time limit and gives the whole lease.
pub async fn the_first_acknowledgement_fixes_boot_and_deadline(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let limits = Value::map([("timeout", Value::text("90s"))]);
    let taken = world.claimed(&session, revision_with([("limits", limits)])).await;
    world.pass(seconds(7));
    let answer = world.store.acknowledge_starting(taken.step.clone()).await.applied();
    let Starting::Accepted(answer) = answer else { panic!("{answer:?}") };
    assert_eq!(answer.timeout, Some(seconds(90)));
    assert_eq!((answer.lease.attempt_state, answer.lease.remaining), (AttemptState::Starting, answer.lease.length));
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Dispatching, AttemptState::Starting));
    assert_eq!(view.attempts[0].boot, Some(boot("boot-a")));
    assert_eq!(world.story(taken.run).await.last(), Some(&EventKind::AttemptStarting));
}

/// A repeat is told where the attempt stands, and how much time is left; nothing is extended.
pub async fn a_repeat_is_told_where_the_attempt_stands(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let limits = Value::map([("timeout", Value::text("90s"))]);
    let taken = world.starting(&session, revision_with([("limits", limits)])).await;
    world.pass(seconds(10));
    let again = world.unchanged(world.store.acknowledge_starting(taken.step.clone())).await.replayed();
    let Starting::AlreadyStarting(answer) = again else { panic!("{again:?}") };
    assert_eq!(answer.timeout, Some(seconds(80)));
    assert_eq!(answer.lease.remaining, answer.lease.length.minus(seconds(10)));
    world.acknowledge_running(&taken).await.applied();
    let again = world.unchanged(world.store.acknowledge_starting(taken.step.clone())).await.replayed();
    assert!(matches!(again, Starting::AlreadyRunning(_)), "{again:?}");
}

/// Only within the claim window.
pub async fn a_claim_that_ran_out_does_not_start(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.pass(seconds(20));
    let refusal = world.unchanged(world.store.acknowledge_starting(taken.step.clone())).await.refused();
    assert_code(&refusal, RefusalCode::LeaseExpired);
    world.pass(seconds(2));
    world.store.expire_leases(64).await.unwrap();
    let refusal = world.unchanged(world.store.acknowledge_starting(taken.step.clone())).await.refused();
    assert_code(&refusal, RefusalCode::LeaseExpired);
    assert_eq!(world.state(taken.run).await, RunState::Pending);
}

/// Under a stored cancel nothing starts: attempt, run and lease end instead, and the repeat hears the same.
pub async fn under_a_cancel_nothing_starts(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    let stopped = world.store.acknowledge_starting(taken.step.clone()).await.applied();
    let Starting::Stopped(projection) = &stopped else { panic!("{stopped:?}") };
    assert_eq!((projection.remaining, projection.attempt_state), (seconds(0), AttemptState::Cancelled));
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Cancelled));
    assert_eq!(world.worker(&machine.id).await.active, []);
    assert_eq!(world.unchanged(world.store.acknowledge_starting(taken.step.clone())).await.replayed(), stopped);
    assert_code(&world.unchanged(world.acknowledge_running(&taken)).await.refused(), RefusalCode::LeaseFenced);
}
