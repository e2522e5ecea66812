//! Leases that run out: when they are declared, what becomes of the run, and who wins a race.

use leasehold_core::attempt::{AttemptState, EvidenceKind, Outcome as Ending, Resolution};
use leasehold_core::canonical::Value;
use leasehold_core::event::EventKind;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;
use leasehold_core::time::Millis;

use super::Harness;
use super::fixture::{World, exited, failed_when_lost, plain, retried_when_lost, revision_with, seconds};
use super::race::both;

/// *Lost* is declared two seconds after the lease's end, not at it.
pub async fn lost_is_declared_two_seconds_after_the_leases_end(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    world.pass(taken.grant.lease.length.plus(Millis::new(1999)));
    let scanned = world.unchanged(world.store.expire_leases(64)).await.unwrap();
    assert_eq!((scanned.runs, scanned.more, scanned.next), (vec![], false, Some(Millis::new(1))));
    world.pass(Millis::new(1));
    let scanned = world.store.expire_leases(64).await.unwrap();
    assert_eq!((scanned.runs, scanned.more, scanned.next), (vec![taken.run], false, None));
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Lost, AttemptState::Lost));
    assert_eq!(view.attempts[0].outcome, Some(Ending::Lost(EvidenceKind::LeaseExpired)));
    assert_eq!(view.attempts[0].resolution, Resolution::None);
    assert!(world.story(taken.run).await.ends_with(&[EventKind::AttemptLost, EventKind::RunLost]));
    assert_eq!(world.worker(&machine.id).await.active, []);
    assert_eq!(world.unchanged(world.store.expire_leases(64)).await.unwrap().runs, []);
}

/// A claim that never started waits again; nothing is lost.
pub async fn a_claim_that_never_started_waits_again(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.pass(seconds(21));
    assert_eq!(world.store.expire_leases(64).await.unwrap().runs, []);
    world.pass(seconds(1));
    assert_eq!(world.store.expire_leases(64).await.unwrap().runs, [taken.run]);
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Pending, AttemptState::Pending));
    assert_eq!(world.story(taken.run).await.last(), Some(&EventKind::ClaimExpired));
    let again = world.take(&session, taken.run).await;
    assert!(again.grant.lease.fence > taken.grant.lease.fence);
    assert!(again.grant.lease.generation > taken.grant.lease.generation);
    assert_eq!(again.attempt, taken.attempt);
}

/// `starting` counts as started: what becomes of the run is the pinned policy's to say.
pub async fn the_policy_says_what_becomes_of_a_lost_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for (revision, run, resolution) in [
        (plain(), RunState::Lost, Resolution::None),
        (failed_when_lost(), RunState::Failed, Resolution::Policy),
        (retried_when_lost(), RunState::RetryWait, Resolution::Policy),
    ] {
        let session = world.session(&machine, "boot-a").await;
        let starting = world.starting(&session, revision.clone()).await;
        let running = world.running(&session, revision).await;
        world.expire(&starting).await;
        for taken in [starting, running] {
            let view = world.view(taken.run).await;
            assert_eq!((view.run.state, view.attempts[0].state), (run, AttemptState::Lost));
            assert_eq!(view.attempts[0].resolution, resolution);
        }
    }
}

/// A renewal in time keeps the lease; the wall clock has no say.
pub async fn a_renewal_in_time_keeps_the_lease(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let limits = Value::map([("lease", Value::text("25s"))]);
    let taken = world.running(&session, revision_with([("limits", limits)])).await;
    for step in [86_400_000, -172_800_000, 3_600_000, 0] {
        world.clock().step_utc(step);
        world.pass(seconds(24));
        assert_eq!(world.store.expire_leases(64).await.unwrap().runs, []);
        assert_eq!(world.renewal(&taken).await.unwrap().remaining, seconds(25));
    }
    assert_eq!(world.state(taken.run).await, RunState::Running);
}

/// Scans are paged: the longest overdue first, and whether there was more.
pub async fn a_scan_is_paged_by_what_is_longest_overdue(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let mut claimed = Vec::new();
    for _ in 0..4 {
        claimed.push(world.claimed(&session, plain()).await.run);
        world.pass(seconds(1));
    }
    world.pass(seconds(30));
    for (page, more) in [(&claimed[..3], true), (&claimed[3..], false)] {
        let scanned = world.store.expire_leases(3).await.unwrap();
        assert_eq!((&scanned.runs[..], scanned.more), (page, more));
    }
}

/// An end and an expiry at the same instant: whoever comes first, the run ends as its process did.
pub async fn an_end_and_an_expiry_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for _ in 0..16 {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.running(&session, plain()).await;
        world.pass(taken.grant.lease.length.plus(seconds(2)));
        let taken = taken.held_by(&world.session(&machine, "boot-a").await);
        let (store, call) = (world.store.clone(), taken.end_call(exited(0)));
        let end = async move { store.end(call).await.unwrap() };
        let store = world.store.clone();
        let (ended, _) = both(end, async move { store.expire_leases(64).await.unwrap() }).await;
        assert!(ended.into_result().is_ok());
        let view = world.view(taken.run).await;
        assert_eq!(view.run.state, RunState::Succeeded);
        let how = (view.attempts[0].state, view.attempts[0].resolution);
        let first = (AttemptState::Succeeded, Resolution::None);
        let second = (AttemptState::Lost, Resolution::Receipt);
        assert!(how == first || how == second, "{how:?}");
    }
}

/// A renewal and an expiry at the same instant: once a lease may be declared, no renewal revives it.
pub async fn a_renewal_and_an_expiry_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for _ in 0..16 {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.running(&session, plain()).await;
        world.pass(taken.grant.lease.length.plus(seconds(2)));
        let taken = taken.held_by(&world.session(&machine, "boot-a").await);
        let beat = world.beat_call(&taken.step.session, &[&taken]).await;
        let (one, two) = (world.store.clone(), world.store.clone());
        let beat = async move { one.heartbeat(beat).await.unwrap() };
        let (beaten, scanned) = both(beat, async move { two.expire_leases(64).await.unwrap() }).await;
        let beaten = beaten.into_result().unwrap();
        assert_eq!(beaten.leases[0].1.as_ref().unwrap_err().code, RefusalCode::LeaseExpired);
        let mut declared = scanned.runs;
        if declared.is_empty() {
            // A scan may leave what another call has in its hands to the next.
            declared = world.store.expire_leases(64).await.unwrap().runs;
        }
        assert_eq!(declared, [taken.run]);
        assert_eq!(world.state(taken.run).await, RunState::Lost);
    }
}

/// Two scans at the same instant declare each lease once.
pub async fn two_scans_declare_a_lease_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for _ in 0..8 {
        let session = world.session(&machine, "boot-a").await;
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(world.running(&session, plain()).await.run);
        }
        world.pass(seconds(700));
        let (one, two) = (world.store.clone(), world.store.clone());
        let scans =
            both(
                async move { one.expire_leases(64).await.unwrap() },
                async move { two.expire_leases(64).await.unwrap() },
            );
        let (one, two) = scans.await;
        let mut declared = [one.runs, two.runs].concat();
        declared.sort_unstable();
        runs.sort_unstable();
        assert_eq!(declared, runs);
        for run in runs {
            let lost = world.story(run).await.iter().filter(|kind| **kind == EventKind::AttemptLost).count();
            assert_eq!(lost, 1);
        }
    }
}

/// A scan names the workers that it has news for: whose slot is free again, or who is to stop something.
pub async fn a_scan_names_the_workers_it_has_news_for(harness: &dyn Harness) {
    let world = World::new(harness);
    let (one, first) = world.agent("nas").await;
    let (other, second) = world.agent("box").await;
    let limited = revision_with([("limits", Value::map([("timeout", Value::text("30s"))]))]);
    world.running(&first, limited).await;
    world.claimed(&second, plain()).await;
    world.pass(seconds(30));
    assert_eq!(world.store.stop_overdue(64).await.unwrap().workers, [one.id].into());
    assert_eq!(world.store.expire_leases(64).await.unwrap().workers, [other.id].into());
    assert_eq!(world.store.expire_leases(64).await.unwrap().workers, [].into());
}
