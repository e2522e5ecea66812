//! The beat: the session's lease, a verdict per run lease, and nothing else in the books.

use leasehold_core::canonical::Value;
use leasehold_core::claim::Ask;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::Said;

use super::Harness;
use super::fixture::{Expect, Taken, World, plain, revision_with, seconds};
use crate::call::Heartbeat;
use crate::view::AskState;

/// A beat extends the session, counts itself and notes the slots.
pub async fn a_beat_extends_the_session_and_counts_itself(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    world.pass(seconds(44));
    let before = world.current(&machine.id).await;
    let beat = Heartbeat {
        session: session.clone(),
        version: before.version,
        said: Said { slots: 3, obeys_drain: false },
        faults: None,
        renewals: Vec::new(),
    };
    let beaten = world.store.heartbeat(beat).await.applied();
    assert_eq!((beaten.session.remaining, beaten.session.version), (seconds(45), before.version.next()));
    let after = world.current(&machine.id).await;
    assert_eq!(after.slots, 3);
    let beat = Heartbeat {
        session,
        version: after.version,
        said: Said { slots: 99, obeys_drain: false },
        faults: None,
        renewals: Vec::new(),
    };
    world.store.heartbeat(beat).await.applied();
    assert_eq!(world.current(&machine.id).await.slots, 4, "never more than the session's maximum");
}

/// A beat whose answer was lost finds the version one higher, and everything as it left it.
pub async fn a_lost_answer_shows_as_a_version_one_higher(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let version = world.version(&session).await;
    let beat =
        Heartbeat { session, version, said: Said { slots: 1, obeys_drain: false }, faults: None, renewals: Vec::new() };
    let lost = world.store.heartbeat(beat.clone()).await.applied();
    let refusal = world.unchanged(world.store.heartbeat(beat)).await.refused();
    assert_eq!(refusal.code, RefusalCode::VersionConflict);
    assert_eq!(refusal.session.map(|shown| *shown), Some(lost.session));
}

/// Verdicts come in the order of the renewals; one refused lease does not hold the others back.
pub async fn there_is_a_verdict_per_lease_in_order(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let (_, other) = world.agent("box").await;
    let mine = [world.running(&session, plain()).await, world.running(&session, plain()).await];
    let foreign = world.running(&other, plain()).await;
    world.pass(seconds(10));
    let beaten = world.beat(&session, &[&mine[1], &foreign, &mine[0]]).await.applied();
    let order: Vec<_> = beaten.leases.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(order, [mine[1].attempt, foreign.attempt, mine[0].attempt]);
    for place in [0, 2] {
        let projection = beaten.leases[place].1.as_ref().unwrap();
        assert_eq!(projection.remaining, projection.length, "renewed for its whole length");
    }
    assert_eq!(beaten.leases[1].1.as_ref().unwrap_err().code, RefusalCode::LeaseFenced);
}

/// Renewals order themselves by the lease's version, and write neither an event nor an audit row.
pub async fn renewing_grows_the_version_and_writes_no_story(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let (story, audit) = (world.story(taken.run).await, world.audit().await);
    let mut last = world.lease(&taken).await.version;
    for _ in 0..3 {
        world.pass(seconds(10));
        let projection = world.renewal(&taken).await.unwrap();
        assert!(projection.version > last);
        last = projection.version;
    }
    assert_eq!((world.story(taken.run).await, world.audit().await), (story, audit));
}

/// A claim that has not started is not extended by beating: the claim window decides.
pub async fn a_claim_is_not_extended_by_beating(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.pass(seconds(15));
    assert_eq!(world.renewal(&taken).await.unwrap().remaining, seconds(5));
    world.pass(seconds(5));
    assert_eq!(world.renewal(&taken).await.unwrap_err().code, RefusalCode::LeaseExpired);
}

/// An attempt that never reports running is not extended past its start window: the lease's end decides then.
pub async fn the_end_of_the_start_window_ends_renewing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let limits = Value::map([("start", Value::text("30s")), ("lease", Value::text("60s"))]);
    let taken = world.starting(&session, revision_with([("limits", limits)])).await;
    world.pass(seconds(29));
    assert_eq!(world.renewal(&taken).await.unwrap().remaining, seconds(60));
    world.pass(seconds(1));
    let projection = world.renewal(&taken).await.unwrap();
    assert_eq!(projection.remaining, seconds(59), "answered, not extended, not lost");
    world.acknowledge_running(&taken).await.applied();
    assert_eq!(world.renewal(&taken).await.unwrap().remaining, seconds(60), "running late is running");
}

/// A lease that ran out is not revived, even before anybody declares it.
pub async fn a_lease_that_ran_out_is_not_renewed(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    world.pass(taken.grant.lease.length);
    let session = world.session(&machine, "boot-a").await;
    let before = world.view(taken.run).await;
    let refusal = world.renewal(&taken.held_by(&session)).await.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::LeaseExpired);
    assert_eq!(refusal.lease.unwrap().remaining, seconds(0));
    assert_eq!(world.view(taken.run).await, before);
}

/// A started lease never crosses a boot: not by a renewal, a repeated acknowledgement or a pull.
pub async fn a_started_lease_never_crosses_a_boot(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let claimed = world.claimed(&session, plain()).await;
    let starting = world.starting(&session, plain()).await;
    let running = world.running(&session, plain()).await;
    world.pass(seconds(23));
    let rebooted = world.session(&machine, "boot-b").await;
    for taken in [&starting, &running] {
        let taken = taken.held_by(&rebooted);
        assert_eq!(world.renewal(&taken).await.unwrap_err().code, RefusalCode::LeaseFenced);
        let again = world.unchanged(world.store.acknowledge_starting(taken.step.clone())).await.refused();
        assert_eq!(again.code, RefusalCode::LeaseFenced);
        assert_eq!(world.unchanged(world.acknowledge_running(&taken)).await.refused().code, RefusalCode::LeaseFenced);
    }
    let ask = |taken: &Taken| Ask { offer: taken.step.lease.offer, token: taken.step.lease.token };
    let asks = vec![ask(&starting), ask(&running)];
    let pull = world.unchanged(world.store.recover_asks(rebooted.clone(), asks)).await.replayed();
    assert_eq!(pull.asks, [AskState::Gone, AskState::Gone], "nor by a pull");
    assert_eq!(world.renewal(&claimed.held_by(&rebooted)).await.unwrap_err().code, RefusalCode::LeaseExpired);
    let fresh = world.claimed(&rebooted, plain()).await;
    let next = world.session(&machine, "boot-b").await;
    world.start(&fresh.held_by(&next)).await;
}
