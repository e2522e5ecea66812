//! A worker: one machine's lasting identity, from enrollment to deletion.

use std::collections::BTreeMap;

use crate::counter::SessionGeneration;
use crate::id::{EnrollmentId, SessionId, WorkerId};
use crate::time::UtcMillis;

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
