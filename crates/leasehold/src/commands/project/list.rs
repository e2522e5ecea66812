//! `leasehold project list`.

use clap::Args;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::project::ProjectItem;
use leasehold_wire::api::route;
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::output::Row;

const AFTER_HELP: &str = "\
Examples:
  leasehold project list
  leasehold project list -o name
  leasehold project list -o jsonl |
    jq -r 'select(.occupied == .concurrency) | .name'";

/// Lists projects.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct List {
    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
#[serde(transparent)]
struct ProjectRow(ProjectItem);

impl Row for ProjectRow {
    const HEADS: &'static [&'static str] = &["name", "concurrency", "occupied"];

    fn cells(&self) -> Vec<String> {
        let item = &self.0;
        let limit = item.concurrency.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        vec![item.name.to_string(), limit, item.occupied.to_string()]
    }

    fn name(&self) -> String {
        self.0.name.to_string()
    }
}

impl List {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let mut rows = Vec::new();
        let mut path = route::PROJECTS.to_owned();
        loop {
            let page: Page<ProjectItem> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(ProjectRow));
            let Some(next) = page.next else { break };
            path = format!("{}?after={}", route::PROJECTS, route::segment(&next));
        }
        self.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
