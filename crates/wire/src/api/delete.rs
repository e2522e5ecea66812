//! Deleting a worker.

use leasehold_core::canonical::Value;
use leasehold_core::limits::{JSON_BODY, WHY_BYTES};
use leasehold_core::shape::ShapeError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};

/// The request; an empty body deletes a worker that holds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DeleteWorker {
    /// Whether the person is sure that the machine is gone, with everything that ran there.
    #[schemars(default)]
    pub destroyed: bool,
    /// The person's words, for the audit.
    #[schemars(length(max = WHY_BYTES))]
    pub why: Option<String>,
}

asked!(DeleteWorker, JSON_BODY);

impl DeleteWorker {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        request::read(body, JSON_BODY, &["destroyed", "why"], |table, _| {
            let destroyed = table.optional("destroyed").and_then(|f| f.boolean()).unwrap_or_default();
            let why = table.optional("why").and_then(|f| f.any_text(WHY_BYTES)).map(str::to_owned);
            Some(Self { destroyed, why })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let why = self.why.iter().map(|why| ("why", Value::text(why)));
        Value::map([("destroyed", Value::Bool(self.destroyed))].into_iter().chain(why)).to_bytes()
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteAnswer {
    /// Whether it changed anything; otherwise the worker had been deleted before.
    pub changed: bool,
    /// How many runs it settled, or gave evidence to.
    pub runs: u32,
}
