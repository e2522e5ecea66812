//! `leasehold schedule`: one file per verb.

mod backfill;
mod ledger;
mod list;
mod next;
mod pause;
mod trigger;

use clap::Subcommand;
use leasehold_core::id::{TaskName, TriggerName};
use leasehold_core::trigger::Kind;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::ScheduleItem;

use crate::client::Client;
use crate::exit::Exit;
use crate::failure::{Told, UsageError};

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule list
  leasehold schedule next nightly-report      its next ten fire times
  leasehold schedule ledger nightly-report    what became of those before
  leasehold schedule backfill nightly-report \\
    --from 2027-01-01T00:00:00Z --to 2027-01-05T00:00:00Z

A schedule is a `[[trigger]]` with `cron` in a task's file;
`leasehold task apply` keeps it. Every fire time gets one run, or a line in the
ledger that says why it got none.";

/// The verbs of schedules.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum Schedule {
    /// List the triggers of tasks with their next fire times
    List(list::List),
    /// Print the next fire times of a task
    Next(next::Next),
    /// Print what became of a task's fire times
    Ledger(ledger::Ledger),
    /// Keep one schedule of a task from starting anything
    Pause(pause::Pause),
    /// Let one schedule of a task start runs again
    Resume(pause::Resume),
    /// Run a scheduled task now, for no fire time (the same as `task run`)
    Trigger(trigger::Trigger),
    /// Run a task for fire times that have passed
    Backfill(backfill::Backfill),
}

impl Schedule {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.execute().await,
            Self::Next(next) => next.execute().await,
            Self::Ledger(ledger) => ledger.execute().await,
            Self::Pause(pause) => pause.execute().await,
            Self::Resume(resume) => resume.execute().await,
            Self::Trigger(trigger) => trigger.execute().await,
            Self::Backfill(backfill) => backfill.execute().await,
        }
    }
}

/// The triggers of a task, which fit in a page.
pub(super) async fn of_task(client: &Client, project: &str, task: &TaskName) -> anyhow::Result<Vec<ScheduleItem>> {
    let all = route::of_project(route::SCHEDULES, project);
    let page: Page<ScheduleItem> = client.get(&format!("{all}?task={}", route::segment(task.as_str()))).await?;
    Ok(page.items)
}

/// The trigger that was named, or the only one of the task, of this kind where one is said.
pub(super) async fn named(
    client: &Client,
    project: &str,
    task: &TaskName,
    trigger: Option<TriggerName>,
    kind: Option<Kind>,
) -> anyhow::Result<TriggerName> {
    match trigger {
        Some(trigger) => Ok(trigger),
        None => only(task, &of_task(client, project, task).await?, kind),
    }
}

fn only(task: &TaskName, all: &[ScheduleItem], kind: Option<Kind>) -> anyhow::Result<TriggerName> {
    let (what, made, how) = match kind {
        None => ("trigger", "a `[[trigger]]` in its file makes one", "say which"),
        Some(Kind::Cron) => ("schedule", "a `[[trigger]]` with `cron` in its file makes one", "say which"),
        Some(Kind::Webhook) => {
            ("webhook", "a `[[trigger]]` with `webhook = true` in its file makes one", "say which with --trigger")
        }
    };
    let found = all.iter().filter(|item| kind.is_none_or(|kind| item.kind == kind)).map(|item| &item.id.trigger);
    match &found.collect::<Vec<_>>()[..] {
        [only] => Ok(TriggerName::clone(only)),
        [] => Err(Told { exit: Exit::NotFound, text: format!("task {task} has no {what}: {made}") }.into()),
        several => {
            let names: Vec<_> = several.iter().map(|name| name.as_str()).collect();
            Err(UsageError(format!("task {task} has several {what}s: {how}, of {}", names.join(", "))).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, kind: &str) -> ScheduleItem {
        let item = json!({ "project": "default", "task": "report", "trigger": name, "kind": kind, "overlap": "skip",
                           "paused": false });
        serde_json::from_value(item).unwrap()
    }

    #[test]
    fn what_nobody_named_is_the_only_one_of_its_kind_or_told() {
        let told = |all: &[ScheduleItem], kind| match only(&"report".parse().unwrap(), all, kind) {
            Ok(name) => name.to_string(),
            Err(error) => format!("{}: {error}", crate::failure::exit(&error).code()),
        };
        let both = [item("nightly", "cron"), item("push", "webhook")];
        assert_eq!(told(&both, Some(Kind::Cron)), "nightly");
        assert_eq!(told(&both, Some(Kind::Webhook)), "push");
        assert_eq!(told(&both, None), "2: task report has several triggers: say which, of nightly, push");
        let made = "a `[[trigger]]` with `webhook = true` in its file makes one";
        assert_eq!(told(&both[..1], Some(Kind::Webhook)), format!("3: task report has no webhook: {made}"));
        let two = [item("pull", "webhook"), item("push", "webhook")];
        let several = "2: task report has several webhooks: say which with --trigger, of pull, push";
        assert_eq!(told(&two, Some(Kind::Webhook)), several);
    }
}
