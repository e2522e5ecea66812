//! `starting`: may this attempt start now? Within 20 s of the claim.

use leasehold_core::attempt::{Starting, StartingAnswer as Granted};
use leasehold_core::counter::SessionGeneration;
use leasehold_core::limits;
use leasehold_core::time::Millis;
use serde::{Deserialize, Serialize};

use super::fence::LeaseProof;
use super::projection::Lease;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartingRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The proof of holding the lease.
    pub lease: LeaseProof,
}

impl Message for StartingRequest {
    const SCHEMA: &'static str = "leasehold/starting/v1";
    const LIMIT: usize = limits::JSON_BODY;
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartingAnswer {
    /// Whether it may start.
    pub verdict: StartingVerdict,
}

/// Whether an attempt may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StartingVerdict {
    /// It is starting by this call.
    Accepted(MayStart),
    /// It was starting already, by the same holder.
    AlreadyStarting(MayStart),
    /// It runs already, by the same holder.
    AlreadyRunning(MayStart),
    /// It was to stop before it started: attempt and lease have ended, nothing may run.
    Stopped {
        /// The ended lease.
        lease: Lease,
    },
}

/// The lease and time limit of an attempt that may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MayStart {
    /// The lease now.
    pub lease: Lease,
    /// How long the process may still run, where the revision limits it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::number::option")]
    pub timeout_remaining_ms: Option<Millis>,
}

impl From<&Granted> for MayStart {
    fn from(core: &Granted) -> Self {
        Self { lease: (&core.lease).into(), timeout_remaining_ms: core.timeout }
    }
}

impl From<&MayStart> for Granted {
    fn from(wire: &MayStart) -> Self {
        Self { lease: (&wire.lease).into(), timeout: wire.timeout_remaining_ms }
    }
}

impl From<&Starting> for StartingAnswer {
    fn from(core: &Starting) -> Self {
        let verdict = match core {
            Starting::Accepted(granted) => StartingVerdict::Accepted(granted.into()),
            Starting::AlreadyStarting(granted) => StartingVerdict::AlreadyStarting(granted.into()),
            Starting::AlreadyRunning(granted) => StartingVerdict::AlreadyRunning(granted.into()),
            Starting::Stopped(lease) => StartingVerdict::Stopped { lease: lease.into() },
        };
        Self { verdict }
    }
}

impl From<&StartingAnswer> for Starting {
    fn from(wire: &StartingAnswer) -> Self {
        match &wire.verdict {
            StartingVerdict::Accepted(granted) => Self::Accepted(granted.into()),
            StartingVerdict::AlreadyStarting(granted) => Self::AlreadyStarting(granted.into()),
            StartingVerdict::AlreadyRunning(granted) => Self::AlreadyRunning(granted.into()),
            StartingVerdict::Stopped { lease } => Self::Stopped(lease.into()),
        }
    }
}

impl Message for StartingAnswer {
    const SCHEMA: &'static str = "leasehold/starting-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
