//! `leasehold worker`: one file per verb.

mod enroll;
mod get;
mod list;

use clap::Subcommand;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker enroll --name nas      print the line to paste on the new machine
  leasehold worker list
  leasehold worker get nas";

/// The verbs of workers.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum Worker {
    /// Allow one machine to become a worker, and print the line to paste on it
    Enroll(enroll::Enroll),
    /// List workers
    List(list::List),
    /// Show a worker: its session, what it can do, what it runs
    Get(get::Get),
}

impl Worker {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::Enroll(enroll) => enroll.execute().await,
            Self::List(list) => list.execute().await,
            Self::Get(get) => get.execute().await,
        }
    }
}
