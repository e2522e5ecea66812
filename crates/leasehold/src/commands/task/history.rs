//! `leasehold task history`: the revisions that a task had.

use clap::Args;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::task::TaskRevisionItem;
use serde::Serialize;

use super::OneTask;
use crate::exit::Exit;
use crate::output::Row;
use crate::times::TimeArgs;

const AFTER_HELP: &str = "\
Examples:
  leasehold task history nightly-report
  leasehold task export nightly-report --revision 3

The newest comes first. A deleted task's history stays.

Exit codes:
  0 listed · 3 there was never such a task";

/// Lists a task's revisions.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct History {
    #[command(flatten)]
    of: OneTask,
}

#[derive(Serialize)]
#[serde(transparent)]
struct RevisionRow {
    item: TaskRevisionItem,
    #[serde(skip)]
    times: TimeArgs,
}

impl Row for RevisionRow {
    const HEADS: &'static [&'static str] = &["revision", "applied", "by", "digest"];

    fn cells(&self) -> Vec<String> {
        let item = &self.item;
        let digest: String = item.revision_digest.to_string().chars().take(12).collect();
        vec![item.number.to_string(), self.times.show(item.applied_at.0), item.applied_by.clone(), digest]
    }

    fn name(&self) -> String {
        self.item.number.to_string()
    }
}

impl History {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let all = self.of.path(route::TASK_REVISIONS);
        let times = self.of.connected.times;
        let mut rows = Vec::new();
        let mut path = all.clone();
        loop {
            let page: Page<TaskRevisionItem> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(|item| RevisionRow { item, times }));
            let Some(next) = page.next else { break };
            path = format!("{all}?after={}", route::segment(&next));
        }
        self.of.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
