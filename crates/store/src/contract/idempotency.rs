//! Submitting again: by the same key or the same id it is the same run.

use leasehold_core::counter::{AttemptNumber, RunVersion};
use leasehold_core::event::EventKind;
use leasehold_core::id::ProjectName;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;

use super::Harness;
use super::fixture::{Expect, World, failed_when_lost, plain};
use super::race::both;
use crate::call::{AdmitRun, Keyed};
use crate::port::Unmet;
use crate::view::KeyedRun;

fn key(key: &str, asked: &Revision) -> Keyed {
    Keyed { key: key.to_owned(), asked: asked.digest() }
}

/// A submitted run waits, with attempt 1.
pub async fn a_submitted_run_waits_with_attempt_1(harness: &dyn Harness) {
    let world = World::new(harness);
    let call = AdmitRun { task: Some("backup".parse().unwrap()), ..world.submission(plain()) };
    let view = world.store.admit_run(call.clone()).await.applied();
    assert_eq!((view.run.id, view.run.state, view.run.version), (call.run, RunState::Pending, RunVersion::FIRST));
    assert_eq!((&view.run.project, &view.run.task), (&call.project, &call.task));
    assert_eq!((view.run.revision, view.run.placement), (plain().digest(), plain().placement().digest()));
    assert_eq!(view.attempts.len(), 1);
    assert_eq!((view.attempts[0].id, view.attempts[0].number), (call.attempt, AttemptNumber::FIRST));
    assert_eq!(view.revision, plain());
    assert_eq!(world.view(call.run).await, view);
    assert_eq!(world.story(call.run).await, [EventKind::RunAdmitted]);
}

/// The same key with the same request is the same run, as it is then.
pub async fn the_same_key_is_the_same_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let keyed = || AdmitRun { idempotency_key: Some(key("nightly", &plain())), ..world.submission(plain()) };
    let first = world.store.admit_run(keyed()).await.applied();
    assert_eq!(world.unchanged(world.store.admit_run(keyed())).await.replayed(), first);
    world.take(&session, first.run.id).await;
    let later = world.unchanged(world.store.admit_run(keyed())).await.replayed();
    assert_eq!((later.run.id, later.run.state), (first.run.id, RunState::Dispatching));
}

/// The same key for another request is refused; another project's keys are its own.
pub async fn a_key_means_one_request_per_project(harness: &dyn Harness) {
    let world = World::new(harness);
    let keyed = || AdmitRun { idempotency_key: Some(key("nightly", &plain())), ..world.submission(plain()) };
    world.store.admit_run(keyed()).await.applied();
    let other = AdmitRun { idempotency_key: Some(key("nightly", &failed_when_lost())), ..keyed() };
    assert_eq!(world.unchanged(world.store.admit_run(other)).await.refused(), Unmet::KeyReused);
    world.store.admit_run(AdmitRun { project: "lab".parse().unwrap(), ..keyed() }).await.applied();
    world.store.admit_run(AdmitRun { idempotency_key: None, ..keyed() }).await.applied();
}

/// What was asked is compared, not what it became: the same request finds its run although its task has another revision.
pub async fn a_key_finds_its_run_by_what_was_asked(harness: &dyn Harness) {
    let world = World::new(harness);
    let keyed = || AdmitRun { idempotency_key: Some(key("nightly", &plain())), ..world.submission(plain()) };
    let first = world.store.admit_run(keyed()).await.applied();
    let edited = AdmitRun { revision: failed_when_lost(), task: Some("backup".parse().unwrap()), ..keyed() };
    assert_eq!(world.unchanged(world.store.admit_run(edited)).await.replayed(), first);
    let project = ProjectName::default();
    let found = world.store.keyed_run(&project, "nightly").await.unwrap();
    assert_eq!(found, Some(KeyedRun { run: first.run.id, asked: Some(plain().digest()) }));
    assert_eq!(world.store.keyed_run(&project, "weekly").await.unwrap(), None);
    assert_eq!(world.store.keyed_run(&"lab".parse().unwrap(), "nightly").await.unwrap(), None);
}

/// Without a key the run's own id tells a repeat from another request.
pub async fn the_same_id_is_the_same_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let call = world.submission(plain());
    let first = world.store.admit_run(call.clone()).await.applied();
    assert_eq!(world.unchanged(world.store.admit_run(call.clone())).await.replayed(), first);
    let other = AdmitRun { revision: failed_when_lost(), ..call };
    assert_eq!(world.unchanged(world.store.admit_run(other)).await.refused(), Unmet::KeyReused);
}

/// Two submissions with one key at the same instant are one run.
pub async fn one_key_is_one_run_at_the_same_instant(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let submit = || {
            let call =
                AdmitRun { idempotency_key: Some(key(&format!("key-{round}"), &plain())), ..world.submission(plain()) };
            let store = world.store.clone();
            async move { store.admit_run(call).await.unwrap() }
        };
        let (one, two) = both(submit(), submit()).await;
        assert_eq!(u8::from(one.is_applied()) + u8::from(two.is_applied()), 1);
        assert_eq!(one.into_result().unwrap().run.id, two.into_result().unwrap().run.id);
        assert_eq!(world.audited("admit_run").await, round + 1);
    }
}
