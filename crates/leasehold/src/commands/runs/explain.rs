//! `leasehold runs explain` and `leasehold explain`: why a run is still pending, and what is open about a lost one.

use clap::Args;
use leasehold_wire::api::explanation::RunExplanation;
use leasehold_wire::api::route;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::{explanation, question};

const AFTER_HELP: &str = "\
Examples:
  leasehold runs explain 0192f
  leasehold explain 0192f -o json | jq .explanation.classes
  leasehold explain 0192f -o json | jq -r '.question.options[].verb'

Exit codes:
  0 told · 3 there is no such run";

/// Says why a run is still pending; of a lost one, what is known, what is not, and what you may do.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Explain {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    #[command(flatten)]
    connected: Connected,
}

impl Explain {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let answer: RunExplanation = client.get(&route::of_run(route::RUN_EXPLANATION, &self.run)).await?;
        let id = answer.run_id.to_string();
        self.connected.output.one(&answer, &id, |out| {
            match (&answer.explanation, &answer.question) {
                (Some(found), _) => {
                    write!(out, "Run {id} is pending: ")?;
                    explanation::write(out, found)?;
                    explanation::write_holders(out, &answer.limits, self.connected.times)?;
                }
                (None, Some(question)) => {
                    writeln!(out, "Run {id} is lost: contact was lost, and what became of it is an open question.\n")?;
                    question::write(out, question, &id)?;
                }
                (None, None) if answer.remains.is_empty() => {
                    writeln!(out, "Run {id} is {}: nothing to explain", answer.state)?;
                }
                (None, None) => writeln!(out, "Run {id} is {}.", answer.state)?,
            }
            // A lost run's question tells of it among the rest that is known.
            let remains = answer.remains.iter().filter(|_| answer.question.is_none());
            remains.into_iter().try_for_each(|sentence| writeln!(out, "{sentence}"))
        })?;
        Ok(Exit::Done)
    }
}
