//! `leasehold worker`: one file per verb.

mod delete;
mod drain;
mod enroll;
mod get;
mod grant_takeover;
mod list;
mod resume;

use clap::Subcommand;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker enroll --name nas      the line to paste on the machine
  leasehold worker list
  leasehold worker get nas
  leasehold worker drain nas --reason 'new disk'
  leasehold worker resume nas
  leasehold worker delete nas";

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
    /// Give a worker nothing new; what it runs goes on
    Drain(drain::Drain),
    /// Delete a worker: its identity ends, for good
    Delete(delete::Delete),
    /// Let one registration in that would be kept out: another live session, or a spent ticket
    GrantTakeover(grant_takeover::GrantTakeover),
    /// Let a drained worker take work again
    Resume(resume::Resume),
}

impl Worker {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::Enroll(enroll) => enroll.execute().await,
            Self::List(list) => list.execute().await,
            Self::Get(get) => get.execute().await,
            Self::Drain(drain) => drain.execute().await,
            Self::Delete(delete) => delete.execute().await,
            Self::GrantTakeover(grant) => grant.execute().await,
            Self::Resume(resume) => resume.execute().await,
        }
    }
}
