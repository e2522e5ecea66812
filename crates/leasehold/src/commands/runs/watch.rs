//! `leasehold runs watch`: the story of a run as it happens, until its end.

use std::io::{self, Write as _};

use clap::Args;
use leasehold_wire::api::event::Event;

use crate::commands::connected::Connected;
use crate::commands::following::{ended, left};
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::output::{Format, on_one_line};
use crate::times::TimeArgs;
use crate::waiting;

const AFTER_HELP: &str = "\
Examples:
  leasehold runs watch 0192f                    every event, until it has ended
  leasehold runs watch 0192f --exit-status -q   wait, tell by the exit code
  leasehold runs watch 0192f -o jsonl | jq .kind

Exit codes:
  0 it ended (with --exit-status: it succeeded) · 3 there is no such run
  130 interrupted: the run goes on
  with --exit-status 5 it failed · 6 cancelled · 7 timed out · 8 lost or unknown
  with --reflect-exit-status the command's own code, 128+n for a signal";

/// Prints the events of a run until its end.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Watch {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    /// Tell by the exit code how the run ended
    #[arg(long)]
    exit_status: bool,

    /// Exit with the command's own exit code, 128+n for a signal
    #[arg(long)]
    reflect_exit_status: bool,

    #[command(flatten)]
    connected: Connected,
}

impl Watch {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let output = &self.connected.output;
        let mut interrupts = Interrupts::listen()?;
        let each = |event: &Event| self.print(event);
        let run = tokio::select! {
            run = waiting::events(&client, &self.run, output, each) => run?,
            () = interrupts.next() => {
                left(output, &self.run);
                return Ok(Exit::Interrupted);
            }
        };
        let exit = ended(&run, output, self.reflect_exit_status);
        Ok(if self.exit_status || self.reflect_exit_status { exit } else { Exit::Done })
    }

    fn print(&self, event: &Event) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        match self.connected.output.format() {
            Format::Table => writeln!(out, "{}", line(event, self.connected.times))?,
            Format::Json | Format::Jsonl => {
                serde_json::to_writer(&mut out, event)?;
                writeln!(out)?;
            }
            // Quiet: only the exit code tells.
            Format::Name if self.connected.output.quiet => {}
            Format::Name => writeln!(out, "{}", event.kind)?,
        }
        out.flush()?;
        Ok(())
    }
}

fn line(event: &Event, times: TimeArgs) -> String {
    let facts: Vec<String> = event.facts.iter().map(|(name, fact)| format!("{name}={fact}")).collect();
    let said = format!("{} {:<18} {} {}", times.show(event.at.0), event.kind, event.actor, facts.join(" "));
    on_one_line(said.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_time_author_and_facts() {
        let event: Event = serde_json::from_str(
            r#"{"sequence":2,"at":"2026-01-31T03:00:00.5Z","kind":"attempt.claimed","actor":"worker:nas",
                "run_id":"01900000-0000-7000-8000-000000000000","facts":{"score":"3"}}"#,
        )
        .unwrap();
        assert_eq!(line(&event, TimeArgs { utc: true }), "2026-01-31T03:00:00Z attempt.claimed    worker:nas score=3");

        let mut event = event;
        event.facts.insert("why".to_owned(), "x\n2026-01-31T03:00:01Z run.ended \u{1b}[2J".to_owned());
        let line = line(&event, TimeArgs { utc: true });
        assert!(!line.contains(char::is_control), "nobody's words are a line of ours: {line:?}");
    }
}
