//! Letting one registration of a worker in that would be kept out.

use leasehold_core::canonical::Value;
use leasehold_core::limits::{JSON_BODY, TAKEOVER_TTL, TAKEOVER_TTL_MAX, WHY_BYTES};
use leasehold_core::shape::ShapeError;
use leasehold_core::time::Millis;
use schemars::JsonSchema;

use super::enrollment::TTL_MIN;
use super::request::{self, asked};
use super::schema;

/// The request; an empty body asks for every default. The answer is the worker.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GrantTakeover {
    /// How long the grant counts: 15 minutes unless told otherwise, at most a day.
    #[schemars(with = "Option<schema::Span>")]
    pub ttl: Millis,
    /// The person's words, for the worker's page and the audit.
    #[schemars(length(max = WHY_BYTES))]
    pub why: Option<String>,
}

impl Default for GrantTakeover {
    fn default() -> Self {
        Self { ttl: TAKEOVER_TTL, why: None }
    }
}

asked!(GrantTakeover, JSON_BODY);

impl GrantTakeover {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        request::read(body, JSON_BODY, &["ttl", "why"], |table, _| {
            let ttl = table.optional("ttl").and_then(|f| f.duration(TTL_MIN..=TAKEOVER_TTL_MAX));
            let why = table.optional("why").and_then(|f| f.any_text(WHY_BYTES)).map(str::to_owned);
            Some(Self { ttl: ttl.unwrap_or(TAKEOVER_TTL), why })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let why = self.why.iter().map(|why| ("why", Value::text(why)));
        Value::map([("ttl", Value::text(self.ttl.to_string()))].into_iter().chain(why)).to_bytes()
    }
}
