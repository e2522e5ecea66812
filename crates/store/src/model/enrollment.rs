//! Enrollment: a permission is stored, and a machine uses it once.

use leasehold_core::actor::Actor;
use leasehold_core::crypto::Digest;
use leasehold_core::enrollment::{self, Enrolling, Enrollment};
use leasehold_core::refusal::Refusal;

use super::Transaction;
use crate::call::{Enroll, NewEnrollment};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Unmet;
use crate::view::{Enrolled, EnrollmentView};

pub(super) fn create(tx: &mut Transaction<'_>, actor: &Actor, new: NewEnrollment) -> Outcome<(), Unmet> {
    let NewEnrollment { id, worker, labels, token, expires_at } = new;
    let enrollment = Enrollment { id, worker, labels, token, expires_at, used: None };
    if let Some(stored) = tx.state.enrollments.get(&id) {
        let same = Enrollment { used: None, ..stored.clone() } == enrollment;
        return if same { Outcome::Replayed(()) } else { Outcome::Refused(Unmet::KeyReused) };
    }
    if tx.state.enrollments.values().any(|stored| stored.token == token) {
        return Outcome::Refused(Unmet::KeyReused);
    }
    let facts = [("worker", enrollment.worker.to_string()), ("expires_at", expires_at.get().to_string())];
    tx.record(actor, "create_enrollment", format_args!("enrollment/{id}"), facts);
    tx.state.enrollments.insert(id, enrollment);
    Outcome::Applied(())
}

pub(super) fn find(tx: &Transaction<'_>, token: Digest) -> Option<EnrollmentView> {
    let found = tx.state.enrollments.values().find(|stored| stored.token == token && tx.now.utc < stored.expires_at)?;
    Some(EnrollmentView { id: found.id, worker: found.worker.clone(), expires_at: found.expires_at })
}

pub(super) fn enroll(tx: &mut Transaction<'_>, call: Enroll) -> Stored<Enrolled, Refusal> {
    let found = tx.state.enrollments.values().find(|stored| stored.token == call.token);
    let worker = found.and_then(|found| tx.state.workers.get(&found.worker));
    let decided = enrollment::enroll(
        found,
        worker,
        call.public_key,
        call.certificate.clone(),
        call.certificate_expires_at,
        tx.now,
    );
    match (decided, found) {
        (Ok(Enrolling::Applied { worker, enrollment }), _) => {
            let answer =
                Enrolled { worker: worker.id.clone(), enrollment: enrollment.id, certificate: call.certificate };
            let actor = Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin };
            let facts = [("enrollment", enrollment.id.to_string()), ("public_key", call.public_key.to_string())];
            tx.record(&actor, "enroll", format_args!("worker/{}", worker.id), facts);
            tx.state.faults.remove(&worker.id);
            tx.state.workers.insert(worker.id.clone(), *worker);
            tx.state.enrollments.insert(enrollment.id, *enrollment);
            Ok(Outcome::Applied(answer))
        }
        (Ok(Enrolling::Repeated(certificate)), Some(found)) => {
            Ok(Outcome::Replayed(Enrolled { worker: found.worker.clone(), enrollment: found.id, certificate }))
        }
        (Ok(Enrolling::Repeated(_)), None) => {
            Err(StoreError::Damaged { reason: "an enrollment that is not there cannot repeat".to_owned() })
        }
        (Err(refusal), _) => Ok(Outcome::Refused(refusal)),
    }
}
