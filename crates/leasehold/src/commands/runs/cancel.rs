//! `leasehold runs cancel` and `leasehold cancel`: a person's wish that a run stop.

use clap::Args;
use leasehold_wire::api::cancel::{CancelAnswer, CancelOutcome, CancelRun};
use leasehold_wire::api::route;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold runs cancel 0192f
  leasehold cancel 0192f --reason 'wrong branch'
  leasehold cancel 0192f && leasehold runs watch 0192f     until it has stopped

Exit codes:
  0 cancelled, or its worker is told to stop it · 3 there is no such run
  10 it has already ended, or is lost";

/// Stops a run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cancel {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    /// Why, for the run's story
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    connected: Connected,
}

impl Cancel {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let asked = Asked::json(CancelRun { why: self.reason }.to_body());
        let answer: CancelAnswer = client.post(&route::of_run(route::RUN_CANCEL, &self.run), asked).await?;
        let id = answer.run.item.id.to_string();
        self.connected.output.one(&answer, &id, |out| match answer.outcome {
            CancelOutcome::Ended => writeln!(out, "Run {id} is cancelled: nothing of it had started"),
            CancelOutcome::Requested => writeln!(out, "Run {id} is told to stop"),
            CancelOutcome::AlreadyRequested => writeln!(out, "Run {id} had been told to stop before"),
            CancelOutcome::AlreadyCancelled => writeln!(out, "Run {id} had been cancelled before"),
        })?;
        Ok(Exit::Done)
    }
}
