//! The story of a run, one event after another.

use std::collections::BTreeMap;

use leasehold_core::event;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::run::RunState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::time::Time;
use crate::field;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its place in the run's story: 1, 2, …
    pub sequence: u64,
    /// When.
    pub at: Time,
    /// What happened, such as `attempt.claimed`.
    pub kind: String,
    /// To which run.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub run_id: RunId,
    /// To which of its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Id>")]
    pub attempt_id: Option<AttemptId>,
    /// Who did it: `local:1000`, `token:ci`, `worker:nas`, `system`.
    pub actor: String,
    /// The facts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

impl From<&event::Event> for Event {
    fn from(core: &event::Event) -> Self {
        Self {
            sequence: core.sequence.get(),
            at: core.at.into(),
            kind: core.kind.to_string(),
            run_id: core.run,
            attempt_id: core.attempt,
            actor: core.actor.clone(),
            facts: core.facts.clone(),
        }
    }
}

/// The last of the server-sent events of a run (`event: end`): nothing more comes. A stream without it broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventsEnd {
    /// Where the run stands.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<RunState>")]
    pub run_state: RunState,
}
