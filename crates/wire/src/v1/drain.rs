//! `drain`: the session finishes what it holds and takes nothing new. Repeating it counts as a beat.

use leasehold_core::counter::{SessionGeneration, SessionVersion};
use leasehold_core::limits;
use serde::{Deserialize, Serialize};

use super::projection::Session;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The session version that the worker expects; acceptance adds one.
    #[serde(with = "field::number")]
    pub session_version: SessionVersion,
}

impl Message for DrainRequest {
    const SCHEMA: &'static str = "leasehold/drain/v1";
    const LIMIT: usize = limits::JSON_BODY;
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainAnswer {
    /// The session now.
    pub session: Session,
}

impl Message for DrainAnswer {
    const SCHEMA: &'static str = "leasehold/drain-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
