//! A secret text that an answer is meant to carry, once: wiped when dropped, never `Debug`-printed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A secret text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The secret of a text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the person or program that is meant to have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(…)")
    }
}
