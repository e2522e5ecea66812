//! `running`: the attempt's process runs; attempt and run together. A replay must match in every field.

use leasehold_core::attempt::{Callback as CoreCallback, Handle as CoreHandle, RunningCall};
use leasehold_core::counter::{CallbackSequence, SessionGeneration};
use leasehold_core::crypto::Digest;
use leasehold_core::id::BootId;
use leasehold_core::limits;
use leasehold_core::time::UtcMillis;
use serde::{Deserialize, Serialize};

use super::fence::LeaseProof;
use super::projection::Lease;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The proof of holding the lease.
    pub lease: LeaseProof,
    /// What runs.
    pub running: Running,
}

/// What runs, and which launch may end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// What the launcher started.
    pub handle: Handle,
    /// Which launch may end it.
    pub callback: Callback,
    /// When it started, by the worker's wall clock.
    #[serde(with = "field::utc")]
    pub started_at_ms: UtcMillis,
}

/// Names a process on its own machine and boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handle {
    /// The boot it lives in.
    #[serde(with = "field::text")]
    pub boot_id: BootId,
    /// Its process id.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

/// Names one launch by sequence and token digest; the token itself arrives only with the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// Chosen by the worker before the launch.
    #[serde(with = "field::number")]
    pub sequence: CallbackSequence,
    /// The digest of the completion token.
    #[serde(with = "field::text")]
    pub token_digest: Digest,
}

impl From<&RunningCall> for Running {
    fn from(core: &RunningCall) -> Self {
        Self {
            handle: Handle {
                boot_id: core.handle.boot.clone(),
                pid: core.handle.pid,
                start_time: core.handle.start_time,
            },
            callback: Callback { sequence: core.callback.sequence, token_digest: core.callback.token },
            started_at_ms: core.started_at,
        }
    }
}

impl From<&Running> for RunningCall {
    fn from(wire: &Running) -> Self {
        Self {
            handle: CoreHandle {
                boot: wire.handle.boot_id.clone(),
                pid: wire.handle.pid,
                start_time: wire.handle.start_time,
            },
            callback: CoreCallback { sequence: wire.callback.sequence, token: wire.callback.token_digest },
            started_at: wire.started_at_ms,
        }
    }
}

impl Message for RunningRequest {
    const SCHEMA: &'static str = "leasehold/running/v1";
    const LIMIT: usize = limits::JSON_BODY;
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningAnswer {
    /// The lease now.
    pub lease: Lease,
}

impl Message for RunningAnswer {
    const SCHEMA: &'static str = "leasehold/running-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
