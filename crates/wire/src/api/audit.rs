//! The audit as pages show it: who changed what.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::Time;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Its place in the order of all rows.
    pub sequence: u64,
    /// When.
    pub at: Time,
    /// Who: `local:1000`, `token:ci`, `worker:nas`, `system`.
    pub actor: String,
    /// From where: an address, or `admin socket`; missing for what the control plane does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// What was done.
    pub action: String,
    /// To what: `run/<id>`, `worker/<id>`, ….
    pub subject: String,
    /// The facts, by name; never a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}
