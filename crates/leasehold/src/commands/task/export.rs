//! `leasehold task export`: the file of a task, as it is or as it was.

use clap::Args;
use leasehold_core::id::TaskName;
use leasehold_wire::api::route;
use leasehold_wire::api::task::{TaskDetail, TaskRevisionDetail};

use super::InProject;
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::task_toml;

const AFTER_HELP: &str = "\
Examples:
  leasehold task export nightly-report > nightly-report.toml
  leasehold task export nightly-report --revision 3 | leasehold task apply -f -     as it was

Applied again, an export changes nothing, and its next export is the same to the byte.

Exit codes:
  0 printed · 3 there is no such task or revision";

/// Prints a task's file.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Export {
    /// The task's name
    task: TaskName,

    /// An earlier revision; `leasehold task history` lists them
    #[arg(long, value_name = "N")]
    revision: Option<u64>,

    /// Write out every default
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

impl Export {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let (project, name) = (self.project.name(), self.task.as_str());
        let revision = match self.revision {
            None => {
                let task: TaskDetail = client.get(&route::of_task(route::TASK, &project, name)).await?;
                task.revision
            }
            Some(number) => {
                let path =
                    route::of_task(route::TASK_REVISION, &project, name).replace("{number}", &number.to_string());
                let one: TaskRevisionDetail = client.get(&path).await?;
                one.revision
            }
        };
        let text = task_toml::write(&revision.0, self.full)?;
        self.connected.output.one(&revision, name, |out| write!(out, "{text}"))?;
        Ok(Exit::Done)
    }
}
