//! `leasehold project create`: a project ahead of its first run.

use clap::Args;
use leasehold_core::id::ProjectName;
use leasehold_wire::api::project::{CreateProject, ProjectAnswer};
use leasehold_wire::api::route;

use super::{Concurrency, concurrency, words};
use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold project create lab
  leasehold project create lab --concurrency 4

Exit codes:
  0 made, or there before just so · 4 not allowed: this needs an admin token
  10 it exists already, with another limit";

/// Makes a project.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Create {
    /// The project's name
    project: ProjectName,

    /// How many of its runs may be there at once
    #[arg(long, value_name = "N", value_parser = concurrency, default_value = "none")]
    concurrency: Concurrency,

    #[command(flatten)]
    connected: Connected,
}

impl Create {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.project.as_str();
        let body = CreateProject { name: self.project.clone(), concurrency: self.concurrency.0 }.to_body();
        let answer: ProjectAnswer = client.post(route::PROJECTS, Asked::json(body)).await?;
        self.connected.output.one(&answer, name, |out| {
            let how = if answer.changed { "is there" } else { "had been made before" };
            writeln!(out, "Project {name} {how}: {}", words(answer.project.concurrency))
        })?;
        Ok(Exit::Done)
    }
}
