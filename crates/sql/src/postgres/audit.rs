//! The audit: who changed what. A row is written in the transaction of the change, or neither is.

use std::collections::BTreeMap;
use std::fmt::Display;

use leasehold_core::actor::Actor;
use leasehold_store::call::AuditPage;
use leasehold_store::view::AuditEntry;

use super::column::values;
use super::transaction::{Fault, Tx};

/// Writes one row. `action` is the port method's name, or what was found out; the facts hold no secret.
pub(super) async fn write(
    tx: &Tx,
    actor: &Actor,
    action: &str,
    subject: String,
    facts: &[(&str, &(dyn Display + Sync))],
) -> Result<(), Fault> {
    let facts: BTreeMap<String, String> =
        facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.to_string())).collect();
    tx.execute_one(
        "audit",
        "INSERT INTO audit (at, actor, origin, action, subject, facts) VALUES ($1, $2, $3, $4, $5, $6)",
        values![
            tx.now.utc,
            actor.to_string(),
            actor.origin().map(|origin| origin.to_string()),
            action.to_owned(),
            subject,
            facts
        ],
    )
    .await
}

/// A page of rows.
pub(super) async fn page(tx: &Tx, page: AuditPage, limit: usize) -> Result<Vec<AuditEntry>, Fault> {
    let (sql, from) = match page {
        AuditPage::Oldest { after } => (
            "SELECT sequence, at, actor, origin, action, subject, facts FROM audit WHERE sequence > $1 \
             ORDER BY sequence LIMIT $2",
            after.unwrap_or(0),
        ),
        AuditPage::Newest { before } => (
            "SELECT sequence, at, actor, origin, action, subject, facts FROM audit WHERE sequence < $1 \
             ORDER BY sequence DESC LIMIT $2",
            before.unwrap_or(u64::MAX),
        ),
    };
    tx.all(sql, values![from, limit], |columns| {
        Ok(AuditEntry {
            sequence: columns.next()?,
            at: columns.next()?,
            actor: columns.next()?,
            origin: columns.next()?,
            action: columns.next()?,
            subject: columns.next()?,
            facts: columns.next()?,
        })
    })
    .await
}
