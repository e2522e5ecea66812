//! `leasehold worker delete`: a worker's identity ends.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use leasehold_core::id::WorkerId;
use leasehold_wire::api::delete::{DeleteAnswer, DeleteWorker};
use leasehold_wire::api::route;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::failure::UsageError;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker drain nas --wait && leasehold worker delete nas
  leasehold worker delete nas --yes                        in a script
  leasehold worker delete nas --destroyed --reason 'burnt down'

The worker's identity, tickets and enrollments end: whoever still speaks with
its certificate is answered `revoked`. Refused while it holds live attempts, or
lost ones whose question is open. --destroyed is your word that the machine is
gone with everything that ran there: its live attempts are lost at once, with
that as their evidence, and their runs go on as their policy says.

Exit codes:
  0 deleted, or deleted before · 2 not confirmed · 3 there is no such worker
  4 not allowed: this needs an admin token · 10 it still holds attempts";

/// Deletes a worker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Delete {
    /// The worker's name
    worker: WorkerId,

    /// The machine is gone for good, with everything that ran there
    #[arg(long)]
    destroyed: bool,

    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    connected: Connected,
}

impl Delete {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let name = self.worker.as_str();
        if !self.yes {
            confirm(name, self.destroyed)?;
        }
        let client = self.connected.client()?;
        let asked = Asked::json(DeleteWorker { destroyed: self.destroyed, why: self.reason }.to_body());
        let answer: DeleteAnswer = client.delete(&route::of_worker(route::WORKER, name), asked).await?;
        self.connected.output.one(&answer, name, |out| match (answer.changed, answer.runs) {
            (false, _) => writeln!(out, "Worker {name} had been deleted before"),
            (true, 0) => writeln!(out, "Worker {name} is deleted"),
            (true, 1) => writeln!(out, "Worker {name} is deleted; 1 run that it held has your word as evidence"),
            (true, runs) => {
                writeln!(out, "Worker {name} is deleted; {runs} runs that it held have your word as evidence")
            }
        })?;
        Ok(Exit::Done)
    }
}

/// Asks a person at a terminal to type the worker's name.
fn confirm(name: &str, destroyed: bool) -> Result<(), UsageError> {
    let refused = |why: &str| UsageError(format!("worker {name} is not deleted: {why}"));
    if !io::stdin().is_terminal() {
        return Err(refused("nobody can be asked for confirmation here, so say --yes"));
    }
    let gone = if destroyed { " and declare its machine destroyed" } else { "" };
    let mut said = String::new();
    let asked = write!(io::stderr().lock(), "Delete worker {name}{gone}? Type its name to go on: ")
        .and_then(|()| io::stderr().flush())
        .and_then(|()| io::stdin().read_line(&mut said));
    match asked {
        Ok(_) if said.trim() == name => Ok(()),
        Ok(_) => Err(refused("its name was not typed")),
        Err(error) => Err(refused(&format!("the confirmation cannot be read: {error}"))),
    }
}
