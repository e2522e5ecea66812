//! `leasehold task list`.

use clap::Args;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::task::TaskItem;
use serde::Serialize;

use super::InProject;
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::output::Row;
use crate::times;

const AFTER_HELP: &str = "\
Examples:
  leasehold task list
  leasehold task list --project lab -o name
  leasehold task list -o jsonl | jq -r 'select(.number > 1) | .name'

Exit codes:
  0 listed · 3 there is no such project";

/// Lists the tasks of a project.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct List {
    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
#[serde(transparent)]
struct TaskRow(TaskItem);

impl Row for TaskRow {
    const HEADS: &'static [&'static str] = &["name", "revision", "changed", "paused", "description"];

    fn cells(&self) -> Vec<String> {
        let item = &self.0;
        let changed = times::age(item.changed_at.0);
        let paused = if item.paused { "yes" } else { "" };
        let description = item.description.clone().unwrap_or_default();
        vec![item.name.to_string(), item.number.to_string(), changed, paused.to_owned(), description]
    }

    fn name(&self) -> String {
        self.0.name.to_string()
    }
}

impl List {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let all = route::of_project(route::TASKS, &self.project.name());
        let mut rows = Vec::new();
        let mut path = all.clone();
        loop {
            let page: Page<TaskItem> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(TaskRow));
            let Some(next) = page.next else { break };
            path = format!("{all}?after={}", route::segment(&next));
        }
        self.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
