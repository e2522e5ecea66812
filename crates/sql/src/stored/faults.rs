//! What a worker said of its faults, as one canonical text.

use leasehold_core::canonical::Value;
use leasehold_core::fault::Fault;
use leasehold_core::limits::{FAULT_DETAIL_BYTES, FAULTS};
use leasehold_core::time::UtcMillis;

/// A stored list: more than any that is written.
const BYTES: usize = FAULTS * (FAULT_DETAIL_BYTES * 6 + 256);

/// The text of `faults`.
pub(crate) fn encode(faults: &[Fault]) -> String {
    let fault = |fault: &Fault| {
        let mut entries = vec![
            ("kind", Value::text(fault.kind.as_str())),
            ("detail", Value::text(&fault.detail)),
            ("since", Value::Int(fault.since.get())),
        ];
        if let Some(attempt) = fault.attempt {
            entries.push(("attempt", Value::text(attempt.to_string())));
        }
        Value::map(entries)
    };
    Value::List(faults.iter().map(fault).collect()).to_canonical_text()
}

/// What [`encode`] wrote.
pub(crate) fn decode(text: &str) -> Option<Vec<Fault>> {
    let Value::List(faults) = Value::parse_canonical(text.as_bytes(), BYTES).ok()? else { return None };
    let fault = |value: Value| {
        let Value::Map(entries) = value else { return None };
        let text = |key: &str| match entries.get(key) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let Some(Value::Int(since)) = entries.get("since") else { return None };
        Some(Fault {
            kind: text("kind")?.parse().ok()?,
            attempt: match text("attempt") {
                Some(attempt) => Some(attempt.parse().ok()?),
                None => None,
            },
            detail: text("detail")?.to_owned(),
            since: UtcMillis::new(*since),
        })
    };
    faults.into_iter().map(fault).collect()
}
