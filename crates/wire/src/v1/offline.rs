//! `offline`: the session leaves; only when it holds no lease, so that no machine is called stopped without proof.

use leasehold_core::counter::{SessionGeneration, SessionVersion};
use leasehold_core::limits;
use serde::{Deserialize, Serialize};

use super::projection::Session;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfflineRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The session version that the worker expects; acceptance adds one.
    #[serde(with = "field::number")]
    pub session_version: SessionVersion,
}

impl Message for OfflineRequest {
    const SCHEMA: &'static str = "leasehold/offline/v1";
    const LIMIT: usize = limits::JSON_BODY;
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfflineAnswer {
    /// The session now.
    pub session: Session,
}

impl Message for OfflineAnswer {
    const SCHEMA: &'static str = "leasehold/offline-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
