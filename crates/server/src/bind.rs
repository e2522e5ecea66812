//! Why the server cannot listen: what, where, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A listener that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{what} cannot listen on {address}: another program does already; stop it, or choose another port")]
    InUse {
        /// Which listener: `the operator API` or `the worker ingress`.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// This machine has no such address.
    #[error(
        "{what} cannot listen on {address}: this machine has no such address; choose one of its own, or 0.0.0.0 for all"
    )]
    NoSuchAddress {
        /// Which listener.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// This user may not listen there.
    #[error("{what} cannot listen on {address}: not allowed for this user; choose a port of 1024 or higher")]
    NotAllowed {
        /// Which listener.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// Another control plane answers on the admin socket.
    #[error("the admin socket {} belongs to a control plane that runs: stop it, or use another data directory", path.display())]
    AdminSocketInUse {
        /// Which file.
        path: PathBuf,
    },
    /// The admin socket cannot be made.
    #[error("the admin socket {} cannot be made", path.display())]
    AdminSocket {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Anything else that the operating system says.
    #[error("{what} cannot listen on {address}")]
    Other {
        /// Which listener.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The control plane's certificate cannot be made.
    #[error("the control plane's certificate cannot be made: {reason}")]
    Certificate {
        /// Why; never a key.
        reason: String,
    },
    /// The certificate and key cannot be used for TLS.
    #[error("the control plane's certificate cannot be used")]
    Tls(#[from] rustls::Error),
}

impl BindError {
    pub(crate) fn of(what: &'static str, address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { what, address },
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress { what, address },
            io::ErrorKind::PermissionDenied => Self::NotAllowed { what, address },
            _ => Self::Other { what, address, source },
        }
    }

    pub(crate) fn of_path(path: &Path, source: io::Error) -> Self {
        Self::AdminSocket { path: path.to_owned(), source }
    }
}
