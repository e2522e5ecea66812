//! `leasehold schedule trigger`: a scheduled task, now.

use clap::Args;
use leasehold_wire::api::route;
use leasehold_wire::api::task::RunTask;

use crate::commands::following::Following;
use crate::commands::run::submit_run;
use crate::commands::task::OneTask;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule trigger nightly-report
  leasehold schedule trigger nightly-report --detach -q    print the run's id

The run is one by hand: it stands for no fire time, so it has no line in the
ledger and no LEASEHOLD_SCHEDULED_AT; a pause does not keep it back, `overlap`
does not skip it, and the schedule goes on as if nothing had been. For a fire
time that has passed: `leasehold schedule backfill`. To set parameters:
`leasehold task run`.

Exit codes:
  0 it succeeded · 3 there is no such task · 5 it failed · 6 cancelled
  7 timed out · 8 lost or unknown · 9 not ended at --wait-timeout
  130 interrupted: the run goes on";

/// Runs a task now.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Trigger {
    #[command(flatten)]
    following: Following,

    #[command(flatten)]
    of: OneTask,
}

impl Trigger {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let connected = &self.of.connected;
        self.following.check(&connected.output)?;
        let client = connected.client()?;
        let path = self.of.path(route::TASK_RUNS);
        let run = submit_run(&client, &path, RunTask::default().to_body(), &connected.output).await?;
        Box::pin(self.following.watch(connected, &client, &run)).await
    }
}
