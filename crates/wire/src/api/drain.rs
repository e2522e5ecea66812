//! Draining a worker, and resuming it.

use leasehold_core::canonical::Value;
use leasehold_core::limits::{JSON_BODY, WHY_BYTES};
use leasehold_core::shape::ShapeError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::worker::WorkerDetail;

/// The request of both; an empty body is one without a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DrainWorker {
    /// The person's words, for the worker's page and the audit.
    #[schemars(length(max = WHY_BYTES))]
    pub why: Option<String>,
}

asked!(DrainWorker, JSON_BODY);

impl DrainWorker {
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

/// The answer of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainAnswer {
    /// Whether it changed anything; otherwise it was so before.
    pub changed: bool,
    /// The worker as it is then.
    pub worker: WorkerDetail,
}
