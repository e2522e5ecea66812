//! Every fenced call with every part of its fence wrong, and what a fenced session may still do: nothing.

use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::LeaseGeneration;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::lease::LeaseFence;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::{Said, SessionFence};

use super::Harness;
use super::fixture::{Expect, Taken, World, exited, plain, seconds};
use crate::call::{AppendLog, Heartbeat, Release, SessionStep};
use crate::port::ClaimRefused;

/// The answers of every call under the session alone; each must be a refusal.
async fn session_calls(world: &World<'_>, session: &SessionFence, like: &SessionFence) -> Vec<(&'static str, Refusal)> {
    let store = &world.store;
    let version = world.version(like).await;
    let step = SessionStep { session: session.clone(), version };
    let beat = Heartbeat {
        session: session.clone(),
        version,
        said: Said { slots: 1, obeys_drain: false },
        faults: None,
        renewals: Vec::new(),
    };
    let claim = world.claim_call(session, &world.ask(), world.run_id());
    let claim = match store.claim(claim).await.refused() {
        ClaimRefused::Refused(refusal) => refusal,
        other @ ClaimRefused::NotClaimed(_) => panic!("{other:?}"),
    };
    vec![
        ("heartbeat", store.heartbeat(beat).await.refused()),
        ("drain", store.drain_session(step.clone()).await.refused()),
        ("offline", store.offline_session(step).await.refused()),
        ("recover_asks", store.recover_asks(session.clone(), vec![world.ask()]).await.refused()),
        ("claim", claim),
    ]
}

/// The answers of every call under a lease; each must be a refusal.
async fn lease_calls(world: &World<'_>, taken: &Taken) -> Vec<(&'static str, Refusal)> {
    let store = &world.store;
    let log = AppendLog { step: taken.step.clone(), offset: 0, bytes: b"x".to_vec() };
    let release = Release { step: taken.step.clone(), reason: ReleaseReason::DiskLow };
    vec![
        ("end", world.end(taken, exited(0)).await.refused()),
        ("append_log", store.append_log(log).await.refused()),
        ("acknowledge_running", world.acknowledge_running(taken).await.refused()),
        ("release", store.release(release).await.refused()),
        ("acknowledge_starting", store.acknowledge_starting(taken.step.clone()).await.refused()),
    ]
}

fn wrong_sessions(world: &World<'_>, right: &SessionFence, other: &SessionFence) -> [(&'static str, SessionFence); 4] {
    [
        ("an unknown worker", SessionFence { worker: "nobody".parse().unwrap(), ..right.clone() }),
        ("another worker", SessionFence { worker: other.worker.clone(), ..right.clone() }),
        ("an unknown session", SessionFence { session: world.session_id(), ..right.clone() }),
        ("a later generation", SessionFence { generation: right.generation.next(), ..right.clone() }),
    ]
}

fn wrong_leases(world: &World<'_>, right: &LeaseFence, other: &LeaseFence) -> [(&'static str, LeaseFence); 6] {
    let token = Digest::of(Domain::LeaseToken, b"guessed");
    [
        ("an unknown attempt", LeaseFence { attempt: world.attempt_id(), ..right.clone() }),
        ("another attempt", LeaseFence { attempt: other.attempt, ..right.clone() }),
        ("another offer", LeaseFence { offer: other.offer, ..right.clone() }),
        ("a later generation", LeaseFence { generation: right.generation.next(), ..right.clone() }),
        ("another lease's token", LeaseFence { token: other.token, ..right.clone() }),
        ("a guessed token", LeaseFence { token, ..right.clone() }),
    ]
}

/// One lease per state in which a call might be tempted, of one session.
async fn leases(world: &World<'_>, session: &SessionFence) -> [Taken; 3] {
    [
        world.claimed(session, plain()).await,
        world.starting(session, plain()).await,
        world.running(session, plain()).await,
    ]
}

#[track_caller]
fn all_are(answers: &[(&'static str, Refusal)], code: RefusalCode, why: &str) {
    for (call, refusal) in answers {
        assert_eq!(refusal.code, code, "{call} with {why}: {refusal}");
    }
}

/// Each part of the session fence counts in each call, and the refusal changes nothing.
pub async fn every_part_of_the_session_fence_counts(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let (_, other) = world.agent("box").await;
    let leases = leases(&world, &session).await;
    for (why, wrong) in wrong_sessions(&world, &session, &other) {
        let answers = world.unchanged(session_calls(&world, &wrong, &session)).await;
        all_are(&answers, RefusalCode::SessionFenced, why);
        for taken in &leases {
            let answers = world.unchanged(lease_calls(&world, &taken.held_by(&wrong))).await;
            // An `end` first proves the lease, which is the worker's: sessions come and go under it.
            let (end, rest) = answers.split_at(usize::from(wrong.worker != session.worker));
            all_are(end, RefusalCode::LeaseFenced, why);
            all_are(rest, RefusalCode::SessionFenced, why);
        }
    }
}

/// Each part of the lease fence counts in each call, in each state, and the refusal changes nothing.
pub async fn every_part_of_the_lease_fence_counts(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let leases = leases(&world, &session).await;
    let other = world.claimed(&session, plain()).await;
    for taken in &leases {
        for (why, wrong) in wrong_leases(&world, &taken.step.lease, &other.step.lease) {
            let mut holder = taken.clone();
            holder.step.lease = wrong;
            let answers = world.unchanged(lease_calls(&world, &holder)).await;
            all_are(&answers, RefusalCode::LeaseFenced, why);
        }
    }
}

/// A renewal with any part of the lease fence wrong is refused for itself: the beat counts, the lease stays as it is.
pub async fn every_part_of_the_lease_fence_counts_in_a_renewal(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let other = world.running(&session, plain()).await;
    world.pass(seconds(5));
    let before = world.lease(&taken).await;
    for (why, wrong) in wrong_leases(&world, &taken.step.lease, &other.step.lease) {
        let mut holder = taken.clone();
        holder.step.lease = wrong;
        let beaten = world.beat(&session, &[&holder, &other]).await.applied();
        assert_eq!(beaten.leases[0].1.as_ref().unwrap_err().code, RefusalCode::LeaseFenced, "{why}");
        assert!(beaten.leases[1].1.is_ok(), "the right one beside it is renewed");
        assert_eq!(world.lease(&taken).await, before, "{why}");
    }
}

/// Whoever learns a token is still another worker.
pub async fn a_lease_is_useless_to_another_worker(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let (_, thief) = world.agent("box").await;
    for taken in leases(&world, &session).await {
        let stolen = taken.held_by(&thief);
        all_are(&world.unchanged(lease_calls(&world, &stolen)).await, RefusalCode::LeaseFenced, "a stolen token");
        assert_eq!(world.renewal(&stolen).await.unwrap_err().code, RefusalCode::LeaseFenced);
    }
}

/// A replaced session changes nothing, whatever it sends; its lease lives on in the hands of its successor.
pub async fn a_replaced_session_changes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, old) = world.agent("nas").await;
    let leases = leases(&world, &old).await;
    let new = world.session(&machine, "boot-a").await;
    let answers = world.unchanged(session_calls(&world, &old, &new)).await;
    all_are(&answers, RefusalCode::SessionFenced, "a replaced session");
    for taken in &leases {
        let answers = world.unchanged(lease_calls(&world, taken)).await;
        all_are(&answers, RefusalCode::SessionFenced, "a replaced session");
        assert!(world.renewal(&taken.held_by(&new)).await.is_ok());
    }
}

/// An expired session is told so: it starts over, and may do nothing else.
pub async fn an_expired_session_changes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let leases = leases(&world, &session).await;
    world.pass(seconds(45));
    let answers = world.unchanged(session_calls(&world, &session, &session)).await;
    all_are(&answers, RefusalCode::SessionExpired, "an expired session");
    for taken in &leases {
        let answers = world.unchanged(lease_calls(&world, taken)).await;
        all_are(&answers, RefusalCode::SessionExpired, "an expired session");
    }
}

/// A lease that was given back or ended holds nothing: an earlier generation cannot touch the next one.
pub async fn an_earlier_claim_cannot_touch_the_next_one(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, first) = world.agent("nas").await;
    let (_, second) = world.agent("box").await;
    let old = world.claimed(&first, plain()).await;
    let release = Release { step: old.step.clone(), reason: ReleaseReason::Draining };
    world.store.release(release).await.applied();
    let new = world.take(&second, old.run).await;
    assert_eq!(new.step.lease.generation, LeaseGeneration::FIRST.next());
    all_are(&world.unchanged(lease_calls(&world, &old)).await, RefusalCode::LeaseFenced, "an earlier claim");
    world.start(&new).await;
}
