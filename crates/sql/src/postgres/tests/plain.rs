//! The plain case of the calls that are made most: what it costs, and what its caller may conclude when it fails.

use leasehold_core::actor::Actor;
use leasehold_core::attempt::AttemptState;
use leasehold_core::canonical::Value;
use leasehold_core::end::{EndProjection, Ended};
use leasehold_core::id::ProjectName;
use leasehold_store::call::{AcknowledgeRunning, Claim, SetProject};
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::Store as _;

use super::Fixture;
use super::races::{hold, wait_for_a_waiter};
use super::wire::Cut;
use crate::scene::{exited, revision, running, step};

/// On one thread: what is sent in one flight then crosses the wire in one piece, however busy the machine is.
#[tokio::test(flavor = "current_thread")]
async fn every_plain_step_of_a_run_is_one_round_trip() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let (replica, wire) = fixture.over_a_wire().await;
    // The first one makes the connection and prepares the statements.
    for (round, code) in [0, 0, 3, 0].into_iter().enumerate() {
        let mut call = fixture.submission(revision(&[]));
        if round == 3 {
            call.revision = revision(&[("limits", Value::map([("concurrency", Value::Int(2))]))]);
            call.task = Some("nightly".parse().unwrap());
            let (actor, name) = (Actor::System, ProjectName::default());
            let limit = SetProject { actor, name, concurrency: Some(9), seen: None };
            fixture.store.set_project(limit).await.unwrap().into_result().unwrap();
        }
        let run = fixture.store.admit_run(call).await.unwrap().into_result().unwrap().run.id;
        let before = wire.round_trips();
        let claim = Claim { session: session.clone(), ask: fixture.ask(), run, score: 0 };
        let grant = replica.claim(claim).await.unwrap().into_result().unwrap();
        let step = step(&session, &grant);
        let claimed = wire.round_trips();
        assert!(replica.acknowledge_starting(step.clone()).await.unwrap().is_applied());
        let started = wire.round_trips();
        let call = AcknowledgeRunning { step: step.clone(), call: running(&grant) };
        assert!(replica.acknowledge_running(call).await.unwrap().is_applied());
        let runs = wire.round_trips();
        let ended = replica.end(exited(&step, &grant, code, b"log")).await.unwrap();
        let Outcome::Applied(Ended::Accepted(projection)) = ended else { panic!("{ended:?}") };
        let state = if code == 0 { AttemptState::Succeeded } else { AttemptState::Failed };
        assert_eq!(projection.attempt, state);
        let each = [claimed - before, started - claimed, runs - started, wire.round_trips() - runs];
        assert!(round == 0 || each == [1; 4], "claim, starting, running, end in round {round}: {each:?}");
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
        let waits = fixture.admit(revision(&[])).await;
        let waits = fixture.claim(&session, waits).await;
        let waits = step(&session, &waits);
        wire.cuts(Some(cut));
        let started = replica.acknowledge_starting(waits.clone()).await;
        assert!(matches!(started, Err(StoreError::Unknown { .. })), "{cut:?}: {started:?}");
        let claimed = replica.claim(claim.clone()).await;
        assert!(matches!(claimed, Err(StoreError::Unknown { .. })), "{cut:?}: {claimed:?}");
        let told = replica.end(end.clone()).await;
        assert!(matches!(told, Err(StoreError::Unknown { .. })), "{cut:?}: {told:?}");
        wire.cuts(None);
        assert_eq!(replica.acknowledge_starting(waits).await.unwrap().is_applied(), !done, "{cut:?}");
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
