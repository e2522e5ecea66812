//! What a control plane is and speaks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The software's version.
    pub version: String,
    /// The oldest version of the worker protocol that it speaks.
    pub protocol_min: u16,
    /// The newest.
    pub protocol_max: u16,
}
