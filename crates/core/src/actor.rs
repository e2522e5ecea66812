//! Who did it, and from where: the author of every mutation, on its audit row and its events.

use core::net::IpAddr;

use crate::id::{ApiTokenId, SessionId, TaskName, TriggerName, WorkerId};

/// From where a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The control plane's own machine, over the admin socket.
    AdminSocket,
    /// The network; a port says nothing about who it was.
    Address(IpAddr),
}

impl std::fmt::Display for Origin {
    /// The one spelling used in audit rows, the log and the API: `admin socket`, `192.0.2.7`, `2001:db8::1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AdminSocket => f.write_str("admin socket"),
            // An IPv4 client of a dual-stack listener is shown as what it is.
            Self::Address(address) => address.to_canonical().fmt(f),
        }
    }
}

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
        /// From where it was used.
        origin: Origin,
    },
    /// Whoever called a webhook with its token.
    Webhook {
        /// Of which task.
        task: TaskName,
        /// Its name in the task.
        trigger: TriggerName,
        /// From where it was called.
        origin: Origin,
    },
    /// A worker, by its certificate.
    Worker {
        /// Which worker.
        worker: WorkerId,
        /// In which session, when it has one.
        session: Option<SessionId>,
        /// From where, for what is audited.
        origin: Option<Origin>,
    },
    /// The control plane itself: expiry, retry, start-up.
    System,
}

impl Actor {
    /// From where it acted, where that is known.
    pub const fn origin(&self) -> Option<Origin> {
        match self {
            Self::Local { .. } => Some(Origin::AdminSocket),
            Self::ApiToken { origin, .. } | Self::Webhook { origin, .. } => Some(*origin),
            Self::Worker { origin, .. } => *origin,
            Self::System => None,
        }
    }
}

impl std::fmt::Display for Actor {
    /// The one spelling used in events, audit rows and the API: `local:1000`, `token:ci`, `webhook:report/push`,
    /// `worker:nas`, `system`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { uid } => write!(f, "local:{uid}"),
            Self::ApiToken { name, .. } => write!(f, "token:{name}"),
            Self::Webhook { task, trigger, .. } => write!(f, "webhook:{task}/{trigger}"),
            Self::Worker { worker, .. } => write!(f, "worker:{worker}"),
            Self::System => f.write_str("system"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_spelled_as_people_know_it() {
        let spelled = |address: &str| Origin::Address(address.parse().unwrap()).to_string();
        assert_eq!(spelled("192.0.2.7"), "192.0.2.7");
        assert_eq!(spelled("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(spelled("2001:db8::1"), "2001:db8::1");
        assert_eq!(Actor::Local { uid: 7 }.origin().unwrap().to_string(), "admin socket");
        assert_eq!(Actor::System.origin(), None);
        let origin = Origin::Address("192.0.2.7".parse().unwrap());
        let webhook = Actor::Webhook { task: "report".parse().unwrap(), trigger: "push".parse().unwrap(), origin };
        assert_eq!((webhook.to_string().as_str(), webhook.origin()), ("webhook:report/push", Some(origin)));
    }
}
