//! Evidence: what is known of an attempt whose end nobody saw, and what that proves.
//!
//! Evidence only grows, and closes no question by itself: that is [`crate::end`]'s part. What it says about *does
//! something of it still run* is one flag, [`Attempt::may_live`], set by one kind and refuted by others. (Worker design,
//! *The decidable spawn barrier*; ADR-0111.)

use super::{Attempt, Resolution};

names! {
    /// What is known of an attempt whose end nobody saw.
    pub enum EvidenceKind as "evidence" {
        /// The control plane heard nothing until the lease had ended.
        LeaseExpired = "lease_expired",
        /// The machine started anew; the boot that ran it is gone.
        MachineRebooted = "machine_rebooted",
        /// The launcher died; everything it had started is verified to be gone.
        LauncherKilledAllGone = "launcher_killed_all_gone",
        /// The launcher died; something it had started may live.
        LauncherKilledMayLive = "launcher_killed_may_live",
        /// The launcher stopped it because its lease was about to end: proof that nothing runs.
        StoppedForLease = "stopped_for_lease",
        /// The worker's own record of it is damaged.
        RecordDamaged = "record_damaged",
        /// A person declared its machine destroyed.
        Destroyed = "destroyed",
    }
}

impl EvidenceKind {
    /// Whether nothing of the attempt runs any more, if this is true.
    pub const fn proves_gone(self) -> bool {
        matches!(self, Self::MachineRebooted | Self::LauncherKilledAllGone | Self::StoppedForLease | Self::Destroyed)
    }

    /// Whether a worker may say it in an `end` of its own: the rest is the control plane's, a launcher's receipt's or a
    /// person's to say.
    pub const fn is_workers_word(self) -> bool {
        match self {
            Self::MachineRebooted | Self::LauncherKilledAllGone | Self::LauncherKilledMayLive | Self::RecordDamaged => {
                true
            }
            Self::LeaseExpired | Self::StoppedForLease | Self::Destroyed => false,
        }
    }
}

/// Processes of an attempt that the kernel does not let go of although its launcher kills them (`cancel_incomplete`): told
/// while it is being stopped, and with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// How many there were when the launcher gave up: at least one.
    pub count: u64,
    /// The process ids of the first of them, at most [`crate::limits::LEFT_PIDS`].
    pub pids: Vec<u32>,
}

impl Attempt {
    /// Whether it is proven that nothing of it runs any more.
    pub fn is_gone(&self) -> bool {
        !self.may_live
            && (self.resolution == Resolution::Receipt || self.evidence.iter().any(|kind| kind.proves_gone()))
    }

    /// One thing more is known of it. A proof that it is gone refutes that something may live, and stands against a
    /// later doubt.
    pub(crate) fn learn(&mut self, kind: EvidenceKind) {
        let gone = self.is_gone();
        self.evidence.insert(kind);
        if matches!(kind, EvidenceKind::MachineRebooted | EvidenceKind::Destroyed) {
            self.left = None;
        }
        // What stopped the job says nothing of what the kernel would not let go.
        if kind.proves_gone() && self.left.is_none() {
            self.may_live = false;
        } else if kind == EvidenceKind::LauncherKilledMayLive && !gone {
            self.may_live = true;
        }
    }

    /// What the kernel would not let go when its launcher stopped it.
    pub(crate) fn leaves(&mut self, left: &Left) {
        self.may_live = true;
        self.left = Some(left.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::AttemptNumber;

    fn attempt() -> Attempt {
        let id = "01900000-0000-7000-8000-000000000001";
        Attempt::pending(id.parse().unwrap(), id.parse().unwrap(), AttemptNumber::FIRST)
    }

    #[test]
    fn a_proof_refutes_a_doubt_whichever_comes_first() {
        for proof in EvidenceKind::ALL.iter().copied().filter(|kind| kind.proves_gone()) {
            for order in [[proof, EvidenceKind::LauncherKilledMayLive], [EvidenceKind::LauncherKilledMayLive, proof]] {
                let mut attempt = attempt();
                for kind in order {
                    attempt.learn(kind);
                }
                assert!(attempt.is_gone() && !attempt.may_live, "{order:?}");
                assert_eq!(attempt.evidence.len(), 2);
            }
        }
    }

    #[test]
    fn silence_proves_nothing_either_way() {
        let mut attempt = attempt();
        attempt.learn(EvidenceKind::LeaseExpired);
        attempt.learn(EvidenceKind::RecordDamaged);
        assert!(!attempt.is_gone() && !attempt.may_live);
        attempt.learn(EvidenceKind::LauncherKilledMayLive);
        assert!(!attempt.is_gone() && attempt.may_live);
    }
}
