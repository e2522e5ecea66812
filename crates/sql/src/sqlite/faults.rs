//! Worker faults: one narrow row per worker that has any, in one canonical text.

use leasehold_core::fault::Fault;
use leasehold_core::id::WorkerId;

use super::column::values;
use super::rows;
use super::transaction::{Fault as Failed, Tx};
use crate::stored::faults as stored;

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
        values![*worker, stored::encode(faults), tx.now.utc],
    )
}

/// What a worker said last.
pub(super) fn of(tx: &Tx<'_>, worker: &WorkerId) -> Result<Vec<Fault>, Failed> {
    let sql = "SELECT faults FROM worker_fault WHERE worker = ?1";
    let Some(text) = tx.first(sql, values![*worker], rows::column::<String, _>)? else { return Ok(Vec::new()) };
    stored::decode(&text).ok_or_else(|| Failed::Damaged(format!("the faults of worker {worker} cannot be read")))
}
