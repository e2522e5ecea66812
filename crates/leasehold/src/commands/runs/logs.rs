//! `leasehold runs logs` and `leasehold logs`: what a run wrote, byte for byte.

use clap::Args;

use crate::commands::connected::Connected;
use crate::commands::following::left;
use crate::exit::Exit;
use crate::failure::UsageError;
use crate::follow::{self, Wanted};
use crate::interrupt::Interrupts;
use crate::output::Format;

const AFTER_HELP: &str = "\
Examples:
  leasehold runs logs 0192f     what is there, each stream on its own
  leasehold logs -f 0192f       until it ends; Ctrl-C leaves the run going
  leasehold logs 0192f --attempt 1 2>/dev/null >out.txt

Exit codes:
  0 printed, however the run ended · 3 there is no such run or attempt
  130 interrupted";

/// Prints the output of a run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Logs {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    /// Go on until the run has ended
    #[arg(short, long)]
    follow: bool,

    /// Only this attempt: 1, 2, … [default: the latest]
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,

    #[command(flatten)]
    connected: Connected,
}

impl Logs {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let output = &self.connected.output;
        if output.output != Format::Table {
            let text = "-o: the output of a run is printed as it is; `runs get -o json` tells about the run";
            return Err(UsageError(text.to_owned()).into());
        }
        let client = self.connected.client()?;
        let mut interrupts = Interrupts::listen()?;
        let wanted = Wanted { run: &self.run, attempt: self.attempt, follow: self.follow };
        tokio::select! {
            end = follow::output(&client, wanted, output) => end?,
            () = interrupts.next() => {
                if self.follow {
                    left(output, &self.run);
                }
                return Ok(Exit::Interrupted);
            }
        };
        Ok(Exit::Done)
    }
}
