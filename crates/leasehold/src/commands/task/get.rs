//! `leasehold task get`: a task and its file.

use clap::Args;
use leasehold_core::revision::Revision;
use leasehold_core::trigger::Kind;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::{PauseItem, ScheduleItem, TriggerId};
use leasehold_wire::api::task::TaskDetail;

use super::OneTask;
use crate::commands::schedule;
use crate::exit::Exit;
use crate::output::on_one_line;
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
    #[command(flatten)]
    of: OneTask,
}

impl Get {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let name = self.of.task.as_str();
        let task: TaskDetail = client.get(&self.of.path(route::TASK)).await?;
        let text = task_toml::write(&task.revision.0, false)?;
        let triggers = if starts_by_itself(&task) {
            schedule::of_task(&client, &self.of.project.name(), &self.of.task).await?
        } else {
            Vec::new()
        };
        self.of.connected.output.one(&task, name, |out| {
            let item = &task.item;
            let times = self.of.connected.times;
            writeln!(out, "# {} of {}, revision {} ({})", item.name, item.project, item.number, item.revision_digest)?;
            writeln!(out, "# since {}, changed {}", times.show(item.created_at.0), times.show(item.changed_at.0))?;
            if let Some(pause) = &task.pause {
                writeln!(out, "# {}", paused(pause, times))?;
                writeln!(out, "# nothing of it starts by itself; `leasehold task resume {name}` ends that")?;
            }
            for webhook in triggers.iter().filter(|trigger| trigger.kind == Kind::Webhook) {
                writeln!(out, "# {}", told(webhook, times))?;
            }
            for ScheduleItem { id, pauses, .. } in &triggers {
                for pause in pauses.iter().filter(|pause| pause.of == "trigger") {
                    writeln!(out, "# trigger {} {}", id.trigger, paused(pause, times))?;
                }
            }
            write!(out, "{text}")
        })?;
        Ok(Exit::Done)
    }
}

/// Whether times or calls start runs of the task.
fn starts_by_itself(task: &TaskDetail) -> bool {
    Revision::from_value(&task.revision.0).is_ok_and(|revision| !revision.triggers().is_empty())
}

/// Since when, by whom and, in their words, why; on one line, whatever they wrote.
fn paused(pause: &PauseItem, times: TimeArgs) -> String {
    let why = pause.why.as_ref().map_or_else(String::new, |why| format!(": {}", on_one_line(why)));
    format!("paused since {} by {}{why}", times.show(pause.at.0), pause.by)
}

/// Where a webhook is called, and whether anybody can.
fn told(webhook: &ScheduleItem, times: TimeArgs) -> String {
    let TriggerId { task, trigger, .. } = &webhook.id;
    let token = match (&webhook.token_made_at, &webhook.token_made_by) {
        (Some(at), Some(by)) => format!("token made {} by {by}", times.show(at.0)),
        _ => format!("no token yet: `leasehold task token {task} --trigger {trigger}`"),
    };
    let paused = if webhook.paused { "; paused" } else { "" };
    format!("webhook {trigger}: POST {}, {token}{paused}", webhook.id.hook())
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::UtcMillis;

    use super::*;

    #[test]
    fn a_reason_stays_on_its_line() {
        let pause = |why: Option<&str>| PauseItem {
            of: "task".to_owned(),
            by: "local:1000".to_owned(),
            why: why.map(str::to_owned),
            at: UtcMillis::new(1_800_000_000_000).into(),
        };
        let told = |why| paused(&pause(why), TimeArgs { utc: true });
        assert_eq!(told(None), "paused since 2027-01-15T08:00:00Z by local:1000");
        assert_eq!(told(Some("new\ndisk")), "paused since 2027-01-15T08:00:00Z by local:1000: new disk");
    }
}
