//! `problem`: the body of every refusal (`application/problem+json`, RFC 9457), with a stable code and, on conflicts, the
//! current projections.

use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::Millis;
use serde::{Deserialize, Serialize};

use super::projection::{Lease, Session};
use crate::codes;
use crate::error::WireError;
use crate::field;
use crate::parse::Message;

/// The content type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";
/// Most characters of a detail.
pub const DETAIL: usize = 512;

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// A URI of the kind of problem: `urn:leasehold:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem, for people.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// The stable code.
    #[serde(with = "field::text")]
    pub code: RefusalCode,
    /// What was wrong here, what is allowed, what to do. Never a secret.
    pub detail: String,
    /// The field that cannot be read, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Whether it was done, where that is not certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Done>,
    /// When asking again makes sense, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::number::option")]
    pub retry_after_ms: Option<Millis>,
    /// The session as it is, on conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The lease as it is, on conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

/// What is known of a call that was not answered as it should be. Whoever does not know this member cannot read the problem
/// and concludes the same: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// It may have been done: only the same call again tells.
    Unknown,
}

impl Problem {
    /// The same, of a call of which nobody knows whether it was done.
    #[must_use]
    pub fn of_an_unknown_commit(self) -> Self {
        Self { done: Some(Done::Unknown), ..self }
    }
}

impl From<&Refusal> for Problem {
    fn from(core: &Refusal) -> Self {
        Self {
            kind: format!("urn:leasehold:problem:{}", core.code),
            title: codes::title(core.code).to_owned(),
            status: codes::status(core.code),
            code: core.code,
            detail: core.message.chars().take(DETAIL).collect(),
            field: None,
            done: None,
            retry_after_ms: core.retry_after,
            session: core.session.as_deref().map(Into::into),
            lease: core.lease.as_deref().map(Into::into),
        }
    }
}

impl From<&WireError> for Problem {
    fn from(error: &WireError) -> Self {
        let field = (!error.field.is_empty()).then(|| error.field.clone());
        Self { field, ..Self::from(&error.to_refusal()) }
    }
}

impl From<&Problem> for Refusal {
    fn from(wire: &Problem) -> Self {
        Self {
            code: wire.code,
            message: wire.detail.clone(),
            retry_after: wire.retry_after_ms,
            session: wire.session.as_ref().map(|session| Box::new(session.into())),
            lease: wire.lease.as_ref().map(|lease| Box::new(lease.into())),
        }
    }
}

impl Message for Problem {
    const SCHEMA: &'static str = "leasehold/problem/v1";
    const LIMIT: usize = limits::JSON_BODY;
}

/// A refusal inside an answer, such as the verdict on one renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The stable code.
    #[serde(with = "field::text")]
    pub code: RefusalCode,
    /// Why, for people.
    pub detail: String,
    /// The lease as it is, where it may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

impl From<&Refusal> for Refused {
    fn from(core: &Refusal) -> Self {
        Self {
            code: core.code,
            detail: core.message.chars().take(DETAIL).collect(),
            lease: core.lease.as_deref().map(Into::into),
        }
    }
}

impl From<&Refused> for Refusal {
    fn from(wire: &Refused) -> Self {
        Self {
            lease: wire.lease.as_ref().map(|lease| Box::new(lease.into())),
            ..Self::new(wire.code, wire.detail.clone())
        }
    }
}
