//! The plain case of the calls that are made most: what it costs, and what its caller may conclude when it fails.

use leasehold_core::actor::Actor;
use leasehold_core::attempt::AttemptState;
use leasehold_core::canonical::Value;
use leasehold_core::end::{EndProjection, Ended};
use leasehold_core::id::ProjectName;
use leasehold_store::call::{Claim, SetProject};
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::Store as _;

use super::Fixture;
use super::races::{hold, wait_for_a_waiter};
use super::wire::Cut;
use crate::scene::{exited, revision, step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_claim_and_a_plain_end_are_one_round_trip_each() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let (replica, wire) = fixture.over_a_wire().await;
    // The first one makes the connection and prepares the statements.
    for (round, limited) in [false, false, true].into_iter().enumerate() {
        let mut call = fixture.submission(revision(&[("limits", Value::map([("concurrency", Value::Int(2))]))]));
        if limited {
            call.task = Some("nightly".parse().unwrap());
            let (actor, name) = (Actor::System, ProjectName::default());
            let limit = SetProject { actor, name, concurrency: Some(9) };
            fixture.store.set_project(limit).await.unwrap().into_result().unwrap();
        } else {
            call.revision = revision(&[]);
        }
        let run = fixture.store.admit_run(call).await.unwrap().into_result().unwrap().run.id;
        let before = wire.round_trips();
        let claim = Claim { session: session.clone(), ask: fixture.ask(), run, score: 0 };
        assert!(replica.claim(claim).await.unwrap().is_applied());
        let claimed = wire.round_trips() - before;
        for code in [0, 3] {
            let ended = fixture.running(&session).await;
            let before = wire.round_trips();
            let end = exited(&step(&session, &ended), &ended, code, b"log");
            let Outcome::Applied(Ended::Accepted(projection)) = replica.end(end).await.unwrap() else {
                panic!("{code}")
            };
            let state = if code == 0 { AttemptState::Succeeded } else { AttemptState::Failed };
            assert_eq!(projection.attempt, state);
            assert!(round == 0 || wire.round_trips() - before == 1, "an end");
        }
        assert!(round == 0 || claimed == 1, "a claim is {claimed} round trips, limited: {limited}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_call_whose_answer_is_lost_is_unknown_and_found_again() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let (replica, wire) = fixture.over_a_wire().await;
    for (cut, done) in [(Cut::BeforeTheServer, false), (Cut::BeforeTheAnswer, true)] {
        let run = fixture.admit(revision(&[])).await;
        let claim = Claim { session: session.clone(), ask: fixture.ask(), run, score: 0 };
        let ended = fixture.running(&session).await;
        let end = exited(&step(&session, &ended), &ended, 0, b"log");
        wire.cuts(Some(cut));
        let claimed = replica.claim(claim.clone()).await;
        assert!(matches!(claimed, Err(StoreError::Unknown { .. })), "{cut:?}: {claimed:?}");
        let told = replica.end(end.clone()).await;
        assert!(matches!(told, Err(StoreError::Unknown { .. })), "{cut:?}: {told:?}");
        wire.cuts(None);
        let claimed = replica.claim(claim).await.unwrap();
        assert_eq!(claimed.is_applied(), !done, "{cut:?}");
        assert_eq!(claimed.into_result().unwrap().run.id, run);
        let told = replica.end(end).await.unwrap();
        assert_eq!(told.is_applied(), !done, "{cut:?}");
        let (Ended::Accepted(EndProjection { attempt, .. }) | Ended::AlreadyTerminal(EndProjection { attempt, .. })) =
            told.into_result().unwrap();
        assert_eq!(attempt, AttemptState::Succeeded);
    }
}

/// What was sent may be done although nobody waits for the answer any more: whoever asks again finds it, or does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_claim_that_its_caller_gave_up_is_found_by_its_ask() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let blocker = hold(&fixture, "SELECT FROM leasehold.run FOR UPDATE").await;
    let call = Claim { session: session.clone(), ask: fixture.ask(), run, score: 0 };
    let (store, given_up) = (fixture.store.clone(), call.clone());
    let waiting = tokio::spawn(async move { store.claim(given_up).await });
    wait_for_a_waiter(&fixture).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(blocker);
    let grant = fixture.store.claim(call.clone()).await.unwrap().into_result().unwrap();
    assert_eq!((grant.run.id, grant.lease.offer), (run, call.ask.offer));
    assert_eq!(fixture.value("SELECT count(*) FROM lease"), "1");
}
