//! `leasehold project delete`: a project of which no run is open.

use clap::Args;
use leasehold_core::id::ProjectName;
use leasehold_wire::api::project::DeleteProjectAnswer;
use leasehold_wire::api::route;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold project delete lab

Its limit goes with it; its runs that have ended stay. A new run brings it back.

Exit codes:
  0 deleted, or deleted before · 3 there is no such project
  4 not allowed: this needs an admin token · 10 runs of it have not ended";

/// Deletes a project.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Delete {
    /// The project's name
    project: ProjectName,

    #[command(flatten)]
    connected: Connected,
}

impl Delete {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let name = self.project.as_str();
        let path = route::of_project(route::PROJECT, name);
        let answer: DeleteProjectAnswer = client.delete(&path, Asked::default()).await?;
        self.connected.output.one(&answer, name, |out| {
            let how = if answer.changed { "is deleted" } else { "had been deleted before" };
            writeln!(out, "Project {name} {how}")
        })?;
        Ok(Exit::Done)
    }
}
