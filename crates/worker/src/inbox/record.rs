//! One inbox record in memory, and the only way it changes.
//!
//! Offer, revision, claiming session, lease generation, token, boot and `accepted_at` never change; the record's version
//! grows by one; `updated_at` never goes back; the stage moves by the one table of [`leasehold_core::inbox`].
//! (Worker design, *Inbox*; ADR-0111 §1.)

use leasehold_core::attempt::RunningCall;
use leasehold_core::counter::{LeaseGeneration, LeaseVersion, RecordVersion, SessionGeneration};
use leasehold_core::crypto::{Digest, LeaseToken};
use leasehold_core::id::{AttemptId, BootId, OfferId, SessionId};
use leasehold_core::inbox::{InboxState, Stage};
use leasehold_core::lease::LeaseFence;
use leasehold_core::offer::Offer;
use leasehold_core::time::UtcMillis;

/// One offer, from delivery to settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Compare-and-swap version.
    pub version: RecordVersion,
    /// What was offered. Its lease version is the one of the delivery; later ones live in memory.
    pub offer: Offer,
    /// The secret that proves the lease.
    pub token: LeaseToken,
    /// The session that claimed it.
    pub session: SessionId,
    /// That session's generation.
    pub session_generation: SessionGeneration,
    /// The boot that accepted it: a tombstone proves something only there.
    pub boot: BootId,
    /// When it was accepted.
    pub accepted_at: UtcMillis,
    /// When it last changed.
    pub updated_at: UtcMillis,
    /// When the launcher was about to be called.
    pub launched_at: Option<UtcMillis>,
    /// Where it stands, with the facts that belong to it.
    pub stage: Stage,
}

/// A step that the table of inbox transitions does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the inbox record of offer {offer} cannot go from {from} to {to}")]
pub struct TransitionError {
    /// Which record.
    pub offer: OfferId,
    /// Where it stands.
    pub from: InboxState,
    /// Where it was to go.
    pub to: InboxState,
}

impl Record {
    /// A record of a fresh offer.
    pub fn accepted(
        offer: Offer,
        token: LeaseToken,
        session: SessionId,
        session_generation: SessionGeneration,
        boot: BootId,
        now: UtcMillis,
    ) -> Self {
        Self {
            version: RecordVersion::FIRST,
            offer,
            token,
            session,
            session_generation,
            boot,
            accepted_at: now,
            updated_at: now,
            launched_at: None,
            stage: Stage::Accepted,
        }
    }

    /// The same record one version later, at `stage`.
    pub fn moved(&self, stage: Stage, now: UtcMillis) -> Result<Self, TransitionError> {
        let (from, to) = (self.stage.state(), stage.state());
        if !from.may_become(to) {
            return Err(TransitionError { offer: self.offer.offer, from, to });
        }
        let updated_at = self.updated_at.max(now);
        let launched_at = if to == InboxState::Launching { Some(updated_at) } else { self.launched_at };
        Ok(Self { version: self.version.next(), updated_at, launched_at, stage, ..self.clone() })
    }

    /// The key of the record.
    pub fn id(&self) -> OfferId {
        self.offer.offer
    }

    /// The attempt that it is about.
    pub fn attempt(&self) -> AttemptId {
        self.offer.attempt
    }

    /// Where it stands.
    pub fn state(&self) -> InboxState {
        self.stage.state()
    }

    /// The digest of the token, as the control plane keeps it.
    pub fn token_digest(&self) -> Digest {
        self.token.digest()
    }

    /// What the offer's lease is.
    pub fn lease_generation(&self) -> LeaseGeneration {
        self.offer.lease_generation
    }

    /// The lease's version at delivery.
    pub fn lease_version(&self) -> LeaseVersion {
        self.offer.lease_version
    }

    /// The fence of its lease, with the token's digest.
    pub fn fence(&self) -> LeaseFence {
        LeaseFence {
            attempt: self.attempt(),
            offer: self.id(),
            generation: self.lease_generation(),
            token: self.token_digest(),
        }
    }

    /// What `running` says of it, once something runs.
    pub fn running(&self) -> Option<RunningCall> {
        match &self.stage {
            Stage::Started { callback, handle } | Stage::RunningAcknowledged { callback, handle } => {
                Some(RunningCall {
                    handle: handle.clone(),
                    callback: *callback,
                    started_at: self.launched_at.unwrap_or(self.updated_at),
                })
            }
            _ => None,
        }
    }

    /// Whether nothing but the stage, the clocks and the version differs, and those only as they may.
    pub fn may_replace(&self, old: &Self) -> bool {
        let step = old.moved(self.stage.clone(), self.updated_at);
        self.updated_at >= old.updated_at && step.is_ok_and(|step| step == *self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use leasehold_core::attempt::{Callback, Handle};
    use leasehold_core::counter::{AttemptNumber, CallbackSequence, FenceNumber};
    use leasehold_core::crypto::CompletionToken;
    use leasehold_core::device::Devices;
    use leasehold_core::id::{ProjectName, RunId};
    use leasehold_core::inbox::ClosedReason;
    use leasehold_core::revision::Revision;
    use leasehold_core::time::{Entropy, Millis};

    use super::*;

    pub(crate) struct Bytes(pub(crate) u8);
    impl Entropy for Bytes {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    pub(crate) fn offer(n: u8, argv: &[&str]) -> Offer {
        let revision = Revision::of_argv(argv.iter().copied()).unwrap();
        let at = UtcMillis::new(1_800_000_000_000);
        Offer {
            offer: OfferId::new(at, &Bytes(n)),
            run: RunId::new(at, &Bytes(n)),
            attempt: AttemptId::new(at, &Bytes(n)),
            number: AttemptNumber::FIRST,
            project: ProjectName::default(),
            task: None,
            digest: revision.digest(),
            revision,
            fence: FenceNumber::FIRST,
            lease_generation: LeaseGeneration::FIRST,
            lease_version: LeaseVersion::FIRST,
            remaining: Millis::from_secs(20),
            lease: Millis::from_secs(600),
            score: 0,
            devices: Devices::default(),
            created_at: at,
            after: None,
            scheduled_at: Some(at),
        }
    }

    pub(crate) fn record(n: u8) -> Record {
        let at = UtcMillis::new(1_800_000_000_000);
        Record::accepted(
            offer(n, &["true"]),
            LeaseToken::from_bytes([n; 32]),
            SessionId::new(at, &Bytes(1)),
            SessionGeneration::FIRST,
            "11111111-2222-3333-4444-555555555555".parse().unwrap(),
            at,
        )
    }

    pub(crate) fn callback() -> Callback {
        Callback { sequence: CallbackSequence::FIRST, token: CompletionToken::from_bytes([9; 32]).digest() }
    }

    pub(crate) fn handle() -> Handle {
        Handle { boot: "11111111-2222-3333-4444-555555555555".parse().unwrap(), pid: 4711, start_time: 12 }
    }

    #[test]
    fn a_settled_record_never_changes() {
        let closed = Stage::Closed { reason: ClosedReason::Released, released: None, evidence: None };
        let record = record(1).moved(closed, UtcMillis::new(0)).unwrap();
        let refused = record.moved(Stage::StartingAcknowledged, UtcMillis::new(0)).unwrap_err();
        assert_eq!((refused.from, refused.to), (InboxState::Closed, InboxState::StartingAcknowledged));
    }

    #[test]
    fn a_step_grows_the_version_and_never_sets_a_clock_back() {
        let first = record(1);
        let next = first.moved(Stage::StartingAcknowledged, UtcMillis::new(5)).unwrap();
        assert_eq!(next.version, first.version.next());
        assert_eq!(next.updated_at, first.updated_at, "a wall clock that stepped back");
        assert!(next.may_replace(&first));
        assert!(!first.may_replace(&next));
        assert!(!next.may_replace(&next));
    }

    #[test]
    fn what_never_changes_may_not_be_replaced() {
        let first = record(1);
        let next = first.moved(Stage::StartingAcknowledged, first.updated_at).unwrap();
        for other in [
            Record { token: LeaseToken::from_bytes([7; 32]), ..next.clone() },
            Record { accepted_at: UtcMillis::new(1), ..next.clone() },
            Record { boot: "another".parse().unwrap(), ..next.clone() },
            Record { offer: offer(1, &["false"]), ..next.clone() },
        ] {
            assert!(!other.may_replace(&first));
        }
    }
}
