//! `leasehold schedule backfill`: runs for fire times that have passed.

use clap::Args;
use leasehold_core::id::{TaskName, TriggerName};
use leasehold_core::trigger::Kind;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::{Backfill as Ask, BackfillAnswer};
use leasehold_wire::api::time::Time;

use super::named;
use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::commands::task::InProject;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule backfill nightly-report \\
    --from 2027-01-01T00:00:00Z --to 2027-01-05T00:00:00Z
  leasehold schedule backfill nightly-report \\
    --from 2027-01-04T03:00:00+08:00 --to 2027-01-04T03:00:00+08:00

Every fire time from --from to --to gets a run with its own time, at most 1000
of them; one that has a run already gets no second, so the same command again is
safe. Overlap and pauses do not apply; limits of runs at once do.

Exit codes:
  0 their runs are submitted · 2 no time that can be filled
  3 there is no such task or trigger
  4 not allowed: this needs an operator's token";

/// Runs a task for fire times that have passed.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Backfill {
    /// The task's name
    task: TaskName,

    /// The trigger's name; may be left out where the task has one
    trigger: Option<TriggerName>,

    /// From this time on, RFC 3339
    #[arg(long, value_name = "TIME")]
    from: Time,

    /// Up to this time, RFC 3339
    #[arg(long, value_name = "TIME")]
    to: Time,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

impl Backfill {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let project = self.project.name();
        let trigger = named(&client, &project, &self.task, self.trigger, Some(Kind::Cron)).await?;
        let path = route::of_task(route::TASK_BACKFILL, &project, self.task.as_str());
        let mut all = BackfillAnswer { run_ids: Vec::new(), rest: Some(self.from) };
        while let Some(from) = all.rest {
            let ask = Ask { trigger: Some(trigger.clone()), from, to: self.to };
            let page: BackfillAnswer = client.post(&path, Asked::json(ask.to_body())).await?;
            all.run_ids.extend(page.run_ids);
            all.rest = page.rest;
        }
        let ids = all.run_ids.join("\n");
        self.connected.output.one(&all, &ids, |out| match all.run_ids.len() {
            0 => writeln!(out, "Every fire time of {}/{trigger} between these has its run", self.task),
            1 => writeln!(out, "1 run of {}/{trigger} is submitted", self.task),
            runs => writeln!(out, "{runs} runs of {}/{trigger} are submitted", self.task),
        })?;
        Ok(Exit::Done)
    }
}
