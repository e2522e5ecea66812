//! `leasehold task run`: a run of a task as it is now.

use clap::Args;
use leasehold_wire::api::route;
use leasehold_wire::api::task::RunTask;

use super::OneTask;
use crate::commands::following::Following;
use crate::commands::run::submit_run;
use crate::exit::Exit;
use crate::pairs::pairs;

const AFTER_HELP: &str = "\
Examples:
  leasehold task run nightly-report        follow its output to the end
  leasehold task run nightly-report --param DAY=2027-01-31
  leasehold task run backup --detach -q    print only the run's id

Exit codes:
  0 it succeeded · 3 there is no such task · 5 it failed · 6 cancelled
  7 timed out · 8 lost or unknown · 9 not ended at --wait-timeout
  130 interrupted: the run goes on
  with --reflect-exit-status the command's own code, 128+n for a signal";

/// Runs a task.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Run {
    /// What a parameter says this time; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,

    #[command(flatten)]
    following: Following,

    #[command(flatten)]
    of: OneTask,
}

impl Run {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let connected = &self.of.connected;
        self.following.check(&connected.output)?;
        let ask = RunTask { params: pairs("--param", "NAME=VALUE", &self.param)? };
        let client = connected.client()?;
        let path = self.of.path(route::TASK_RUNS);
        let run = submit_run(&client, &path, ask.to_body(), &connected.output).await?;
        self.following.watch(connected, &client, &run).await
    }
}
