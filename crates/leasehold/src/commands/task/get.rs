//! `leasehold task get`: a task and its file.

use clap::Args;
use leasehold_core::id::TaskName;
use leasehold_core::revision::{Revision, Source};
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::ScheduleItem;
use leasehold_wire::api::task::TaskDetail;

use super::{InProject, token};
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::task_toml;
use crate::times::TimeArgs;

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
        let webhooks = if is_called(&task) {
            token::webhooks(&client, &self.project.name(), &self.task).await?
        } else {
            Vec::new()
        };
        self.connected.output.one(&task, name, |out| {
            let item = &task.item;
            let times = self.connected.times;
            writeln!(out, "# {} of {}, revision {} ({})", item.name, item.project, item.number, item.revision_digest)?;
            writeln!(out, "# since {}, changed {}", times.show(item.created_at.0), times.show(item.changed_at.0))?;
            if item.paused {
                writeln!(out, "# paused: nothing of it starts by itself; `leasehold task resume {name}` ends that")?;
            }
            for webhook in &webhooks {
                writeln!(out, "# {}", told(webhook, times))?;
            }
            write!(out, "{text}")
        })?;
        Ok(Exit::Done)
    }
}

/// Whether calls start runs of the task.
fn is_called(task: &TaskDetail) -> bool {
    let revision = Revision::from_value(&task.revision.0);
    revision.is_ok_and(|revision| revision.triggers().iter().any(|trigger| trigger.source == Source::Webhook))
}

/// Where a webhook is called, and whether anybody can.
fn told(webhook: &ScheduleItem, times: TimeArgs) -> String {
    let ScheduleItem { project, task, trigger, .. } = webhook;
    let path = route::of_trigger(route::HOOK, project.as_str(), task.as_str(), trigger.as_str());
    let token = match (&webhook.token_made_at, &webhook.token_made_by) {
        (Some(at), Some(by)) => format!("token made {} by {by}", times.show(at.0)),
        _ => format!("no token yet: `leasehold task token {task} --trigger {trigger}`"),
    };
    let paused = if webhook.paused { "; paused" } else { "" };
    format!("webhook {trigger}: POST {path}, {token}{paused}")
}
