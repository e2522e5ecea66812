//! A person deletes a worker: what it holds keeps it, its identity ends for good, and the word that its machine is gone
//! settles what it held.

use leasehold_core::attempt::{AttemptState, EvidenceKind, Outcome as Ended};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::end::Ending;
use leasehold_core::event::EventKind;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::run::RunState;
use leasehold_core::session::Said;
use leasehold_core::worker::Holds;

use super::Harness;
use super::fixture::{Expect, World, admin, assert_code, exited, plain, retried_when_lost, seconds};
use super::race::both;
use crate::call::{DeleteWorker, DrainWorker, EventsAfter, Heartbeat, Release, SessionStep};
use crate::outcome::Outcome;
use crate::port::{ClaimRefused, Unmet};
use crate::view::Deletion;

fn deletion(destroyed: bool) -> DeleteWorker {
    let (worker, why) = ("nas".parse().unwrap(), Some("burnt down".to_owned()));
    DeleteWorker { actor: admin(), worker, destroyed, limit: 64, why }
}

/// What a worker holds keeps it, in numbers; without anything, its identity ends for good and its name is free.
pub async fn a_worker_is_deleted_once_it_holds_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let lost = world.running(&session, plain()).await;
    world.expire(&lost).await;
    let session = world.session(&machine, "boot-a").await;
    let claimed = world.claimed(&session, plain()).await;
    let running = world.running(&session, plain()).await;
    let held = |live, open| Unmet::Holds(Holds { live, open });
    assert_eq!(world.unchanged(world.store.delete_worker(deletion(false))).await.refused(), held(2, 1));
    let release = Release { step: claimed.step, reason: ReleaseReason::DiskLow };
    world.store.release(release).await.applied();
    world.end(&running, exited(0)).await.applied();
    assert_eq!(world.unchanged(world.store.delete_worker(deletion(false))).await.refused(), held(0, 1));
    world.end(&lost.held_by(&session), exited(0)).await.applied();

    let unused = world.new_enrollment("nas");
    world.store.create_enrollment(admin(), unused.clone()).await.applied();
    let ticket = world.ticket(&machine).await;
    let version = world.version(&session).await;
    assert_eq!(world.store.delete_worker(deletion(false)).await.applied(), Deletion::default());
    for destroyed in [false, true] {
        let again = world.unchanged(world.store.delete_worker(deletion(destroyed))).await;
        assert_eq!(again.replayed(), Deletion::default());
    }
    assert_eq!(world.audited("delete_worker").await, 1);
    assert_eq!(world.store.worker(&machine.id).await.unwrap(), None);
    assert_eq!(world.store.workers(None, 10).await.unwrap(), []);

    // Whoever still has its certificate is told so, whatever it asks.
    let refused = |refusal: Refusal| assert_code(&refusal, RefusalCode::Revoked);
    let beat =
        Heartbeat { session: session.clone(), version, said: Said::default(), faults: None, renewals: Vec::new() };
    refused(world.unchanged(world.store.heartbeat(beat)).await.refused());
    let step = SessionStep { session: session.clone(), version };
    refused(world.unchanged(world.store.drain_session(step.clone())).await.refused());
    refused(world.unchanged(world.store.offline_session(step)).await.refused());
    refused(world.unchanged(world.store.recover_asks(session.clone(), Vec::new())).await.refused());
    refused(world.unchanged(world.end(&running, exited(0))).await.refused());
    let call = world.registration(&machine, world.session_id(), ticket, "boot-a");
    refused(world.unchanged(world.store.register_session(call)).await.refused());
    let enroll = world.enroll_call(&unused, "key");
    assert_code(&world.unchanged(world.store.enroll(enroll)).await.refused(), RefusalCode::Unauthenticated);
    let drain = DrainWorker { actor: admin(), worker: machine.id.clone(), why: None };
    for call in [world.store.drain_worker(drain.clone()), world.store.resume_worker(drain)] {
        assert_eq!(world.unchanged(call).await.refused(), Unmet::NotFound("worker"));
    }
    let unknown = DeleteWorker { worker: "box".parse().unwrap(), ..deletion(true) };
    assert_eq!(world.unchanged(world.store.delete_worker(unknown)).await.refused(), Unmet::NotFound("worker"));

    let (_, next) = world.agent("nas").await;
    assert!(next.generation > session.generation, "a new machine of that name continues the count");
}

/// A person's word that the machine is gone settles what it held, at once and as the policy of each run says.
pub async fn a_destroyed_worker_leaves_evidence(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let claimed = world.claimed(&session, plain()).await;
    let held = world.running(&session, plain()).await;
    let retried = world.starting(&session, retried_when_lost()).await;
    let may_live = world.running(&session, plain()).await;
    let evidence = Ending::Lost { evidence: EvidenceKind::LauncherKilledMayLive };
    world.end(&may_live, evidence).await.applied();
    assert!(world.view(may_live.run).await.attempts[0].may_live);

    let Deletion { runs: mut changed, more } = world.store.delete_worker(deletion(true)).await.applied();
    assert!(!more);
    changed.sort_unstable();
    let mut all = vec![claimed.run, held.run, retried.run, may_live.run];
    all.sort_unstable();
    assert_eq!(changed, all);
    assert_eq!(world.state(claimed.run).await, RunState::Pending, "nothing of it had started");
    assert_eq!(world.state(held.run).await, RunState::Lost, "held: the question is open");
    assert_eq!(world.state(retried.run).await, RunState::RetryWait);
    for taken in [&held, &retried] {
        let attempt = &world.view(taken.run).await.attempts[0];
        assert_eq!(attempt.state, AttemptState::Lost);
        assert_eq!(attempt.outcome, Some(Ended::Lost(EvidenceKind::Destroyed)));
        assert!(!attempt.may_live);
    }
    assert!(!world.view(may_live.run).await.attempts[0].may_live, "refuted");
    let events = world.store.events(EventsAfter { run: held.run, after: None }, 100).await.unwrap();
    let lost = events.iter().find(|event| event.kind == EventKind::AttemptLost).unwrap();
    assert_eq!((lost.actor.as_str(), lost.facts["evidence"].as_str()), ("local:1000", "destroyed"));
    // Nothing of it runs out a second time.
    world.pass(seconds(24 * 3600));
    assert_eq!(world.store.expire_leases(64).await.unwrap().runs, []);
}

/// A worker that was deleted claims nothing, however close the two come; one that claimed is not deleted.
pub async fn a_deletion_and_a_claim_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let name = format!("nas-{round}");
        let (_, session) = world.agent(&name).await;
        let run = world.run(plain()).await;
        let (store, claim) = (world.store.clone(), world.claim_call(&session, &world.ask(), run));
        let claim = async move { store.claim(claim).await.unwrap() };
        let store = world.store.clone();
        let delete = DeleteWorker { worker: name.parse().unwrap(), ..deletion(false) };
        let delete = async move { store.delete_worker(delete).await.unwrap() };
        match both(claim, delete).await {
            (Outcome::Applied(_), Outcome::Refused(Unmet::Holds(holds))) => {
                assert_eq!((holds.live, holds.open), (1, 0));
            }
            (Outcome::Refused(ClaimRefused::Refused(refusal)), Outcome::Applied(_)) => {
                assert_code(&refusal, RefusalCode::Revoked);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A registration and a deletion at the same instant: deleted is deleted.
pub async fn a_deletion_and_a_registration_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let name = format!("nas-{round}");
        let machine = world.machine(&name).await;
        let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-a");
        let (store, first) = (world.store.clone(), call.clone());
        let register = async move { store.register_session(first).await.unwrap() };
        let store = world.store.clone();
        let delete = DeleteWorker { worker: name.parse().unwrap(), ..deletion(false) };
        let delete = async move { store.delete_worker(delete).await.unwrap() };
        let (_, deleted) = both(register, delete).await;
        assert!(deleted.is_applied(), "{deleted:?}");
        assert_code(&world.store.register_session(call).await.refused(), RefusalCode::Revoked);
    }
}

/// What was held is settled in pages; the same call again is the next page, and what is left is nobody's meanwhile.
pub async fn a_destroyed_worker_is_settled_in_pages(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let lost = world.running(&session, plain()).await;
    world.expire(&lost).await;
    let session = world.session(&machine, "boot-a").await;
    let mut held = vec![lost.run, world.claimed(&session, plain()).await.run];
    for _ in 0..2 {
        held.push(world.running(&session, plain()).await.run);
    }
    let page = DeleteWorker { limit: 3, ..deletion(true) };
    let first = world.store.delete_worker(page.clone()).await.applied();
    assert_eq!((first.runs.len(), first.more), (3, true));
    assert_eq!(world.store.worker(&machine.id).await.unwrap(), None, "its identity ended with the first page");
    let again = world.unchanged(world.store.delete_worker(deletion(false))).await;
    assert_eq!(again.replayed(), Deletion::default());
    let second = world.store.delete_worker(page.clone()).await.applied();
    assert_eq!((second.runs.len(), second.more), (1, false));
    let mut changed = [first.runs, second.runs].concat();
    changed.sort_unstable();
    held.sort_unstable();
    assert_eq!(changed, held);
    assert_eq!(world.unchanged(world.store.delete_worker(page)).await.replayed(), Deletion::default());
    let evidence = &world.view(lost.run).await.attempts[0].evidence;
    assert!(evidence.contains(&EvidenceKind::LeaseExpired) && evidence.contains(&EvidenceKind::Destroyed));

    // A new machine of that name is not kept by questions that it cannot answer.
    world.agent("nas").await;
    assert_eq!(world.store.delete_worker(deletion(false)).await.applied(), Deletion::default());
}
