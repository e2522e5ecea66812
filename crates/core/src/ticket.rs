//! Registration tickets: what makes a copied credential visible, and useless after its first rival.
//!
//! Every registration spends the ticket of the previous answer. A ticket is derived, not stored, so any replica can
//! repeat an answer. (Protocol, *Sessions*; ADR-0012 §2 asks for this protection of a takeover.)

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::counter::SessionGeneration;
use crate::crypto::{Domain, EnrollmentToken, Ticket, keyed};
use crate::id::{EnrollmentId, SessionId, WorkerId};
use crate::time::Entropy;

/// The control plane's key for deriving tickets; kept in the store under the master key.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TicketKey([u8; 32]);

impl TicketKey {
    /// A new key.
    pub fn new(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// The key of 32 stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, for wrapping.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The ticket that enrollment answers, good for the first registration.
    pub fn first(&self, worker: &WorkerId, enrollment: EnrollmentId) -> Ticket {
        self.derive(worker, enrollment.as_bytes(), 0)
    }

    /// The ticket that the registration of `session` answers, good for the next one.
    pub fn next(&self, worker: &WorkerId, session: SessionId, generation: SessionGeneration) -> Ticket {
        self.derive(worker, session.as_bytes(), generation.get())
    }

    /// The enrollment token of a request with an idempotency key: the same for the same key, so that a lost answer can be
    /// given again although no token is stored.
    pub fn invitation(&self, key: &str) -> EnrollmentToken {
        EnrollmentToken::from_bytes(keyed(&self.0, Domain::EnrollmentToken, &[b"invitation", key.as_bytes()]))
    }

    /// Bytes that are the same for the same key and the same request only.
    pub fn fingerprint(&self, key: &str, request: &[u8]) -> [u8; 32] {
        keyed(&self.0, Domain::Body, &[b"invitation", key.as_bytes(), request])
    }

    fn derive(&self, worker: &WorkerId, id: &[u8; 16], generation: u64) -> Ticket {
        Ticket::from_bytes(keyed(&self.0, Domain::Ticket, &[worker.as_str().as_bytes(), id, &generation.to_be_bytes()]))
    }
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(…)")
    }
}
