//! `leasehold worker list`.

use clap::Args;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::worker::WorkerItem;
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::output::Row;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker list
  leasehold worker list -o name
  leasehold worker list -o jsonl | jq -r 'select(.fault_count > 0) | .id'
  leasehold worker list -o jsonl | jq -r 'select(.status == \"offline\") | .id'";

/// Lists workers.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct List {
    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
#[serde(transparent)]
struct WorkerRow(WorkerItem);

impl Row for WorkerRow {
    const HEADS: &'static [&'static str] = &["name", "status", "runs", "faults", "platform", "version", "labels"];

    fn cells(&self) -> Vec<String> {
        let item = &self.0;
        let dash = || "-".to_owned();
        let labels: Vec<String> = item.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        vec![
            item.id.to_string(),
            item.status.as_str().to_owned(),
            item.max_runs.map_or_else(dash, |max| format!("{}/{max}", item.active_runs)),
            if item.fault_count == 0 { dash() } else { item.fault_count.to_string() },
            item.os.as_ref().zip(item.arch.as_ref()).map_or_else(dash, |(os, arch)| format!("{os}/{arch}")),
            item.software.clone().unwrap_or_else(dash),
            if labels.is_empty() { dash() } else { labels.join(",") },
        ]
    }

    fn name(&self) -> String {
        self.0.id.to_string()
    }
}

impl List {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let mut rows = Vec::new();
        let mut path = route::WORKERS.to_owned();
        loop {
            let page: Page<WorkerItem> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(WorkerRow));
            let Some(next) = page.next else { break };
            path = format!("{}?after={}", route::WORKERS, route::segment(&next));
        }
        self.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
