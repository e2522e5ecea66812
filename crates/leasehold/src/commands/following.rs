//! What is done with a run that was just submitted: followed, waited for, or left. The same for every verb that submits.

use std::time::Duration;

use clap::Args;
use leasehold_core::run::RunState;
use leasehold_core::time::Millis;
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;

use super::connected::Connected;
use crate::client::Client;
use crate::exit::Exit;
use crate::failure::UsageError;
use crate::follow::{self, Wanted};
use crate::interrupt::Interrupts;
use crate::output::{Format, OutputArgs};
use crate::run_page;
use crate::waiting;

/// How a submitted run is watched.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct Following {
    /// Copy the run's stdout and stderr to ours until it ends (the default)
    #[arg(long, group = "how")]
    follow: bool,

    /// Wait for the end without copying output
    #[arg(long, group = "how")]
    wait: bool,

    /// Submit and leave; -q prints only the run's id
    #[arg(long, group = "how")]
    detach: bool,

    /// Stop waiting after this long, with exit code 9; the run goes on
    #[arg(long, value_name = "DURATION", conflicts_with = "detach")]
    wait_timeout: Option<Millis>,

    /// Exit with the command's own exit code, 128+n for a signal
    #[arg(long, conflicts_with = "detach")]
    reflect_exit_status: bool,
}

impl Following {
    /// Refuses an output format that would mix with the command's own output.
    pub(crate) fn check(&self, output: &OutputArgs) -> anyhow::Result<()> {
        if !self.wait && !self.detach && output.output != Format::Table {
            let text = "-o needs --wait or --detach: otherwise stdout carries the command's own output";
            return Err(UsageError(text.to_owned()).into());
        }
        Ok(())
    }

    /// Watches `run` as far as that was asked for.
    pub(crate) async fn watch(&self, connected: &Connected, client: &Client, run: &RunDetail) -> anyhow::Result<Exit> {
        let output = &connected.output;
        let id = run.item.id.to_string();
        if self.detach {
            output.one(run, &id, |out| {
                writeln!(out, "{id}")?;
                output.note(&format!("follow it with `leasehold logs -f {id}`"));
                Ok(())
            })?;
            return Ok(Exit::Done);
        }
        // Listening before the first word about the run: whoever reads that word may interrupt us.
        let mut interrupts = Interrupts::listen()?;
        output.note(&format!("run {id}"));
        let ended = tokio::select! {
            ended = self.until_settled(client, output, &id) => ended.inspect_err(|_| no_longer_followed(output, &id))?,
            () = interrupts.next() => {
                left(output, &id);
                return Ok(Exit::Interrupted);
            }
            () = sleep(self.wait_timeout) => return self.gave_up(client, output, &id).await,
        };
        self.tell(output, &ended)
    }

    async fn until_settled(&self, client: &Client, output: &OutputArgs, id: &str) -> anyhow::Result<RunDetail> {
        let settled = async {
            if self.wait {
                return waiting::events(client, id, output, |_| Ok(())).await;
            }
            follow::output(client, Wanted { run: id, attempt: None, follow: true }, output).await?;
            Ok(client.get(&route::of_run(route::RUN, id)).await?)
        };
        waiting::saying_why_pending(client, id, output, Box::pin(settled)).await
    }

    async fn gave_up(&self, client: &Client, output: &OutputArgs, id: &str) -> anyhow::Result<Exit> {
        let run: RunDetail = client.get(&route::of_run(route::RUN, id)).await?;
        if run.item.state.is_terminal() {
            return self.tell(output, &run);
        }
        let why = if run.item.state == RunState::Pending {
            format!("; `leasehold explain {id}` says why")
        } else {
            String::new()
        };
        output.note(&format!("run {id} is still {} and goes on{why}", run.item.state));
        Ok(Exit::StillPending)
    }

    fn tell(&self, output: &OutputArgs, run: &RunDetail) -> anyhow::Result<Exit> {
        let id = run.item.id.to_string();
        if self.wait {
            output.one(run, &id, |out| writeln!(out, "{id} {}", run.item.state))?;
        }
        Ok(ended(run, output, self.reflect_exit_status))
    }
}

/// Ready after `span`; never without one.
async fn sleep(span: Option<Millis>) {
    match span {
        Some(span) => tokio::time::sleep(span.to_std().max(Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}

/// Says where a run is to be found that we could not follow to its end: that we stop is no end of the run.
fn no_longer_followed(output: &OutputArgs, id: &str) {
    output.note(&format!("run {id} does not end with this: `leasehold logs -f {id}` follows it"));
}

/// Says that a run goes on although nobody watches it any more.
pub(crate) fn left(output: &OutputArgs, id: &str) {
    output.note(&format!("run {id} goes on: `leasehold logs -f {id}` follows it, `leasehold cancel {id}` stops it"));
}

/// Says how a run ended where that is not plain, and answers the exit code.
pub(crate) fn ended(run: &RunDetail, output: &OutputArgs, reflect: bool) -> Exit {
    let item = &run.item;
    if item.state != RunState::Succeeded {
        let outcome =
            item.outcome.as_ref().map(|outcome| format!(": {}", run_page::words(outcome))).unwrap_or_default();
        let fix = if item.state == RunState::Lost { "; nobody knows yet how it ended" } else { "" };
        output.note(&format!("run {} {}{outcome}{fix}", item.id, in_words(item.state)));
    }
    let own = item.outcome.as_ref().and_then(leasehold_wire::api::run::Outcome::shell_code);
    match own {
        Some(code) if reflect => Exit::OfCommand(code),
        _ => run_page::exit_of(item.state),
    }
}

fn in_words(state: RunState) -> &'static str {
    match state {
        RunState::TimedOut => "timed out",
        RunState::Cancelled => "was cancelled",
        RunState::Lost => "is lost",
        other => other.as_str(),
    }
}
