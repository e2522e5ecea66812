//! `leasehold schedule trigger`: a scheduled task, now.

use clap::Args;
use leasehold_core::id::TaskName;
use leasehold_wire::api::route;
use leasehold_wire::api::task::RunTask;

use crate::commands::connected::Connected;
use crate::commands::following::Following;
use crate::commands::run::submit_run;
use crate::commands::task::InProject;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule trigger nightly-report
  leasehold schedule trigger nightly-report --detach -q      print only the run's id

The run is one by hand: it stands for no fire time, so it has no line in the ledger and no
LEASEHOLD_SCHEDULED_AT; a pause does not keep it back, `overlap` does not skip it, and the schedule goes
on as if nothing had been. For a fire time that has passed: `leasehold schedule backfill`. To set
parameters: `leasehold task run`.

Exit codes:
  0 it succeeded · 3 there is no such task · 5 it failed · 6 cancelled · 7 timed out
  8 lost or unknown · 9 not ended at --wait-timeout · 130 interrupted: the run goes on";

/// Runs a task now.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Trigger {
    /// The task's name
    task: TaskName,

    #[command(flatten)]
    following: Following,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

impl Trigger {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.following.check(&self.connected.output)?;
        let client = self.connected.client()?;
        let path = route::of_task(route::TASK_RUNS, &self.project.name(), self.task.as_str());
        let run = submit_run(&client, &path, RunTask::default().to_body(), &self.connected.output).await?;
        Box::pin(self.following.watch(&self.connected, &client, &run)).await
    }
}
