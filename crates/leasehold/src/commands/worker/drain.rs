//! `leasehold worker drain`: a worker is given nothing new.

use std::time::Duration;

use clap::Args;
use leasehold_core::id::WorkerId;
use leasehold_wire::api::drain::{DrainAnswer, DrainWorker};
use leasehold_wire::api::route;
use leasehold_wire::api::worker::WorkerDetail;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker drain nas --reason 'new disk'
  leasehold worker drain nas --wait && ssh nas reboot    once nothing runs there
  leasehold worker resume nas                            take work again

A drained worker keeps what it runs and is given nothing new, across restarts of
both sides, until it is resumed.

Exit codes:
  0 drained, or drained before · 3 there is no such worker
  4 not allowed: this needs an operator token";

/// Between two looks of `--wait`.
const LOOK: Duration = Duration::from_millis(500);

/// Drains a worker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Drain {
    /// The worker's name
    worker: WorkerId,

    /// Why, for the worker's page and the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Return only when nothing runs there any more
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    connected: Connected,
}

impl Drain {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.worker.as_str();
        let output = &self.connected.output;
        let asked = Asked::json(DrainWorker { why: self.reason }.to_body());
        let path = route::of_worker(route::WORKER_DRAIN, name);
        let mut answer: DrainAnswer = client.post(&path, asked).await?;
        if self.wait && answer.worker.item.active_runs > 0 {
            output.note(&format!("Worker {name} is drained; waiting for its {}", runs(&answer.worker)));
            while answer.worker.item.active_runs > 0 {
                tokio::time::sleep(LOOK).await;
                answer.worker = client.get(&route::of_worker(route::WORKER, name)).await?;
            }
        }
        output.one(&answer, name, |out| {
            let how = if answer.changed { "takes nothing new" } else { "had been drained before" };
            match answer.worker.item.active_runs {
                0 => writeln!(out, "Worker {name} {how}; nothing runs there"),
                _ => writeln!(out, "Worker {name} {how}; its {} go on", runs(&answer.worker)),
            }
        })?;
        Ok(Exit::Done)
    }
}

fn runs(worker: &WorkerDetail) -> String {
    let count = worker.item.active_runs;
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}
