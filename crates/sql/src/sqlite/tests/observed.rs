//! What an observer is told: what was committed, as often as the events say, and nothing of what was undone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::attempt::{AttemptState, EvidenceKind};
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::time::Millis;
use leasehold_store::call::AdmitRun;
use leasehold_store::observe::{Access, Called, Fact, LateEffect, Observer};
use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::{Fixture, revision};
use crate::scene::{every_call, told_of_every_method};

#[derive(Default)]
struct Told {
    facts: Mutex<Vec<Fact>>,
    calls: Mutex<Vec<(&'static str, Access, Called)>>,
}

impl Observer for Told {
    fn committed(&self, fact: Fact) {
        self.facts.lock().unwrap().push(fact);
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn called(&self, name: &'static str, access: Access, _: Duration, how: Called) {
        self.calls.lock().unwrap().push((name, access, how));
    }
}

impl Told {
    fn times(&self, fact: Fact) -> usize {
        self.facts.lock().unwrap().iter().filter(|told| **told == fact).count()
    }
}

fn observed() -> (Fixture, Arc<Told>) {
    let told = Arc::new(Told::default());
    (Fixture::with(|options| options.observed(told.clone())), told)
}

#[tokio::test]
async fn an_observer_is_told_what_the_events_say() {
    let (fixture, told) = observed();
    every_call(&fixture).await;
    let database = Connection::open(fixture.path()).unwrap();
    let written = |kind: &str| -> usize {
        let count = "SELECT count(*) FROM event WHERE kind = ?1";
        database.query_row(count, [kind], |row| row.get::<_, u32>(0)).unwrap().try_into().unwrap()
    };
    for (fact, kind) in [
        (Fact::RunAdmitted, "run.admitted"),
        (Fact::Claimed, "attempt.claimed"),
        (Fact::ClaimReleased, "attempt.released"),
        (Fact::RunLost, "run.lost"),
        (Fact::CancelRequested, "cancel.requested"),
        (Fact::AttemptLost(EvidenceKind::LeaseExpired), "attempt.lost"),
        (Fact::LateEvidence(LateEffect::Kept), "evidence.late"),
    ] {
        assert!(written(kind) > 0, "{kind} is part of everything");
        assert_eq!(told.times(fact), written(kind), "{kind}");
    }
    for ended in [AttemptState::Failed, AttemptState::Succeeded] {
        assert_eq!(told.times(Fact::AttemptEnded(ended)), 1, "{ended}");
    }
    assert_eq!(written("attempt.ended"), 2);
    assert_eq!(told.times(Fact::LeaseExpired(RunState::Lost)), 1);
    assert_eq!(told.times(Fact::LeaseExpired(RunState::TimedOut)), 1, "its time was up when contact was lost");
    assert_eq!(told.times(Fact::Stopped(StopIntentReason::Cancel, Millis::ZERO)), 14, "nothing of them had started");
    let calls = told.calls.lock().unwrap();
    assert!(calls.iter().all(|(_, _, how)| *how == Called::Answered));
    told_of_every_method(&calls.iter().map(|(method, access, _)| (*method, *access)).collect());
}

#[tokio::test]
async fn what_is_undone_is_not_told() {
    let (fixture, told) = observed();
    fixture.admit(revision(&[])).await;
    let before = told.facts.lock().unwrap().len();
    // Another run with the same attempt breaks a unique key half way: nothing of the call stays.
    let submission = fixture.submission(revision(&[]));
    fixture.store.admit_run(submission.clone()).await.unwrap().into_result().unwrap();
    let other = AdmitRun { run: fixture.submission(revision(&[])).run, ..submission };
    let again = fixture.store.admit_run(other).await;
    assert!(again.is_err(), "{again:?}");
    assert_eq!(told.facts.lock().unwrap().len(), before + 1);
    let calls = told.calls.lock().unwrap();
    assert_eq!(calls.last(), Some(&("admit_run", Access::Write, Called::NotDone)));
}
