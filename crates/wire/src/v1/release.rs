//! `release`: the claim is given back unstarted. The run is not offered to this worker again for a while.

use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::SessionGeneration;
use leasehold_core::limits;
use serde::{Deserialize, Serialize};

use super::fence::LeaseProof;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The proof of holding the lease.
    pub lease: LeaseProof,
    /// Why.
    #[serde(with = "field::text")]
    pub reason: ReleaseReason,
}

impl Message for ReleaseRequest {
    const SCHEMA: &'static str = "leasehold/release/v1";
    const LIMIT: usize = limits::JSON_BODY;
}

/// The answer: it was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseAnswer {}

impl Message for ReleaseAnswer {
    const SCHEMA: &'static str = "leasehold/release-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
