//! A worker: one machine's lasting identity, from enrollment to deletion, and a person's wish that it take nothing new.
//!
//! The wish stands on the worker, not on a session: it outlives every restart of either side, and the claim is refused
//! whether the machine has heard of it or not. (Worker design, *Shutdown*; product, *The command line*.)

use std::collections::BTreeMap;

use crate::actor::Actor;
use crate::counter::SessionGeneration;
use crate::id::{EnrollmentId, SessionId, WorkerId};
use crate::session::{Session, SessionState};
use crate::time::{Now, UtcMillis};

names! {
    /// Whether a worker may speak at all.
    pub enum WorkerState as "worker state" {
        /// Enrolled and trusted.
        Active = "active",
        /// Its certificates are no longer accepted.
        Revoked = "revoked",
    }
}

/// A worker as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its name, fixed at enrollment.
    pub id: WorkerId,
    /// Which enrollment made it; the first registration ticket is derived from it.
    pub enrollment: EnrollmentId,
    /// Whether it may speak.
    pub state: WorkerState,
    /// Labels given at enrollment; they override what the machine says of itself.
    pub labels: BTreeMap<String, String>,
    /// Its session now, if it ever registered.
    pub current: Option<SessionId>,
    /// The generation of its latest session.
    pub generation: Option<SessionGeneration>,
    /// A newcomer that waits because the current session is live.
    pub rival: Option<Rival>,
    /// A person's wish that it take nothing new.
    pub drain: Option<Drain>,
    /// A person's permission for one registration that would be kept out otherwise.
    pub takeover: Option<Takeover>,
    /// When it enrolled.
    pub enrolled_at: UtcMillis,
    /// When its newest certificate ends.
    pub certificate_expires_at: UtcMillis,
}

/// A session that asked to register while another boot's session was live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// The newcomer.
    pub session: SessionId,
    /// How often the live session has spoken since the newcomer was first refused.
    pub heard: u32,
    /// Whether it was audited as a copied credential: once per newcomer.
    pub audited: bool,
}

/// A person's wish that a worker take nothing new; what it holds goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Who, as [`Actor`] prints.
    pub by: String,
    /// The person's words.
    pub why: Option<String>,
    /// When.
    pub at: UtcMillis,
}

/// A person's permission for one registration that would be kept out otherwise: because another session is live, or because
/// the ticket was spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    /// Who, as [`Actor`] prints.
    pub by: String,
    /// The person's words.
    pub why: Option<String>,
    /// Until when it counts.
    pub expires_at: UtcMillis,
}

impl Worker {
    /// The worker with a takeover granted; none if this very grant stands already. A later grant replaces an earlier one.
    pub fn takeover_granted(&self, actor: &Actor, why: Option<&str>, expires_at: UtcMillis) -> Option<Self> {
        let takeover = Takeover { by: actor.to_string(), why: why.map(str::to_owned), expires_at };
        (self.takeover.as_ref() != Some(&takeover)).then(|| Self { takeover: Some(takeover), ..self.clone() })
    }

    /// The worker draining from now on; none if it does already: the first wish stands, with its author.
    pub fn drained(&self, actor: &Actor, why: Option<&str>, now: Now) -> Option<Self> {
        let drain = Drain { by: actor.to_string(), why: why.map(str::to_owned), at: now.utc };
        self.drain.is_none().then(|| Self { drain: Some(drain), ..self.clone() })
    }

    /// The worker taking work again; none if nobody had drained it.
    pub fn resumed(&self) -> Option<Self> {
        self.drain.is_some().then(|| Self { drain: None, ..self.clone() })
    }

    /// Whether a run may be claimed for it in this session: neither a person nor the agent itself drains it.
    pub fn takes_work(&self, session: &Session) -> bool {
        self.drain.is_none() && session.state == SessionState::Active
    }
}
