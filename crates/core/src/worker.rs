//! A worker: one machine's lasting identity, from enrollment to deletion, and a person's wish that it take nothing new.
//!
//! The wish stands on the worker, not on a session: it outlives every restart of either side, and the claim is refused
//! whether the machine has heard of it or not. (Worker design, *Shutdown*; product, *The command line*.)

use std::collections::BTreeMap;

use crate::actor::Actor;
use crate::counter::SessionGeneration;
use crate::id::{EnrollmentId, SessionId, WorkerId};
use crate::refusal::{Refusal, RefusalCode};
use crate::session::{Session, SessionState};
use crate::time::{Now, UtcMillis};

names! {
    /// Whether a worker may speak at all.
    pub enum WorkerState as "worker state" {
        /// Enrolled and trusted.
        Active = "active",
        /// Its certificates are no longer accepted.
        Revoked = "revoked",
        /// A person deleted it: its row stays for the runs it held, and nobody speaks for it.
        Deleted = "deleted",
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

/// What a worker still holds, so that deleting it would lose the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker holds {live} live {} and {open} lost {} whose question is open", attempts(*.live), attempts(*.open))]
pub struct Holds {
    /// Attempts whose leases it holds.
    pub live: u64,
    /// Lost attempts whose run is an open question, or of which something may live; without those whose machine a person
    /// declared destroyed: no worker will answer for them.
    pub open: u64,
}

fn attempts(count: u64) -> &'static str {
    if count == 1 { "attempt" } else { "attempts" }
}

impl Holds {
    /// Whether there is anything.
    pub const fn is_empty(self) -> bool {
        self.live == 0 && self.open == 0
    }
}

impl Worker {
    /// Whether anybody may speak for it: the truth of revocation and deletion, for the transaction that decides.
    pub fn check_trusted(&self) -> Result<(), Refusal> {
        let refused = |why: &str| Err(Refusal::new(RefusalCode::Revoked, why));
        match self.state {
            WorkerState::Active => Ok(()),
            WorkerState::Revoked => refused("this worker's identity was revoked"),
            WorkerState::Deleted => refused("this worker was deleted: enroll the machine again if that was a mistake"),
        }
    }

    /// The worker deleted; none if it was before. What it holds keeps it, unless a person is sure that the machine is
    /// gone (`destroyed`): that ends its identity first, so that nothing is added to what [`crate::end::destroyed`] has
    /// to settle.
    pub fn deleted(&self, holds: Holds, destroyed: bool) -> Result<Option<Self>, Holds> {
        if self.state == WorkerState::Deleted {
            return Ok(None);
        }
        if !destroyed && !holds.is_empty() {
            return Err(holds);
        }
        let worker = Self { state: WorkerState::Deleted, current: None, rival: None, ..self.clone() };
        Ok(Some(Self { drain: None, takeover: None, ..worker }))
    }

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
