//! `GET /api/v1/audit`: who changed what, oldest first.

use axum::extract::State;
use leasehold_wire::api::audit::AuditEntry;
use leasehold_wire::api::page::Page;

use super::Api;
use super::answer::{Answered, Json};
use super::query::Query;

pub(super) async fn audit(State(api): State<Api>, query: Query) -> Answered<Page<AuditEntry>> {
    let query = query.only(&["after", "limit"])?;
    let limit = query.limit()?;
    let rows = api.control.audit(query.one("after")?, limit).await?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|last| last.sequence.to_string());
    let items = rows
        .into_iter()
        .map(|row| AuditEntry {
            sequence: row.sequence,
            at: row.at.into(),
            actor: row.actor,
            action: row.action,
            subject: row.subject,
            facts: row.facts,
        })
        .collect();
    Ok(Json::ok(Page { items, next }))
}
