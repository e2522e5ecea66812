//! Texts by name (facts, labels), as one canonical text.

use std::collections::BTreeMap;

use leasehold_core::canonical::Value;

/// The largest text of names and facts that is read back; what is written is bounded far below.
const TEXTS_BYTES: usize = 1 << 20;

/// The text of `texts`.
pub(crate) fn encode(texts: &BTreeMap<String, String>) -> String {
    Value::map(texts.iter().map(|(name, text)| (name, Value::text(text)))).to_canonical_text()
}

/// What [`encode`] wrote.
pub(crate) fn decode(text: &str) -> Result<BTreeMap<String, String>, String> {
    let value = Value::parse_canonical(text.as_bytes(), TEXTS_BYTES).map_err(|error| error.to_string())?;
    let Value::Map(entries) = value else { return Err(format!("expected texts by name, found {}", value.kind())) };
    let entries = entries.into_iter().map(|(name, value)| match value {
        Value::Text(text) => Ok((name, text)),
        other => Err(format!("{name}: expected a text, found {}", other.kind())),
    });
    entries.collect()
}
