//! A person's word on a lost run.

use leasehold_core::canonical::Value;
use leasehold_core::counter::AttemptNumber;
use leasehold_core::limits::{JSON_BODY, WHY_BYTES};
use leasehold_core::resolve::{Resolve, Verb};
use leasehold_core::shape::ShapeError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::run::RunDetail;
use super::schema;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ResolveRun {
    /// What is said.
    #[schemars(with = "schema::OneOf<Verb>")]
    pub verb: Verb,
    /// The person's reason, for the run's events and the audit.
    #[schemars(length(max = WHY_BYTES))]
    pub why: Option<String>,
    /// The attempt that it is said about: a word that names it never speaks about one that came since.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub attempt: Option<AttemptNumber>,
}

asked!(ResolveRun, JSON_BODY);

impl ResolveRun {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        request::read(body, JSON_BODY, &["attempt", "verb", "why"], |table, _| {
            let verb =
                table.required("verb", "wait, retry, mark-failed or mark-succeeded").and_then(|f| f.named(Verb::ALL));
            let why = table.optional("why").and_then(|f| f.any_text(WHY_BYTES)).map(str::to_owned);
            let number = table.optional("attempt").and_then(|f| f.unsigned(1..=u32::MAX));
            let attempt = number.and_then(|number| AttemptNumber::new(number.into()).ok());
            Some(Self { verb: verb?, why, attempt })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let attempt = self.attempt.map(|number| i64::try_from(number.get()).unwrap_or(i64::MAX));
        let entries = [
            Some(("verb", Value::text(self.verb.as_str()))),
            self.why.as_ref().map(|why| ("why", Value::text(why))),
            attempt.map(|number| ("attempt", Value::Int(number))),
        ];
        Value::map(entries.into_iter().flatten()).to_bytes()
    }
}

/// What became of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveOutcome {
    /// It is noted; the question stays open.
    Noted,
    /// It closed the question.
    Closed,
    /// The same word had closed it before.
    AlreadyClosed,
}

impl From<Resolve> for ResolveOutcome {
    fn from(core: Resolve) -> Self {
        match core {
            Resolve::Noted => Self::Noted,
            Resolve::Closed => Self::Closed,
            Resolve::AlreadyClosed => Self::AlreadyClosed,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolveAnswer {
    /// What the word did.
    pub outcome: ResolveOutcome,
    /// The run as it is then.
    pub run: RunDetail,
}
