//! Who did it: the author of every mutation, on its audit row and its events.

use crate::id::{ApiTokenId, SessionId, WorkerId};

/// The author of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A person on the control plane's own machine, over the admin socket.
    Local {
        /// The operating-system user that the socket's peer credentials named.
        uid: u32,
    },
    /// The holder of an API token.
    ApiToken {
        /// Which token (its public id).
        token: ApiTokenId,
        /// The name the token was given.
        name: String,
    },
    /// A worker, by its certificate.
    Worker {
        /// Which worker.
        worker: WorkerId,
        /// In which session, when it has one.
        session: Option<SessionId>,
    },
    /// The control plane itself: expiry, retry, start-up.
    System,
}

impl std::fmt::Display for Actor {
    /// The one spelling used in events, audit rows and the API: `local:1000`, `token:ci`, `worker:nas`, `system`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { uid } => write!(f, "local:{uid}"),
            Self::ApiToken { name, .. } => write!(f, "token:{name}"),
            Self::Worker { worker, .. } => write!(f, "worker:{worker}"),
            Self::System => f.write_str("system"),
        }
    }
}
