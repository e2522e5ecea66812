//! `starting → running`: attempt and run together, and a replay that matches in every field.

use leasehold_core::attempt::{AttemptState, Callback, Handle, RunningCall};
use leasehold_core::event::EventKind;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;

use super::Harness;
use super::fixture::{Expect, World, assert_code, boot, exited, plain};
use crate::call::AcknowledgeRunning;

/// Attempt and run move together, with the handle and the launch that may end it.
pub async fn attempt_and_run_move_together(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.starting(&session, plain()).await;
    let projection = world.acknowledge_running(&taken).await.applied();
    assert_eq!(projection.attempt_state, AttemptState::Running);
    let view = world.view(taken.run).await;
    let call = taken.running_call();
    assert_eq!((view.run.state, view.run.started_at), (RunState::Running, Some(call.started_at)));
    assert_eq!((&view.attempts[0].handle, view.attempts[0].callback), (&Some(call.handle), Some(call.callback)));
    assert_eq!(world.story(taken.run).await.last(), Some(&EventKind::AttemptRunning));
}

/// A replay is answered; another handle or another launch is refused.
pub async fn a_replay_must_match_in_every_field(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    assert_eq!(
        world.unchanged(world.acknowledge_running(&taken)).await.replayed().attempt_state,
        AttemptState::Running
    );
    let right = taken.running_call();
    let handle = |handle: Handle| RunningCall { handle, ..right.clone() };
    let callback = |callback: Callback| RunningCall { callback, ..right.clone() };
    for (field, call) in [
        ("pid", handle(Handle { pid: 1, ..right.handle.clone() })),
        ("start time", handle(Handle { start_time: 1, ..right.handle.clone() })),
        ("boot", handle(Handle { boot: boot("boot-b"), ..right.handle.clone() })),
        ("sequence", callback(Callback { sequence: right.callback.sequence.next(), ..right.callback })),
        ("token", callback(Callback { token: taken.completion("another launch"), ..right.callback })),
    ] {
        let call = AcknowledgeRunning { step: taken.step.clone(), call };
        let refusal = world.unchanged(world.store.acknowledge_running(call)).await.refused();
        assert_eq!(refusal.code, RefusalCode::ConflictReplay, "{field}");
    }
}

/// Neither before *starting* nor after the end.
pub async fn only_what_is_starting_comes_to_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let claimed = world.claimed(&session, plain()).await;
    assert_code(&world.unchanged(world.acknowledge_running(&claimed)).await.refused(), RefusalCode::LeaseFenced);
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    assert_code(&world.unchanged(world.acknowledge_running(&ended)).await.refused(), RefusalCode::LeaseFenced);
}

/// A lease that ran out authorises nothing, declared or not.
pub async fn a_lease_that_ran_out_authorises_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.starting(&session, plain()).await;
    world.pass(taken.grant.lease.length);
    let taken = taken.held_by(&world.session(&machine, "boot-a").await);
    assert_code(&world.unchanged(world.acknowledge_running(&taken)).await.refused(), RefusalCode::LeaseExpired);
    world.pass(leasehold_core::limits::LOST_GRACE);
    world.store.expire_leases(64).await.unwrap();
    assert_code(&world.unchanged(world.acknowledge_running(&taken)).await.refused(), RefusalCode::LeaseExpired);
}
