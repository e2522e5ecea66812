//! The audit: who changed what. A row is written in the transaction of the change, or neither is.

use std::collections::BTreeMap;
use std::fmt::Display;

use leasehold_core::actor::Actor;
use leasehold_store::view::AuditEntry;

use super::column::values;
use super::transaction::{Fault, Tx};

/// Writes one row. `action` is the port method's name, or what was found out; the facts hold no secret.
pub(super) fn write(
    tx: &Tx<'_>,
    actor: &Actor,
    action: &str,
    subject: impl Display,
    facts: &[(&str, &dyn Display)],
) -> Result<(), Fault> {
    let facts: BTreeMap<String, String> =
        facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.to_string())).collect();
    tx.execute_one(
        "audit",
        "INSERT INTO audit (at, actor, action, subject, facts) VALUES (?1, ?2, ?3, ?4, ?5)",
        values![tx.now.utc, actor.to_string(), action.to_owned(), subject.to_string(), facts],
    )
}

/// A page of rows, oldest first.
pub(super) fn page(tx: &Tx<'_>, after: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>, Fault> {
    let sql =
        "SELECT sequence, at, actor, action, subject, facts FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
    tx.all(sql, values![after.unwrap_or(0), limit], |columns| {
        Ok(AuditEntry {
            sequence: columns.next()?,
            at: columns.next()?,
            actor: columns.next()?,
            action: columns.next()?,
            subject: columns.next()?,
            facts: columns.next()?,
        })
    })
}
