//! Sessions: what they are shown, drain, offline, versions, and the successor that carries the leases on.

use leasehold_core::counter::{SessionGeneration, SessionVersion};
use leasehold_core::event::EventKind;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::{Said, SessionState};

use super::Harness;
use super::fixture::{Expect, World, assert_code, exited, plain, seconds};
use crate::call::{Heartbeat, SessionStep};

/// A first session is generation 1, version 0, and carries the labels of the enrollment.
pub async fn a_first_session_is_generation_1_version_0(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    assert_eq!(session.generation, SessionGeneration::FIRST);
    let stored = world.current(&machine.id).await;
    assert_eq!((stored.version, stored.state), (SessionVersion::FIRST, SessionState::Active));
    assert_eq!((stored.slots, stored.max_runs), (0, 4));
    assert_eq!(stored.capabilities.labels.get("site").map(String::as_str), Some("attic"));
}

/// A call of another version is refused and shown the session as it is.
pub async fn another_version_conflicts_and_shows_the_session(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let lost = world.version(&session).await;
    world.beat(&session, &[]).await.applied();
    let now = world.version(&session).await;
    assert_eq!(now, lost.next());
    for version in [lost, now.next()] {
        let step = || SessionStep { session: session.clone(), version };
        let beat = Heartbeat {
            session: session.clone(),
            version,
            said: Said { slots: 1, obeys_drain: false },
            faults: None,
            renewals: Vec::new(),
        };
        for refusal in [
            world.unchanged(world.store.heartbeat(beat)).await.refused(),
            world.unchanged(world.store.drain_session(step())).await.refused(),
            world.unchanged(world.store.offline_session(step())).await.refused(),
        ] {
            assert_code(&refusal, RefusalCode::VersionConflict);
            let shown = refusal.session.unwrap();
            assert_eq!((shown.version, shown.remaining), (now, seconds(45)));
        }
    }
}

/// A draining session takes nothing new, keeps what it holds, and says zero slots.
pub async fn a_draining_session_takes_nothing_new(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let waiting = world.run(plain()).await;
    assert_eq!(world.drain(&session).await.applied().state, SessionState::Draining);
    let refused = world.unchanged(world.try_take(&session, waiting)).await.unwrap_err();
    assert_eq!(refused, crate::port::ClaimRefused::NotClaimed(leasehold_core::claim::NotClaimed::Draining));
    let pull = world.store.recover_asks(session.clone(), vec![world.ask()]).await.unwrap().into_result().unwrap();
    assert_eq!(pull.free_slots, 0);
    world.renewal(&taken).await.unwrap();
    let stored = world.current(&machine.id).await;
    assert_eq!((stored.state, stored.slots), (SessionState::Draining, 0), "a beat does not undo it");
    assert_eq!(world.drain(&session).await.applied().state, SessionState::Draining);
    world.end(&taken, exited(0)).await.applied();
    world.offline(&session).await.applied();
}

/// A worker is never reported as stopped while it may hold something.
pub async fn offline_needs_every_lease_gone(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let refusal = world.unchanged(world.offline(&session)).await.refused();
    assert_code(&refusal, RefusalCode::VersionConflict);
    world.end(&taken, exited(0)).await.applied();
    assert_eq!(world.offline(&session).await.applied().state, SessionState::Offline);
}

/// Offline is the end of a session: its exact repeat is answered, everything else is fenced.
pub async fn an_offline_session_is_fenced(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let step = SessionStep { session: session.clone(), version: world.version(&session).await };
    let left = world.store.offline_session(step.clone()).await.applied();
    assert_eq!((left.state, left.remaining), (SessionState::Offline, seconds(0)));
    assert_eq!(world.unchanged(world.store.offline_session(step)).await.replayed(), left);
    assert_code(&world.unchanged(world.offline(&session)).await.refused(), RefusalCode::SessionFenced);
    assert_code(&world.unchanged(world.beat(&session, &[])).await.refused(), RefusalCode::SessionFenced);
    assert_code(&world.unchanged(world.drain(&session)).await.refused(), RefusalCode::SessionFenced);
    let next = world.session(&machine, "boot-b").await;
    assert_eq!(next.generation, session.generation.next());
}

/// A successor carries leases on in every step, each time with one event; the version tells.
pub async fn a_successor_rebinds_what_it_proves(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, old) = world.agent("nas").await;
    let claimed = world.claimed(&old, plain()).await;
    let starting = world.starting(&old, plain()).await;
    let running = world.running(&old, plain()).await;
    let before = world.lease(&running).await;
    let new = world.session(&machine, "boot-a").await;

    world.start(&claimed.held_by(&new)).await;
    world.acknowledge_running(&starting.held_by(&new)).await.applied();
    world.renewal(&running.held_by(&new)).await.unwrap();
    for taken in [&claimed, &starting, &running] {
        let lease = world.lease(&taken.held_by(&new)).await;
        assert_eq!((lease.session, lease.session_generation), (new.session, new.generation));
        let rebound = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::LeaseRebound).count();
        assert_eq!(rebound, 1);
        world.renewal(&taken.held_by(&new)).await.unwrap();
        let again = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::LeaseRebound).count();
        assert_eq!(again, 1, "the second call is nobody's news");
    }
    assert!(world.lease(&running.held_by(&new)).await.version > before.version);
    world.end(&running.held_by(&new), exited(0)).await.applied();
}
