//! The fences as a worker sends them: session generation and lease proof. Worker, session and attempt stand in
//! certificate and path.

use leasehold_core::counter::{LeaseGeneration, SessionGeneration};
use leasehold_core::crypto::LeaseToken;
use leasehold_core::id::{AttemptId, OfferId, SessionId, WorkerId};
use leasehold_core::lease::LeaseFence;
use leasehold_core::session::SessionFence;
use serde::{Deserialize, Serialize};

use crate::field;

/// The proof that the caller holds a lease. Holds the token itself: never stored by the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseProof {
    /// The offer that the lease was claimed with.
    #[serde(with = "field::text")]
    pub offer_id: OfferId,
    /// Which claim of the attempt.
    #[serde(with = "field::number")]
    pub generation: LeaseGeneration,
    /// The token that the worker chose in its ask.
    #[serde(with = "field::token")]
    pub token: LeaseToken,
}

impl LeaseProof {
    /// The fence that core checks: the token as its digest.
    pub fn fence(&self, attempt: AttemptId) -> LeaseFence {
        LeaseFence { attempt, offer: self.offer_id, generation: self.generation, token: self.token.digest() }
    }
}

/// The fence that core checks: worker from the certificate, session from the path, generation from the body.
pub fn session_fence(worker: WorkerId, session: SessionId, generation: SessionGeneration) -> SessionFence {
    SessionFence { worker, session, generation }
}
