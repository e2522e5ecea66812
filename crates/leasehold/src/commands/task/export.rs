//! `leasehold task export`: the file of a task, as it is or as it was.

use clap::Args;
use leasehold_wire::api::route;
use leasehold_wire::api::task::{TaskDetail, TaskRevisionDetail};

use super::OneTask;
use crate::exit::Exit;
use crate::task_toml;

const AFTER_HELP: &str = "\
Examples:
  leasehold task export nightly-report > nightly-report.toml
  leasehold task export nightly-report --revision 3 |
    leasehold task apply -f -                  as it was

Applied again, an export changes nothing, and its next export is the same to the
byte.

Exit codes:
  0 printed · 3 there is no such task or revision";

/// Prints a task's file.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Export {
    /// An earlier revision; `leasehold task history` lists them
    #[arg(long, value_name = "N")]
    revision: Option<u64>,

    /// Write out every default
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    of: OneTask,
}

impl Export {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let revision = match self.revision {
            None => {
                let task: TaskDetail = client.get(&self.of.path(route::TASK)).await?;
                task.revision
            }
            Some(number) => {
                let path = self.of.path(route::TASK_REVISION).replace("{number}", &number.to_string());
                let one: TaskRevisionDetail = client.get(&path).await?;
                one.revision
            }
        };
        let text = task_toml::write(&revision.0, self.full)?;
        self.of.connected.output.one(&revision, self.of.task.as_str(), |out| write!(out, "{text}"))?;
        Ok(Exit::Done)
    }
}
