//! Who is at the other end of a connection, as the listener knows it: carried by every request as an extension.
//!
//! The principal is made here and nowhere else, from the certificate that the handshake verified.

use std::net::SocketAddr;

use leasehold_control::principal::{NotAWorker, WorkerPrincipal};
use leasehold_core::actor::Origin;
use leasehold_core::id::TrustDomain;
use rustls_pki_types::CertificateDer;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// On the worker ingress.
    Ingress {
        /// From where.
        address: SocketAddr,
        /// With which certificate.
        presented: Presented,
    },
    /// On the operator API's port.
    Operator {
        /// From where.
        address: SocketAddr,
    },
    /// On the admin socket: a user of this machine whom the socket has admitted.
    AdminSocket {
        /// Which user.
        uid: u32,
    },
}

/// What a client of the worker ingress showed of itself.
#[derive(Debug, Clone)]
pub(crate) enum Presented {
    /// No certificate.
    Nothing,
    /// A certificate of our CA that names a worker. That it has not expired is judged per request.
    Worker(WorkerPrincipal),
    /// A certificate of our CA that names none.
    Other(NotAWorker),
}

impl Presented {
    /// What `certificates`, verified by the handshake of a client at `from`, say; the leaf is the first.
    pub(super) fn of(certificates: Option<&[CertificateDer<'_>]>, domain: &TrustDomain, from: SocketAddr) -> Self {
        match certificates.and_then(<[_]>::first) {
            None => Self::Nothing,
            Some(leaf) => match WorkerPrincipal::of_verified_certificate(leaf, domain) {
                Ok(principal) => Self::Worker(principal.seen_at(Origin::Address(from.ip()))),
                Err(refused) => Self::Other(refused),
            },
        }
    }
}
