//! Who calls: the worker that a certificate names, or the person or program behind an operator's request.
//!
//! A body never establishes identity. (Protocol, *Identity*.)

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::counter::SessionGeneration;
use leasehold_core::id::{SessionId, TrustDomain, WorkerId};
use leasehold_core::role::Role;
use leasehold_core::session::SessionFence;
use leasehold_core::time::UtcMillis;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A worker, as its certificate names it: the first argument of every worker-facing service.
///
/// Only the listener makes one, from the certificate that its handshake verified; there is no other constructor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPrincipal {
    worker: WorkerId,
    expires_at: UtcMillis,
    origin: Option<Origin>,
}

/// A verified certificate that names no worker of this installation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAWorker {
    /// It cannot be read.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It does not have exactly one URI among its names.
    #[error("the certificate names {0} URIs instead of one")]
    Uris(usize),
    /// Its URI is no worker of this trust domain.
    #[error("the certificate does not name a worker of this installation")]
    Foreign,
}

impl WorkerPrincipal {
    /// The worker of `leaf`, a DER certificate whose chain to this installation's CA the TLS handshake has verified.
    /// **For the listener alone**: an unverified certificate proves nothing, and this function does not verify it.
    pub fn of_verified_certificate(leaf: &[u8], domain: &TrustDomain) -> Result<Self, NotAWorker> {
        let (rest, certificate) = X509Certificate::from_der(leaf).map_err(|_| NotAWorker::Unreadable)?;
        if !rest.is_empty() {
            return Err(NotAWorker::Unreadable);
        }
        let names = certificate.subject_alternative_name().map_err(|_| NotAWorker::Unreadable)?;
        let uris: Vec<&str> = names
            .iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
            .collect();
        let [uri] = uris[..] else {
            return Err(NotAWorker::Uris(uris.len()));
        };
        let worker = domain.worker_of(uri).ok_or(NotAWorker::Foreign)?;
        Ok(Self { worker, expires_at: end_of(&certificate), origin: None })
    }

    /// The same worker, seen at `origin`: for the audit, never for a decision.
    #[must_use]
    pub fn seen_at(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// Which worker.
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// When its certificate ends: checked per request, because a connection may outlive it.
    pub fn expires_at(&self) -> UtcMillis {
        self.expires_at
    }

    /// From where it calls, where the listener knows.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.origin
    }

    pub(crate) fn fence(&self, session: SessionRef) -> SessionFence {
        SessionFence { worker: self.worker.clone(), session: session.id, generation: session.generation }
    }
}

fn end_of(certificate: &X509Certificate<'_>) -> UtcMillis {
    UtcMillis::new(certificate.validity().not_after.timestamp().saturating_mul(1000))
}

/// When a certificate (DER) ends; none if it is no certificate.
pub fn certificate_end(der: &[u8]) -> Option<UtcMillis> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| end_of(&certificate))
}

/// The session that a request names: its id from the path, its generation from the body. The worker is the certificate's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRef {
    /// Which session.
    pub id: SessionId,
    /// Its generation, as its registration was answered.
    pub generation: SessionGeneration,
}

/// A person or program that uses the operator API: the first argument of every service that they cause a change with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who, for events and audit.
    pub actor: Actor,
    /// What they may do; the API's permission registry compares it before a service is called.
    pub role: Role,
    /// From where, for the log and the audit.
    pub origin: Origin,
}

impl Caller {
    /// A person on the control plane's own machine, by the peer credentials of the admin socket.
    pub fn local(uid: u32) -> Self {
        Self { actor: Actor::Local { uid }, role: Role::Admin, origin: Origin::AdminSocket }
    }
}
