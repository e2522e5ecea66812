//! `leasehold worker grant-takeover`: one registration that would be kept out is let in.

use clap::Args;
use leasehold_core::id::WorkerId;
use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_wire::api::route;
use leasehold_wire::api::takeover::GrantTakeover as Granting;
use leasehold_wire::api::worker::WorkerDetail;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker grant-takeover nas --reason 'disk moved to a new board'
  leasehold worker grant-takeover nas --ttl 1h
  leasehold-worker run --take-over     on the machine, where it had stopped

The next registration of this worker that would be answered `session_live`
(another boot's session is live) or `ticket_spent` (its state is older than what
the control plane knows) is let in, once. Whatever speaks for the worker until
then is fenced: its jobs stop at their leases' ends, and nothing that it had
started is started again or judged by the newcomer.

Exit codes:
  0 granted · 3 there is no such worker
  4 not allowed: this needs an admin token";

/// Grants a takeover.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct GrantTakeover {
    /// The worker's name
    worker: WorkerId,

    /// How long the grant counts; at most 1d
    #[arg(long, value_name = "DURATION", default_value_t = limits::TAKEOVER_TTL)]
    ttl: Millis,

    /// Why, for the worker's page and the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    connected: Connected,
}

impl GrantTakeover {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.worker.as_str();
        let asked = Asked::json(Granting { ttl: self.ttl, why: self.reason }.to_body());
        let worker: WorkerDetail = client.post(&route::of_worker(route::WORKER_TAKEOVER, name), asked).await?;
        let until = worker.takeover.as_ref().map_or_else(String::new, |takeover| {
            format!(" until {}", self.connected.times.show(takeover.expires_at.0))
        });
        self.connected.output.one(&worker, name, |out| {
            writeln!(out, "The next session of worker {name} that would be kept out is let in once{until}")
        })?;
        Ok(Exit::Done)
    }
}
