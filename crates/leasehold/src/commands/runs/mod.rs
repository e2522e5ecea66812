//! `leasehold runs`: one file per verb.

pub(crate) mod cancel;
pub(crate) mod explain;
mod get;
pub(crate) mod list;
pub(crate) mod logs;
mod resolve;
mod watch;

use clap::Subcommand;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold runs list --state running
  leasehold runs get 0192f          any unique beginning of a run's id
  leasehold runs logs -f 0192f
  leasehold runs cancel 0192f
  leasehold runs explain 0192f      why it is pending, what is known if lost
  leasehold runs resolve 0192f mark-failed --reason 'the machine burned down'";

/// The verbs of runs.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum Runs {
    /// List runs, newest first
    List(list::List),
    /// Show a run with its attempts, why it is pending, or what is open about it
    Get(get::Get),
    /// Print the output of a run
    Logs(logs::Logs),
    /// Stop a run: at once if nothing of it started, else with its grace
    Cancel(cancel::Cancel),
    /// Say what is to become of a lost run: wait, retry, mark-failed, mark-succeeded
    Resolve(resolve::Resolve),
    /// Start the next attempt of a lost run: short for `resolve RUN retry`
    Retry(resolve::Retry),
    /// Print the story of a run as it happens, until its end
    Watch(watch::Watch),
    /// Say why a run is still pending, per worker; of a lost one, what is known and what you may do
    Explain(explain::Explain),
}

impl Runs {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.execute().await,
            Self::Get(get) => get.execute().await,
            Self::Logs(logs) => logs.execute().await,
            Self::Cancel(cancel) => cancel.execute().await,
            Self::Resolve(resolve) => resolve.execute().await,
            Self::Retry(retry) => retry.execute().await,
            Self::Watch(watch) => watch.execute().await,
            Self::Explain(explain) => explain.execute().await,
        }
    }
}
