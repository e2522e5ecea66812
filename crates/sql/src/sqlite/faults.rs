//! Worker faults: one narrow row per worker that has any, in one canonical text.

use leasehold_core::canonical::Value;
use leasehold_core::fault::Fault;
use leasehold_core::id::WorkerId;
use leasehold_core::limits::{FAULT_DETAIL_BYTES, FAULTS};
use leasehold_core::time::UtcMillis;

use super::column::values;
use super::rows;
use super::transaction::{Fault as Failed, Tx};

/// A stored list: more than any that is written.
const BYTES: usize = FAULTS * (FAULT_DETAIL_BYTES * 6 + 256);

/// Replaces what a worker said of its faults.
pub(super) fn write(tx: &Tx<'_>, worker: &WorkerId, faults: &[Fault]) -> Result<(), Failed> {
    if faults.is_empty() {
        tx.execute("DELETE FROM worker_fault WHERE worker = ?1", values![*worker])?;
        return Ok(());
    }
    tx.execute_one(
        "faults",
        "INSERT INTO worker_fault (worker, faults, said_at) VALUES (?1, ?2, ?3) \
         ON CONFLICT (worker) DO UPDATE SET faults = excluded.faults, said_at = excluded.said_at",
        values![*worker, encode(faults), tx.now.utc],
    )
}

/// What a worker said last.
pub(super) fn of(tx: &Tx<'_>, worker: &WorkerId) -> Result<Vec<Fault>, Failed> {
    let sql = "SELECT faults FROM worker_fault WHERE worker = ?1";
    let Some(text) = tx.first(sql, values![*worker], rows::column::<String>)? else { return Ok(Vec::new()) };
    decode(&text).ok_or_else(|| Failed::Damaged(format!("the faults of worker {worker} cannot be read")))
}

fn encode(faults: &[Fault]) -> String {
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

fn decode(text: &str) -> Option<Vec<Fault>> {
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
