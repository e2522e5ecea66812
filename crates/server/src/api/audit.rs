//! `GET /api/v1/audit`: who changed what, from where; from either end.

use axum::extract::State;
use leasehold_control::view::AuditPage;
use leasehold_wire::api::audit::AuditEntry;
use leasehold_wire::api::page::Page;

use super::Api;
use super::answer::{Answered, Json};
use super::query::{AFTER, COUNTED, Known, LIMIT, Param, Query};

/// What the audit is asked by.
pub(super) struct Listed;

impl Known for Listed {
    const PARAMS: &'static [Param] = &[AFTER, LIMIT, Param::switch("newest", "Whether the newest comes first.")];
}

pub(super) async fn audit(State(api): State<Api>, query: Query<Listed>) -> Answered<Page<AuditEntry>> {
    let limit = query.limit()?;
    let last = query.number("after", COUNTED)?;
    let page =
        if query.switch("newest")? { AuditPage::Newest { before: last } } else { AuditPage::Oldest { after: last } };
    let rows = api.control.audit(page, limit).await?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|last| last.sequence.to_string());
    let items = rows
        .into_iter()
        .map(|row| AuditEntry {
            sequence: row.sequence,
            at: row.at.into(),
            actor: row.actor,
            origin: row.origin,
            action: row.action,
            subject: row.subject,
            facts: row.facts,
        })
        .collect();
    Ok(Json(Page { items, next }))
}
