//! `leasehold project set`: how many runs of a project may be there at once.

use clap::Args;
use leasehold_core::id::ProjectName;
use leasehold_wire::api::project::{ProjectAnswer, SetProject};
use leasehold_wire::api::route;

use super::{Concurrency, concurrency, words};
use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold project set lab --concurrency 4
  leasehold project set lab --concurrency none        any number again

A run counts from its claim until its end. What runs already goes on when a
limit is lowered; the rest waits, and `leasehold explain RUN` names the runs
that it waits for. A run whose contact was lost counts no more, unless its task
says `limits.mutex = true`: then until it is resolved.

Exit codes:
  0 set, or so before · 3 there is no such project
  4 not allowed: this needs an admin token";

/// Limits a project.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Set {
    /// The project's name
    project: ProjectName,

    /// How many of its runs may be there at once: a number, or none for any number
    #[arg(long, value_name = "N", value_parser = concurrency)]
    concurrency: Concurrency,

    #[command(flatten)]
    connected: Connected,
}

impl Set {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.project.as_str();
        let asked = Asked::json(SetProject { concurrency: self.concurrency.0 }.to_body());
        let answer: ProjectAnswer = client.put(&route::of_project(route::PROJECT, name), asked).await?;
        self.connected.output.one(&answer, name, |out| {
            let now = if answer.changed { "now" } else { "as before" };
            writeln!(out, "Project {name}: {now} {}", words(answer.project.concurrency))?;
            match (answer.project.concurrency, answer.project.occupied) {
                (Some(limit), held) if held > limit => {
                    writeln!(out, "{held} are there; nothing new starts until fewer are")
                }
                _ => Ok(()),
            }
        })?;
        Ok(Exit::Done)
    }
}
