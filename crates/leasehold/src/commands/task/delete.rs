//! `leasehold task delete`: a task, with its runs only if that is said.

use clap::Args;
use leasehold_wire::api::route;
use leasehold_wire::api::task::TasksAnswer;

use super::OneTask;
use crate::client::Asked;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold task delete nightly-report
  leasehold task delete nightly-report --cascade      with what waits and runs

Its runs that have ended and its history stay; applied again, its revisions are
counted on.

Exit codes:
  0 deleted, or deleted before · 3 there is no such task
  4 not allowed: this needs an operator's token
  10 runs of it have not ended, or are lost and want an answer first";

/// Deletes a task.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Delete {
    /// Cancel its runs that have not ended, in the same transaction
    #[arg(long)]
    cascade: bool,

    #[command(flatten)]
    of: OneTask,
}

impl Delete {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let (name, task) = (self.of.task.as_str(), self.of.path(route::TASK));
        let path = if self.cascade { format!("{task}?cascade=true") } else { task };
        let answer: TasksAnswer = client.delete(&path, Asked::default()).await?;
        self.of.connected.output.one(&answer, name, |out| {
            let how = if answer.changed { "is deleted" } else { "had been deleted before" };
            writeln!(out, "Task {name} {how}")
        })?;
        Ok(Exit::Done)
    }
}
