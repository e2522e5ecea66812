//! `leasehold schedule`: one file per verb.

mod backfill;
mod ledger;
mod list;
mod next;
mod pause;
mod trigger;

use clap::Subcommand;
use leasehold_core::id::{TaskName, TriggerName};
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::ScheduleItem;

use crate::client::Client;
use crate::exit::Exit;
use crate::failure::{Told, UsageError};

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule list
  leasehold schedule next nightly-report               its next ten fire times
  leasehold schedule ledger nightly-report             what became of those that have passed
  leasehold schedule backfill nightly-report --from 2027-01-01T00:00:00Z --to 2027-01-05T00:00:00Z

A schedule is a `[[trigger]]` with `cron` in a task's file; `leasehold task apply` keeps it. Every fire
time gets one run, or a line in the ledger that says why it got none.";

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

/// The trigger that was named, or the only one of the task.
async fn named(
    client: &Client,
    project: &str,
    task: &TaskName,
    trigger: Option<TriggerName>,
) -> anyhow::Result<TriggerName> {
    if let Some(trigger) = trigger {
        return Ok(trigger);
    }
    let all = route::of_project(route::SCHEDULES, project);
    let page: Page<ScheduleItem> = client.get(&format!("{all}?task={}", route::segment(task.as_str()))).await?;
    match &page.items[..] {
        [only] => Ok(only.trigger.clone()),
        [] => {
            let text = format!("task {task} has no schedule, or there is no such task: see `leasehold schedule list`");
            Err(Told { exit: Exit::NotFound, text }.into())
        }
        several => {
            let names: Vec<_> = several.iter().map(|item| item.trigger.as_str()).collect();
            Err(UsageError(format!("task {task} has several schedules: say which, of {}", names.join(", "))).into())
        }
    }
}
