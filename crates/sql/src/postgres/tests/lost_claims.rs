//! Answers of claims that are lost, two hundred times: two replicas on connections of their own, and a worker that asks the
//! other one while the first still does not know what became of it. One claim and one start per run, under the same offer.
//! (Case 5.)

use futures_util::future::join_all;
use leasehold_core::claim::Ask;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::id::RunId;
use leasehold_core::registration::{Cadence, Registration};
use leasehold_core::session::SessionFence;
use leasehold_store::call::{Claim, RegisterSession};
use leasehold_store::outcome::StoreError;
use leasehold_store::port::Store as _;
use leasehold_store::view::{AskState, Grant};

use super::wire::Cut;
use super::{Fixture, PostgresStore};
use crate::scene::{exited, revision, step, tickets};

/// Workers at once: what one of them commits, others wait for.
const WORKERS: usize = 8;
/// Of each of them.
const ROUNDS: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_claims_whose_answers_are_lost_start_two_hundred_runs_once() {
    let Some(fixture) = Fixture::new().await else { return };
    let (unheard, wire) = fixture.over_a_wire().await;
    wire.cuts(Some(Cut::BeforeTheAnswer));
    let workers = (0..WORKERS).map(|number| lives(&fixture, &unheard, number));
    let found: usize = join_all(workers).await.into_iter().sum();
    // Those that the other replica was not asked for before they were committed.
    assert!(found > 0, "nobody was ever answered what a lost answer would have said");
    let count = |sql: &str| fixture.value(sql);
    assert_eq!(count("SELECT count(*) FROM run WHERE state = 'succeeded' AND fence = 1"), "200");
    assert_eq!(count("SELECT count(*) FROM lease"), "200", "one claim each");
    assert_eq!(count("SELECT count(*) FROM attempt"), "200", "no attempt was spent");
    for kind in ["attempt.claimed", "attempt.starting"] {
        assert_eq!(count(&format!("SELECT count(*) FROM event WHERE kind = '{kind}'")), "200", "{kind}");
    }
}

/// A worker that is never told what it was given, and killed every second time. Answers how often what was committed unheard
/// is what the other replica answered.
async fn lives(fixture: &Fixture<'_>, unheard: &PostgresStore, number: usize) -> usize {
    let mut session = fixture.agent(&format!("worker-{number}")).await;
    let mut found = 0;
    for round in 0..ROUNDS {
        let (run, ask) = (fixture.admit(revision(&[])).await, fixture.ask());
        let claim = Claim { session: session.clone(), ask: ask.clone(), run, score: 0 };
        let grant = if round % 3 == 0 {
            // Both replicas have its pull, and both have chosen this run for it.
            let (_, claimed) = tokio::join!(unheard.claim(claim.clone()), fixture.store.claim(claim));
            Some(claimed.unwrap().into_result().unwrap())
        } else {
            // It asks again before it can be known whether the first claim will be committed.
            let (lost, early) = tokio::join!(unheard.claim(claim), asked(fixture, &session, &ask));
            assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
            early
        };
        if round % 2 == 0 {
            session = comes_back(fixture, &session).await;
        }
        let again = asked(fixture, &session, &ask).await.expect("what was committed is granted again");
        found += usize::from(grant.is_none());
        let same = |grant: &Grant| (grant.run.id, grant.lease.offer, grant.lease.generation, grant.lease.fence);
        assert!(grant.is_none_or(|grant| same(&grant) == same(&again)));
        assert_eq!((again.run.id, again.lease.offer), (run, ask.offer));
        runs(fixture, &session, run, &again).await;
    }
    found
}

/// What another replica answers to an ask.
async fn asked(fixture: &Fixture<'_>, session: &SessionFence, ask: &Ask) -> Option<Grant> {
    let asks = vec![ask.clone()];
    let state = fixture.store.recover_asks(session.clone(), asks).await.unwrap().into_result().unwrap();
    match state.asks.into_iter().next() {
        Some(AskState::Granted(grant)) => Some(*grant),
        Some(AskState::Open) => None,
        other => panic!("{other:?}"),
    }
}

/// The worker was killed, and starts anew: another session, the same asks.
async fn comes_back(fixture: &Fixture<'_>, before: &SessionFence) -> SessionFence {
    let worker = fixture.store.worker(&before.worker).await.unwrap().unwrap();
    let session = fixture.session_id();
    let call = RegisterSession {
        worker: before.worker.clone(),
        registration: Registration {
            session,
            ticket: tickets().next(&before.worker, before.session, before.generation),
            capabilities: worker.session.unwrap().capabilities,
            max_runs: 256,
            boot: "boot-a".parse().unwrap(),
            software: "1.2.3".to_owned(),
            protocol: 1,
            body: Digest::of(Domain::Registration, session.as_bytes()),
        },
        tickets: tickets(),
        cadence: Cadence::default(),
        origin: None,
    };
    let projection = fixture.store.register_session(call).await.unwrap().into_result().unwrap();
    SessionFence { worker: before.worker.clone(), session, generation: projection.generation }
}

/// The offer starts, and ends.
async fn runs(fixture: &Fixture<'_>, session: &SessionFence, run: RunId, grant: &Grant) {
    let step = step(session, grant);
    let started = fixture.store.acknowledge_starting(step.clone()).await.unwrap();
    assert!(started.is_applied(), "{run} starts once: {started:?}");
    assert!(fixture.store.end(exited(&step, grant, 0, b"")).await.unwrap().is_applied(), "{run}");
}
