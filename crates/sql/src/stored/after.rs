//! The successes that a run follows, as both databases keep them: the text that its job reads.

use leasehold_core::chain::After;

/// Reads what [`encode`] wrote.
pub(crate) fn decode(text: &str) -> Result<After, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// The stored text.
pub(crate) fn encode(after: &After) -> String {
    after.to_string()
}
