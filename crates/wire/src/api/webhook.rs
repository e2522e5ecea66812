//! Webhooks: their tokens, and what a call is answered. A call's body is that of a run of its task: [`super::task::RunTask`].

use leasehold_core::id::RunId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schedule::TriggerId;
use super::schema;
use super::secret::SecretText;
use super::time::Time;
use crate::field;

/// A new token of a webhook: the one answer that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookTokenAnswer {
    /// Of which webhook.
    #[serde(flatten)]
    pub id: TriggerId,
    /// The path that is called: `POST`, with `Authorization: Bearer <token>`.
    pub path: String,
    /// What lets a program call it, and nothing else.
    pub token: SecretText,
    /// When it was made; the one before stopped working then.
    pub made_at: Time,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It has a run: a new one (201), or the one that the same idempotency key had started (200).
    Admitted,
    /// A run of its task stands in the way; none was started.
    Skipped,
}

/// The answer to a call: no more than its caller has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallAnswer {
    /// What became of it.
    pub outcome: CallOutcome,
    /// Admitted: its run.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Id>")]
    pub run_id: Option<RunId>,
    /// Skipped: the run that stands in the way.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Id>")]
    pub by_run_id: Option<RunId>,
}

impl CallAnswer {
    /// A call that has a run.
    pub const fn admitted(run: RunId) -> Self {
        Self { outcome: CallOutcome::Admitted, run_id: Some(run), by_run_id: None }
    }

    /// A call that something stands in the way of.
    pub const fn skipped(by: RunId) -> Self {
        Self { outcome: CallOutcome::Skipped, run_id: None, by_run_id: Some(by) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_which_run_it_is_about() {
        let run: RunId = "0198a3c1-0000-7000-8000-000000000003".parse().unwrap();
        let text = |answer: &CallAnswer| serde_json::to_string(answer).unwrap();
        assert_eq!(text(&CallAnswer::admitted(run)), format!(r#"{{"outcome":"admitted","run_id":"{run}"}}"#));
        assert_eq!(text(&CallAnswer::skipped(run)), format!(r#"{{"outcome":"skipped","by_run_id":"{run}"}}"#));
    }
}
