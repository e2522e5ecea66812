//! `leasehold task pause` and `resume`: whether a task's triggers start anything.

use clap::Args;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::{PauseAnswer, PauseTask};

use super::OneTask;
use crate::client::Asked;
use crate::exit::Exit;

const PAUSE_HELP: &str = "\
Examples:
  leasehold task pause nightly-report --reason 'the source is down'
  leasehold task run nightly-report               a run by hand starts still
  leasehold task resume nightly-report

What is due by then is settled first; what waited for its turn is given up. What
passes during the pause is one line of `leasehold schedule ledger`, and can be
run afterwards: `schedule backfill`.

Exit codes:
  0 paused, or paused before · 3 there is no such task
  4 not allowed: this needs an operator's token";

const RESUME_HELP: &str = "\
Examples:
  leasehold task resume nightly-report

Its triggers go on with their next fire time; nothing is caught up. A trigger
that was paused by itself (`leasehold schedule pause`) stays paused.

Exit codes:
  0 resumed, or not paused before · 3 there is no such task
  4 not allowed: this needs an operator's token";

/// What both take.
#[derive(Debug, Args)]
struct Which {
    /// Why, for lists and the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    of: OneTask,
}

/// Pauses a task.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_HELP)]
pub(crate) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Ends a task's pause.
#[derive(Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub(crate) struct Resume {
    #[command(flatten)]
    which: Which,
}

impl Pause {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.which.ask(route::TASK_PAUSE, "is paused: its triggers start nothing", "had been paused before").await
    }
}

impl Resume {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.which.ask(route::TASK_RESUME, "goes on", "was not paused").await
    }
}

impl Which {
    async fn ask(self, template: &str, changed: &str, unchanged: &str) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let name = self.of.task.as_str();
        let asked = Asked::json(PauseTask { trigger: None, why: self.reason }.to_body());
        let answer: PauseAnswer = client.post(&self.of.path(template), asked).await?;
        self.of.connected.output.one(&answer, name, |out| {
            writeln!(out, "Task {name} {}", if answer.changed { changed } else { unchanged })
        })?;
        Ok(Exit::Done)
    }
}
