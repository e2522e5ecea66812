//! An offer: work handed to a worker under a run lease, with everything it needs to run it.
//!
//! The worker recomputes the revision's digest and refuses a drift. The offer never holds the token or its digest.
//! (Protocol, *Asks and offers*.)

use crate::counter::{AttemptNumber, FenceNumber, LeaseGeneration, LeaseVersion};
use crate::crypto::Digest;
use crate::id::{AttemptId, OfferId, ProjectName, RunId, TaskName};
use crate::revision::Revision;
use crate::time::{Millis, UtcMillis};

/// An offer as it crosses the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The worker's own id for it.
    pub offer: OfferId,
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: AttemptId,
    /// Which try.
    pub number: AttemptNumber,
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task, if of one.
    pub task: Option<TaskName>,
    /// Digest of the revision below.
    pub digest: Digest,
    /// What to execute.
    pub revision: Revision,
    /// The run's fence number at this claim.
    pub fence: FenceNumber,
    /// Which claim of the attempt.
    pub lease_generation: LeaseGeneration,
    /// The lease's version.
    pub lease_version: LeaseVersion,
    /// How long the lease still ran when the offer was built.
    pub remaining: Millis,
    /// How long each renewal makes it last.
    pub lease: Millis,
    /// Why this worker: the placement's score.
    pub score: i64,
    /// When the run was submitted.
    pub created_at: UtcMillis,
}
