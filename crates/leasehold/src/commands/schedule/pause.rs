//! `leasehold schedule pause` and `resume`: whether one schedule of a task starts anything.

use clap::Args;
use leasehold_core::id::{TaskName, TriggerName};
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::{PauseAnswer, PauseTask};

use super::named;
use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::commands::task::InProject;
use crate::exit::Exit;

const PAUSE_HELP: &str = "\
Examples:
  leasehold schedule pause nightly-report
  leasehold schedule pause nightly-report weekends --reason 'office closed'
  leasehold schedule resume nightly-report weekends

To pause all triggers of a task at once, those that are applied meanwhile too:
`leasehold task pause`.

Exit codes:
  0 paused, or paused before · 2 several schedules: say which
  3 there is no such task or trigger
  4 not allowed: this needs an operator's token";

const RESUME_HELP: &str = "\
Examples:
  leasehold schedule resume nightly-report

It goes on with its next fire time; what passed is one line of the ledger, and
can be run afterwards: `leasehold schedule backfill`.

Exit codes:
  0 resumed, or not paused before · 2 several schedules: say which
  3 there is no such task or trigger
  4 not allowed: this needs an operator's token";

/// What both take.
#[derive(Debug, Args)]
struct Which {
    /// The task's name
    task: TaskName,

    /// The trigger's name; may be left out where the task has one
    trigger: Option<TriggerName>,

    /// Why, for lists and the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

/// Pauses a schedule.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_HELP)]
pub(crate) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Ends a schedule's pause.
#[derive(Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub(crate) struct Resume {
    #[command(flatten)]
    which: Which,
}

impl Pause {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.which.ask(route::TASK_PAUSE, "is paused: it starts nothing", "had been paused before").await
    }
}

impl Resume {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.which.ask(route::TASK_RESUME, "goes on", "was not paused").await
    }
}

impl Which {
    async fn ask(self, template: &str, changed: &str, unchanged: &str) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let project = self.project.name();
        let trigger = named(&client, &project, &self.task, self.trigger, None).await?;
        let asked = Asked::json(PauseTask { trigger: Some(trigger.clone()), why: self.reason }.to_body());
        let path = route::of_task(template, &project, self.task.as_str());
        let answer: PauseAnswer = client.post(&path, asked).await?;
        let name = format!("{}/{trigger}", self.task);
        self.connected.output.one(&answer, &name, |out| {
            writeln!(out, "Schedule {name} {}", if answer.changed { changed } else { unchanged })
        })?;
        Ok(Exit::Done)
    }
}
