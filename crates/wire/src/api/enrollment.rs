//! Allowing one machine to become a worker, and the line to paste on it.

use std::collections::BTreeMap;

use leasehold_core::canonical::Value;
use leasehold_core::id::{EnrollmentId, WorkerId};
use leasehold_core::limits::{ENROLLMENT_TTL, ENROLLMENT_TTL_MAX, JSON_BODY, LABELS, NAME_BYTES};
use leasehold_core::shape::ShapeError;
use leasehold_core::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::schema;
use super::secret::SecretText;
use super::time::Time;
use super::worker::WorkerStatus;
use crate::field;

/// The shortest life of a token: for a script that pastes at once.
pub const TTL_MIN: Millis = Millis::from_secs(1);

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CreateEnrollment {
    /// The worker it makes; without a name the control plane makes one up.
    #[schemars(with = "Option<schema::Name>")]
    pub worker: Option<WorkerId>,
    /// Labels the worker gets.
    #[schemars(default)]
    pub labels: BTreeMap<String, String>,
    /// How long the token works: 15 minutes unless told otherwise, at most 7 days.
    #[schemars(with = "Option<schema::Span>")]
    pub ttl: Millis,
}

impl Default for CreateEnrollment {
    fn default() -> Self {
        Self { worker: None, labels: BTreeMap::new(), ttl: ENROLLMENT_TTL }
    }
}

asked!(CreateEnrollment, JSON_BODY);

impl CreateEnrollment {
    /// Reads a body; answers every mistake. An empty body asks for every default.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        request::read(body, JSON_BODY, &["labels", "ttl", "worker"], |table, _| {
            let worker = table.optional("worker").and_then(|f| f.parsed(NAME_BYTES));
            let labels = table.optional("labels").map(|field| {
                let entries = field.entries(LABELS).into_iter().filter(|(key, entry)| entry.key_is_name(key));
                entries.filter_map(|(key, entry)| Some((key.to_owned(), entry.line(NAME_BYTES)?.to_owned()))).collect()
            });
            let ttl = table.optional("ttl").and_then(|f| f.duration(TTL_MIN..=ENROLLMENT_TTL_MAX));
            Some(Self { worker, labels: labels.unwrap_or_default(), ttl: ttl.unwrap_or(ENROLLMENT_TTL) })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let mut entries = vec![
            ("labels", Value::map(self.labels.iter().map(|(key, text)| (key, Value::text(text))))),
            ("ttl", Value::text(self.ttl.to_string())),
        ];
        if let Some(worker) = &self.worker {
            entries.push(("worker", Value::text(worker.as_str())));
        }
        Value::map(entries).to_bytes()
    }
}

/// The answer: the only one of the API that holds a secret, and only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnrollmentAnswer {
    /// The enrollment.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub id: EnrollmentId,
    /// The worker it makes.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub worker: WorkerId,
    /// Labels the worker gets.
    pub labels: BTreeMap<String, String>,
    /// When the token stops working.
    pub expires_at: Time,
    /// Where the worker ingress is, such as `https://control.example:7443`.
    pub ingress: String,
    /// The join token: see [`leasehold_core::join::JoinToken`].
    pub token: SecretText,
    /// The worker of that name as it is, where there is one: whoever uses the token takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<WorkerStatus>,
}

impl EnrollmentAnswer {
    /// The line to paste on the new machine. It holds the token.
    pub fn join_line(&self) -> SecretText {
        SecretText::new(format!("leasehold-worker join {} --token {}", self.ingress, self.token.reveal()))
    }
}
