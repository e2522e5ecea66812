//! `leasehold worker get`: everything about one worker.

use std::io::{self, Write};

use clap::Args;
use leasehold_core::canonical::Value;
use leasehold_core::id::WorkerId;
use leasehold_core::time::Millis;
use leasehold_wire::api::route;
use leasehold_wire::api::worker::WorkerDetail;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::output::on_one_line;
use crate::times::{TimeArgs, coarse};

const AFTER_HELP: &str = "\
Examples:
  leasehold worker get nas
  leasehold worker get nas -o json | jq .capabilities.runtimes

Exit codes:
  0 found · 3 there is no such worker";

/// Shows a worker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Get {
    /// The worker's name
    worker: WorkerId,

    #[command(flatten)]
    connected: Connected,
}

impl Get {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let worker: WorkerDetail = client.get(&route::of_worker(route::WORKER, self.worker.as_str())).await?;
        let name = worker.item.id.to_string();
        self.connected.output.one(&worker, &name, |out| page(out, &worker, self.connected.times))?;
        Ok(Exit::Done)
    }
}

fn page(out: &mut dyn Write, worker: &WorkerDetail, times: TimeArgs) -> io::Result<()> {
    let item = &worker.item;
    let mut line = |name: &str, value: &str| writeln!(out, "{:<13} {}", format!("{name}:"), on_one_line(value));
    line("Worker", item.id.as_str())?;
    line("Status", item.status.as_str())?;
    line("Enrolled", &times.show(item.enrolled_at.0))?;
    line("Certificate", &format!("ends {}", times.show(item.certificate_expires_at.0)))?;
    if let Some(max) = item.max_runs {
        line("Runs", &format!("{} of {max}", item.active_runs))?;
    }
    if let Some(software) = &item.software {
        line("Version", software)?;
    }
    if let Some(session) = &worker.session {
        let spoke = coarse(Millis::new(session.silent_ms));
        let told = format!(
            "{} (generation {}), {}, registered {}, spoke {spoke} ago",
            session.id,
            session.generation,
            session.state.as_str(),
            times.show(session.registered_at.0)
        );
        line("Session", &told)?;
    }
    if let Some(drain) = &worker.drain {
        let why = drain.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        line("Drained", &format!("by {}, {}{why}", drain.by, times.show(drain.at.0)))?;
    }
    if let Some(takeover) = &worker.takeover {
        let why = takeover.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        line("Takeover", &format!("granted by {} until {}{why}", takeover.by, times.show(takeover.expires_at.0)))?;
    }
    for fault in &worker.faults {
        let about = fault.attempt_id.map_or_else(String::new, |attempt| format!(" (attempt {attempt})"));
        line("Fault", &format!("{} since {}: {}{about}", fault.kind, times.show(fault.since.0), fault.detail))?;
    }
    for attempt in &worker.active_attempts {
        line("Holds", &format!("attempt {}", attempt.0))?;
    }
    for (device, run) in &worker.busy_devices {
        line("GPU", &format!("{device}, held by run {run}"))?;
    }
    if let Some(capabilities) = &worker.capabilities {
        writeln!(out, "Capabilities:")?;
        if let Value::Map(entries) = &capabilities.0 {
            for (name, value) in entries {
                writeln!(out, "  {name}: {}", value.to_canonical_text())?;
            }
        }
    }
    Ok(())
}
