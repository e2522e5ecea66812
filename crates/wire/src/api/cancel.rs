//! Cancelling a run.

use leasehold_core::cancel::Cancel;
use leasehold_core::canonical::Value;
use leasehold_core::limits::{JSON_BODY, WHY_BYTES};
use leasehold_core::shape::ShapeError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::run::RunDetail;

/// The request; an empty body is one without a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CancelRun {
    /// The person's words, for the run's events.
    #[schemars(length(max = WHY_BYTES))]
    pub why: Option<String>,
}

asked!(CancelRun, JSON_BODY);

impl CancelRun {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        request::read(body, JSON_BODY, &["why"], |table, _| {
            Some(Self { why: table.optional("why").and_then(|f| f.any_text(WHY_BYTES)).map(str::to_owned) })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        Value::map(self.why.iter().map(|why| ("why", Value::text(why)))).to_bytes()
    }
}

/// What became of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelOutcome {
    /// Nothing had started: the run is cancelled.
    Ended,
    /// The wish is stored and the worker is told.
    Requested,
    /// The wish had been stored before.
    AlreadyRequested,
    /// The run was cancelled before.
    AlreadyCancelled,
}

impl From<&Cancel> for CancelOutcome {
    fn from(core: &Cancel) -> Self {
        match core {
            Cancel::Ended => Self::Ended,
            Cancel::Requested => Self::Requested,
            Cancel::AlreadyRequested => Self::AlreadyRequested,
            Cancel::AlreadyCancelled => Self::AlreadyCancelled,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelAnswer {
    /// What the cancel did.
    pub outcome: CancelOutcome,
    /// The run as it is then.
    pub run: RunDetail,
}
