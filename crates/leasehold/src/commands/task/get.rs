//! `leasehold task get`: a task and its file.

use clap::Args;
use leasehold_core::id::TaskName;
use leasehold_wire::api::route;
use leasehold_wire::api::task::TaskDetail;

use super::InProject;
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::task_toml;

const AFTER_HELP: &str = "\
Examples:
  leasehold task get nightly-report
  leasehold task get nightly-report -o json | jq .revision.limits

Exit codes:
  0 found · 3 there is no such task";

/// Shows a task.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Get {
    /// The task's name
    task: TaskName,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

impl Get {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.task.as_str();
        let task: TaskDetail = client.get(&route::of_task(route::TASK, &self.project.name(), name)).await?;
        let text = task_toml::write(&task.revision.0, false)?;
        self.connected.output.one(&task, name, |out| {
            let item = &task.item;
            let times = self.connected.times;
            writeln!(out, "# {} of {}, revision {} ({})", item.name, item.project, item.number, item.revision_digest)?;
            writeln!(out, "# since {}, changed {}", times.show(item.created_at.0), times.show(item.changed_at.0))?;
            write!(out, "{text}")
        })?;
        Ok(Exit::Done)
    }
}
