//! A page of a list, and where the next one begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// What `?after=` takes for the next page; missing on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
