//! What a caller may conclude when the database fails: done, certainly not done, or unknown.

use leasehold_core::actor::Actor;
use leasehold_store::call::CancelRun;
use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;

use super::Fixture;
use crate::scene::revision;
use crate::test_server::{StopMode, TestServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_certainly_does_nothing_and_is_found_again() {
    if TestServer::shared_or_skip("a restart of the server").is_none() {
        return;
    }
    let server = TestServer::start().unwrap();
    let fixture = Fixture::on(&server).await;
    let run = fixture.admit(revision(&[])).await;
    server.stop(StopMode::Immediate).unwrap();
    let submission = fixture.submission(revision(&[]));
    let error = fixture.store.admit_run(submission.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDone { .. }), "{error}");
    server.start_again().unwrap();
    // Connections from before are broken, and nobody is told.
    assert_eq!(fixture.store.run(run).await.unwrap().unwrap().run.id, run);
    assert!(fixture.store.admit_run(submission).await.unwrap().is_applied());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_its_caller_gave_up_leaves_nothing_behind() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let run = fixture.admit(revision(&[])).await;
    let blocker = super::races::hold(&fixture, "SELECT FROM leasehold.run FOR UPDATE").await;
    let store = fixture.store.clone();
    let call = CancelRun { actor: Actor::System, run, why: None };
    let waiting = tokio::spawn(async move { store.cancel_run(call).await });
    super::races::wait_for_a_waiter(&fixture).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(blocker);
    // Whatever it held is free again: the next claim is not kept waiting, and finds the run as it was.
    fixture.claim(&session, run).await;
}
