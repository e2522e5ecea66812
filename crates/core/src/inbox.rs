//! The worker's inbox: one record per offer, from delivery to settlement, and its one table of transitions.
//!
//! There is no second journal. Offer, revision, session, lease generation and token never change; the lease version and
//! the clocks only grow; settled states never move. (Worker design, *Inbox*; ADR-0111 §1.)

use crate::attempt::{Callback, EvidenceKind, Handle, RejectReason};
use crate::claim::ReleaseReason;

names! {
    /// Where an inbox record stands.
    pub enum InboxState as "inbox state" {
        /// The offer is durable here; nothing was acknowledged.
        Accepted = "accepted",
        /// The control plane knows that it is about to start.
        StartingAcknowledged = "starting_acknowledged",
        /// The launcher is about to be called, or was.
        Launching = "launching",
        /// The launcher started it.
        Started = "started",
        /// The control plane knows that it runs.
        RunningAcknowledged = "running_acknowledged",
        /// Settled: the end was accepted, or had been.
        CompletionAcknowledged = "completion_acknowledged",
        /// Settled: the failed start was accepted.
        StartFailureAcknowledged = "start_failure_acknowledged",
        /// Settled: released, cancelled, or no longer ours.
        Closed = "closed",
        /// Open: provably nothing of the user's ran; to be reported.
        StartFailed = "start_failed",
        /// Open: what became of the launch is to be found out.
        RecoveryRequired = "recovery_required",
    }
}

impl InboxState {
    /// Whether the record is done with and may be removed.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::CompletionAcknowledged | Self::StartFailureAcknowledged | Self::Closed)
    }

    /// Whether the one table of inbox transitions allows this step.
    pub const fn may_become(self, to: Self) -> bool {
        use InboxState::{
            Accepted, Closed, CompletionAcknowledged, Launching, RecoveryRequired, RunningAcknowledged, StartFailed,
            StartFailureAcknowledged, Started, StartingAcknowledged,
        };
        match self {
            Accepted => matches!(to, StartingAcknowledged | Closed),
            StartingAcknowledged => matches!(to, Launching | StartFailed | RecoveryRequired | Closed),
            Launching => matches!(to, Started | StartFailed | RecoveryRequired | CompletionAcknowledged | Closed),
            Started => matches!(to, RunningAcknowledged | StartFailed | CompletionAcknowledged | Closed),
            RunningAcknowledged => matches!(to, StartFailed | CompletionAcknowledged | Closed),
            RecoveryRequired => matches!(to, Started | StartFailed | CompletionAcknowledged | Closed),
            StartFailed => matches!(to, StartFailureAcknowledged | Closed),
            CompletionAcknowledged | StartFailureAcknowledged | Closed => false,
        }
    }
}

names! {
    /// Why a record was closed without an end or a start failure.
    pub enum ClosedReason as "closed reason" {
        /// The claim was given back.
        Released = "released",
        /// The control plane had ended it before it started.
        Cancelled = "cancelled",
        /// The lease was lost before anything started.
        LeaseLost = "lease_lost",
        /// Its end could not be proven and was reported so.
        Lost = "lost",
        /// The control plane no longer knows it.
        Gone = "gone",
    }
}

names! {
    /// Why an outcome has to be found out.
    pub enum RecoveryReason as "recovery reason" {
        /// The launcher's answer did not arrive, or made no sense.
        LaunchOutcomeUnknown = "launch_outcome_unknown",
        /// The control plane knows the attempt as running; this record does not.
        KnownAsRunning = "known_as_running",
        /// The record contradicts what is on disk.
        RecordDamaged = "record_damaged",
    }
}

/// A state with the facts that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// See [`InboxState::Accepted`].
    Accepted,
    /// See [`InboxState::StartingAcknowledged`].
    StartingAcknowledged,
    /// See [`InboxState::Launching`].
    Launching {
        /// Which launch: sequence and token digest, never the token.
        callback: Callback,
    },
    /// See [`InboxState::Started`].
    Started {
        /// Which launch.
        callback: Callback,
        /// What it started.
        handle: Handle,
    },
    /// See [`InboxState::RunningAcknowledged`].
    RunningAcknowledged {
        /// Which launch.
        callback: Callback,
        /// What it started.
        handle: Handle,
    },
    /// See [`InboxState::CompletionAcknowledged`].
    CompletionAcknowledged,
    /// See [`InboxState::StartFailureAcknowledged`].
    StartFailureAcknowledged,
    /// See [`InboxState::Closed`].
    Closed {
        /// Why.
        reason: ClosedReason,
        /// For `released`: what the control plane was told.
        released: Option<ReleaseReason>,
        /// For `lost`: what is known.
        evidence: Option<EvidenceKind>,
    },
    /// See [`InboxState::StartFailed`].
    StartFailed {
        /// The launcher's reason; none means *never spawned*.
        reason: Option<RejectReason>,
        /// In the launcher's words, at most 512 characters.
        detail: String,
        /// Which launch said so, when one did.
        callback: Option<Callback>,
    },
    /// See [`InboxState::RecoveryRequired`].
    RecoveryRequired {
        /// Why.
        reason: RecoveryReason,
        /// Which launch, when there was one: without it the attempt is *lost*.
        callback: Option<Callback>,
    },
}

impl Stage {
    /// The state without its facts.
    pub const fn state(&self) -> InboxState {
        match self {
            Self::Accepted => InboxState::Accepted,
            Self::StartingAcknowledged => InboxState::StartingAcknowledged,
            Self::Launching { .. } => InboxState::Launching,
            Self::Started { .. } => InboxState::Started,
            Self::RunningAcknowledged { .. } => InboxState::RunningAcknowledged,
            Self::CompletionAcknowledged => InboxState::CompletionAcknowledged,
            Self::StartFailureAcknowledged => InboxState::StartFailureAcknowledged,
            Self::Closed { .. } => InboxState::Closed,
            Self::StartFailed { .. } => InboxState::StartFailed,
            Self::RecoveryRequired { .. } => InboxState::RecoveryRequired,
        }
    }

    /// The launch that the record knows of.
    pub const fn callback(&self) -> Option<Callback> {
        match self {
            Self::Launching { callback }
            | Self::Started { callback, .. }
            | Self::RunningAcknowledged { callback, .. } => Some(*callback),
            Self::StartFailed { callback, .. } | Self::RecoveryRequired { callback, .. } => *callback,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_inbox_transitions_is_the_worker_designs() {
        let rows = [
            ("accepted", "starting_acknowledged closed"),
            ("starting_acknowledged", "launching start_failed recovery_required closed"),
            ("launching", "started start_failed recovery_required completion_acknowledged closed"),
            ("started", "running_acknowledged start_failed completion_acknowledged closed"),
            ("running_acknowledged", "start_failed completion_acknowledged closed"),
            ("completion_acknowledged", ""),
            ("start_failure_acknowledged", ""),
            ("closed", ""),
            ("start_failed", "start_failure_acknowledged closed"),
            ("recovery_required", "started start_failed completion_acknowledged closed"),
        ];
        for (from, allowed) in rows {
            let from: InboxState = from.parse().unwrap();
            for to in InboxState::ALL {
                let listed = allowed.split(' ').any(|name| name == to.as_str());
                assert_eq!(from.may_become(*to), listed, "{from} → {to}");
            }
            assert_eq!(from.is_settled(), allowed.is_empty(), "{from}");
        }
        assert_eq!(rows.len(), InboxState::ALL.len());
    }
}
