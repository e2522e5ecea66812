//! Enrollment: one use, repeated to the same key within the token's life.

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::Said;
use leasehold_core::worker::WorkerState;

use super::Harness;
use super::fixture::{Expect, World, admin, assert_code, plain, seconds, tickets};
use crate::call::NewEnrollment;
use crate::port::Unmet;

/// The first certificate counts; the same machine may fetch it again, no other can.
pub async fn a_machine_enrolls_once_and_may_ask_again(harness: &dyn Harness) {
    let world = World::new(harness);
    let enrollment = world.new_enrollment("nas");
    world.store.create_enrollment(admin(), enrollment.clone()).await.applied();
    let found = world.store.find_enrollment(enrollment.token).await.unwrap().unwrap();
    assert_eq!((found.id, &found.worker, found.expires_at), (enrollment.id, &enrollment.worker, enrollment.expires_at));

    let first = world.store.enroll(world.enroll_call(&enrollment, "key")).await.applied();
    assert_eq!((&first.worker, first.enrollment), (&enrollment.worker, enrollment.id));
    let mut again = world.enroll_call(&enrollment, "key");
    again.certificate = b"another certificate of the same key".to_vec();
    assert_eq!(world.unchanged(world.store.enroll(again)).await.replayed(), first);
    let other = world.unchanged(world.store.enroll(world.enroll_call(&enrollment, "other key"))).await.refused();
    assert_code(&other, RefusalCode::Unauthenticated);

    let worker = world.worker(&first.worker).await;
    assert_eq!((worker.worker.state, worker.worker.enrollment), (WorkerState::Active, enrollment.id));
    assert_eq!(worker.worker.labels, enrollment.labels);
    assert_eq!(worker.session, None);
    assert!(world.store.find_enrollment(enrollment.token).await.unwrap().is_some(), "a used one may still be repeated");
}

/// A token works for its time, used or not; an unknown one never.
pub async fn an_enrollment_token_expires(harness: &dyn Harness) {
    let world = World::new(harness);
    let (unused, used) = (world.new_enrollment("nas"), world.new_enrollment("box"));
    for enrollment in [&unused, &used] {
        world.store.create_enrollment(admin(), enrollment.clone()).await.applied();
    }
    world.store.enroll(world.enroll_call(&used, "key")).await.applied();
    world.pass(seconds(900));
    for enrollment in [&unused, &used, &world.new_enrollment("never-created")] {
        let refusal = world.unchanged(world.store.enroll(world.enroll_call(enrollment, "key"))).await.refused();
        assert_code(&refusal, RefusalCode::Unauthenticated);
        assert_eq!(world.store.find_enrollment(enrollment.token).await.unwrap(), None);
    }
    assert_eq!(world.store.worker(&unused.worker).await.unwrap(), None);
}

/// The permission itself may be stored again as it was, and under no other meaning.
pub async fn a_permission_is_stored_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let enrollment = world.new_enrollment("nas");
    world.store.create_enrollment(admin(), enrollment.clone()).await.applied();
    world.unchanged(world.store.create_enrollment(admin(), enrollment.clone())).await.replayed();
    let renamed = NewEnrollment { worker: "box".parse().unwrap(), ..enrollment.clone() };
    let same_token = NewEnrollment { id: world.enrollment_id(), ..enrollment.clone() };
    for other in [renamed, same_token] {
        assert_eq!(world.unchanged(world.store.create_enrollment(admin(), other)).await.refused(), Unmet::KeyReused);
    }
    world.store.enroll(world.enroll_call(&enrollment, "key")).await.applied();
    world.unchanged(world.store.create_enrollment(admin(), enrollment)).await.replayed();
}

/// A machine that enrolls under an old name is that worker: the earlier session is fenced, its runs go on.
pub async fn a_worker_that_enrolls_again_is_fenced_and_keeps_its_runs(harness: &dyn Harness) {
    let world = World::new(harness);
    let (old, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let spent = world.ticket(&old).await;
    let version = world.version(&session).await;

    let machine = world.machine("nas").await;
    let beat = crate::call::Heartbeat {
        session: session.clone(),
        version,
        said: Said { slots: 1, obeys_drain: false },
        faults: None,
        renewals: Vec::new(),
    };
    assert_code(&world.unchanged(world.store.heartbeat(beat)).await.refused(), RefusalCode::SessionFenced);
    let copy = world.registration(&old, world.session_id(), spent, "boot-a");
    assert_code(&world.store.register_session(copy).await.refused(), RefusalCode::TicketSpent);
    let stale = world.registration(&old, world.session_id(), tickets().first(&old.id, old.enrollment), "boot-a");
    assert_code(&world.store.register_session(stale).await.refused(), RefusalCode::TicketSpent);

    let next = world.session(&machine, "boot-a").await;
    assert!(next.generation > session.generation);
    let projection = world.renewal(&taken.held_by(&next)).await.unwrap();
    assert!(projection.version > taken.grant.lease.version);
}

/// Who enrolled whom is in the audit, and no token is.
pub async fn enrolling_is_audited(harness: &dyn Harness) {
    let world = World::new(harness);
    let enrollment = world.new_enrollment("nas");
    world.store.create_enrollment(admin(), enrollment.clone()).await.applied();
    world.store.enroll(world.enroll_call(&enrollment, "key")).await.applied();
    let rows = world.audit().await;
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.action.as_str(), row.actor.as_str(), row.origin.as_deref().unwrap(), row.subject.clone()))
        .collect();
    assert_eq!(
        told,
        [
            ("create_enrollment", "local:1000", "admin socket", format!("enrollment/{}", enrollment.id)),
            ("enroll", "worker:nas", "192.0.2.7", "worker/nas".to_owned()),
        ]
    );
    let token = enrollment.token.to_string();
    assert!(rows.iter().all(|row| row.facts.values().all(|fact| !fact.contains(&token))));
    assert_ne!(enrollment.token, Digest::of(Domain::EnrollmentToken, b""));
}
