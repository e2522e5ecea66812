//! `leasehold audit`: one file per verb.

mod list;

use clap::Subcommand;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold audit list               the newest 20 changes: by whom, from where
  leasehold audit list -o jsonl      the same for a program";

/// The verbs of the audit.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum Audit {
    /// List what people and machines changed, newest first
    List(list::List),
}

impl Audit {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.execute().await,
        }
    }
}
