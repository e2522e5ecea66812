//! `leasehold audit list`: who changed what, when and from where.

use clap::Args;
use leasehold_core::limits;
use leasehold_wire::api::audit::AuditEntry;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::output::Row;
use crate::times::TimeArgs;

const AFTER_HELP: &str = "\
Examples:
  leasehold audit list      the newest 20
  leasehold audit list --limit 500 -o jsonl |
    jq -r 'select(.action == \"credential_replayed\")'
  leasehold audit list -o jsonl |
    jq -r 'select(.origin != \"admin socket\") | .actor'

Exit codes:
  0 done · 4 not allowed: the audit needs an admin token";

/// Lists the audit, newest first.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct List {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
struct AuditRow {
    #[serde(flatten)]
    entry: AuditEntry,
    #[serde(skip)]
    times: TimeArgs,
}

impl Row for AuditRow {
    const HEADS: &'static [&'static str] = &["time", "who", "from", "action", "subject", "facts"];

    fn cells(&self) -> Vec<String> {
        let entry = &self.entry;
        let facts: Vec<String> = entry.facts.iter().map(|(name, fact)| format!("{name}={fact}")).collect();
        vec![
            self.times.show(entry.at.0),
            entry.actor.clone(),
            entry.origin.clone().unwrap_or_else(|| "-".to_owned()),
            entry.action.clone(),
            entry.subject.clone(),
            facts.join(" "),
        ]
    }

    fn name(&self) -> String {
        self.entry.sequence.to_string()
    }
}

impl List {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let times = self.connected.times;
        let mut rows = Vec::new();
        let mut after: Option<String> = None;
        while rows.len() < self.limit {
            let wanted = (self.limit - rows.len()).min(limits::PAGE);
            let after_part = after.as_deref().map(|after| format!("&after={}", route::segment(after)));
            let path = format!("{}?newest=true&limit={wanted}{}", route::AUDIT, after_part.unwrap_or_default());
            let page: Page<AuditEntry> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(|entry| AuditRow { entry, times }));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        self.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
