//! A machine becomes a worker: single use, repeated to the same key within the token's life.
//!
//! The first certificate that a token made is the one that counts; a lost answer is fetched again with the same key. A
//! worker that existed keeps its name and its runs, but its session is fenced: the ticket chain starts anew.
//! (Protocol, *Identity* and *Sessions*.)

use std::collections::BTreeMap;

use crate::crypto::Digest;
use crate::id::{EnrollmentId, WorkerId};
use crate::refusal::{Refusal, RefusalCode};
use crate::time::{Now, UtcMillis};
use crate::worker::{Worker, WorkerState};

/// A permission for one machine to become a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrollment {
    /// Its id.
    pub id: EnrollmentId,
    /// The worker it makes.
    pub worker: WorkerId,
    /// Labels the worker gets.
    pub labels: BTreeMap<String, String>,
    /// Digest of the enrollment token.
    pub token: Digest,
    /// When the token stops working.
    pub expires_at: UtcMillis,
    /// What it was used for, once it was.
    pub used: Option<Used>,
}

/// The one use of an enrollment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// Digest of the machine's public key.
    pub public_key: Digest,
    /// The chain that was handed out, DER, leaf first.
    pub certificate: Vec<u8>,
    /// When.
    pub at: UtcMillis,
}

/// What enrolling with a valid token makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enrolling {
    /// The machine is the worker now; store both.
    Applied {
        /// The worker, without a session.
        worker: Box<Worker>,
        /// The enrollment, used.
        enrollment: Box<Enrollment>,
    },
    /// The same machine again: hand out this certificate, change nothing.
    Repeated(Vec<u8>),
}

/// Decides an enrollment. `enrollment` is the one with the token's digest, `worker` the worker that it names, if there
/// is one already; `certificate` is what to hand out if the call is applied.
pub fn enroll(
    enrollment: Option<&Enrollment>,
    worker: Option<&Worker>,
    public_key: Digest,
    certificate: Vec<u8>,
    certificate_expires_at: UtcMillis,
    now: Now,
) -> Result<Enrolling, Refusal> {
    // One sentence for unknown, spent and expired alike: a prober learns nothing.
    let refused = || {
        Refusal::new(
            RefusalCode::Unauthenticated,
            "this enrollment token is unknown, used or expired: ask an administrator for a new one",
        )
    };
    let enrollment = enrollment.filter(|enrollment| now.utc < enrollment.expires_at).ok_or_else(refused)?;
    if let Some(used) = &enrollment.used {
        let still_counts = worker.is_some_and(|worker| worker.enrollment == enrollment.id);
        return if used.public_key == public_key && still_counts {
            Ok(Enrolling::Repeated(used.certificate.clone()))
        } else {
            Err(refused())
        };
    }
    let worker = Worker {
        id: enrollment.worker.clone(),
        enrollment: enrollment.id,
        state: WorkerState::Active,
        labels: enrollment.labels.clone(),
        current: None,
        generation: worker.and_then(|worker| worker.generation),
        rival: None,
        // Whoever enrolls anew needs no takeover.
        takeover: None,
        // A person's wish is about the machine of this name, not about its keys.
        drain: worker.and_then(|worker| worker.drain.clone()),
        enrolled_at: now.utc,
        certificate_expires_at,
    };
    let used = Used { public_key, certificate, at: now.utc };
    let enrollment = Enrollment { used: Some(used), ..enrollment.clone() };
    Ok(Enrolling::Applied { worker: Box::new(worker), enrollment: Box::new(enrollment) })
}
