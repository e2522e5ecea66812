//! `leasehold worker resume`: a drained worker takes work again.

use clap::Args;
use leasehold_core::id::WorkerId;
use leasehold_wire::api::drain::{DrainAnswer, DrainWorker};
use leasehold_wire::api::route;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker resume nas
  leasehold worker resume nas --reason 'disk replaced'

Exit codes:
  0 resumed, or nobody had drained it · 3 there is no such worker
  4 not allowed: this needs an operator token";

/// Resumes a worker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Resume {
    /// The worker's name
    worker: WorkerId,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    connected: Connected,
}

impl Resume {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.worker.as_str();
        let asked = Asked::json(DrainWorker { why: self.reason }.to_body());
        let answer: DrainAnswer = client.post(&route::of_worker(route::WORKER_RESUME, name), asked).await?;
        self.connected.output.one(&answer, name, |out| {
            if answer.changed {
                writeln!(out, "Worker {name} takes work again")
            } else {
                writeln!(out, "Worker {name} was not drained by anybody")
            }
        })?;
        Ok(Exit::Done)
    }
}
