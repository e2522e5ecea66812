//! An offer on the wire: work under a run lease, with everything needed to run it, at most 128 KiB.
//!
//! The revision crosses as its canonical document. The worker recomputes the digest before anything else; a drift does
//! not spoil the rest of the answer, so that the claim can be released by its proof.

use leasehold_core::chain::After;
use leasehold_core::counter::{AttemptNumber, FenceNumber, LeaseGeneration, LeaseVersion};
use leasehold_core::crypto::Digest;
use leasehold_core::device::Devices;
use leasehold_core::id::{AttemptId, OfferId, ProjectName, RunId, TaskName};
use leasehold_core::limits;
use leasehold_core::offer;
use leasehold_core::revision::Revision;
use leasehold_core::time::{Millis, UtcMillis};
use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::error::WireError;
use crate::field;

/// An offer. It never holds the lease token or its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The worker's own id for it.
    #[serde(with = "field::text")]
    pub offer_id: OfferId,
    /// The run.
    #[serde(with = "field::text")]
    pub run_id: RunId,
    /// The attempt.
    #[serde(with = "field::text")]
    pub attempt_id: AttemptId,
    /// Which try: 1, 2, …
    #[serde(with = "field::number")]
    pub attempt_number: AttemptNumber,
    /// Whose namespace.
    #[serde(with = "field::text")]
    pub project: ProjectName,
    /// Of which task, if of one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    pub task: Option<TaskName>,
    /// The digest of the revision below.
    #[serde(with = "field::text")]
    pub revision_digest: Digest,
    /// What to execute, in core's canonical shape.
    pub revision: Document,
    /// The run's fence number at this claim (`LEASEHOLD_FENCE`).
    #[serde(with = "field::number")]
    pub fence: FenceNumber,
    /// The lease that was claimed.
    pub lease: OfferLease,
    /// Why this worker: the placement's score.
    pub score: i64,
    /// The worker's devices that the attempt has for itself; left out where it has none. Only a session that declared them
    /// is sent any.
    #[serde(default, skip_serializing_if = "Devices::is_empty", with = "field::devices")]
    pub devices: Devices,
    /// When the run was submitted.
    #[serde(with = "field::utc")]
    pub created_at_ms: UtcMillis,
    /// The successes that the run follows (`LEASEHOLD_AFTER`); only for a worker with the feature `run-facts`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    pub after: Option<After>,
    /// The fire time that a schedule admitted the run for (`LEASEHOLD_SCHEDULED_AT`); only for a worker with `run-facts`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::utc::option")]
    pub scheduled_at_ms: Option<UtcMillis>,
}

/// The lease of an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferLease {
    /// Which claim of the attempt.
    #[serde(with = "field::number")]
    pub generation: LeaseGeneration,
    /// Its version.
    #[serde(with = "field::number")]
    pub version: LeaseVersion,
    /// How long it still ran when the offer was built.
    #[serde(with = "field::number")]
    pub remaining_ms: Millis,
    /// How long each renewal makes it last.
    #[serde(with = "field::number")]
    pub length_ms: Millis,
}

/// The revision of an offer is not what its digest says: release the claim with `revision_drift`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the revision of the offer is not what its digest says: {0}")]
pub struct Drift(pub String);

impl From<&offer::Offer> for Offer {
    fn from(core: &offer::Offer) -> Self {
        Self {
            offer_id: core.offer,
            run_id: core.run,
            attempt_id: core.attempt,
            attempt_number: core.number,
            project: core.project.clone(),
            task: core.task.clone(),
            revision_digest: core.digest,
            revision: Document(core.revision.to_value()),
            fence: core.fence,
            lease: OfferLease {
                generation: core.lease_generation,
                version: core.lease_version,
                remaining_ms: core.remaining,
                length_ms: core.lease,
            },
            score: core.score,
            devices: core.devices.clone(),
            created_at_ms: core.created_at,
            after: core.after.clone(),
            scheduled_at_ms: core.scheduled_at,
        }
    }
}

impl Offer {
    /// The offer as core knows it, its digest recomputed.
    pub fn to_core(&self) -> Result<offer::Offer, Drift> {
        let revision = Revision::from_value(&self.revision.0)
            .map_err(|errors| Drift(WireError::of_shape("revision", &errors).to_string()))?;
        let computed = revision.digest();
        if computed != self.revision_digest {
            return Err(Drift(format!("the digest should be {}, computed is {computed}", self.revision_digest)));
        }
        Ok(offer::Offer {
            offer: self.offer_id,
            run: self.run_id,
            attempt: self.attempt_id,
            number: self.attempt_number,
            project: self.project.clone(),
            task: self.task.clone(),
            digest: self.revision_digest,
            revision,
            fence: self.fence,
            lease_generation: self.lease.generation,
            lease_version: self.lease.version,
            remaining: self.lease.remaining_ms,
            lease: self.lease.length_ms,
            score: self.score,
            devices: self.devices.clone(),
            created_at: self.created_at_ms,
            after: self.after.clone(),
            scheduled_at: self.scheduled_at_ms,
        })
    }

    pub(super) fn check(&self, field: &str) -> Result<(), WireError> {
        // Everything around the revision has fixed bounds far below the difference of the two limits.
        let size = self.revision.0.to_bytes().len();
        if size > limits::REVISION_BYTES {
            let allowed = format!("at most {} bytes", limits::REVISION_BYTES);
            return Err(WireError::limit(format!("{field}.revision"), format!("{size} bytes"), allowed));
        }
        Ok(())
    }
}
