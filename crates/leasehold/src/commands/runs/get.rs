//! `leasehold runs get`: everything about one run, why it is pending, and what is open about it.

use clap::Args;
use leasehold_core::run::RunState;
use leasehold_wire::api::explanation::{Explanation, Limit, Question, RunExplanation};
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::{explanation, question, run_page};

const AFTER_HELP: &str = "\
Examples:
  leasehold runs get 0192f                      any unique beginning of the id
  leasehold runs get 0192f -o json | jq -r .state

Exit codes:
  0 found · 3 there is no such run · 2 the beginning fits several runs";

/// Shows a run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Get {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    run: RunDetail,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<Question>,
}

impl Get {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let run: RunDetail = client.get(&route::of_run(route::RUN, &self.run)).await?;
        let (explanation, limits, question) = if matches!(run.item.state, RunState::Pending | RunState::Lost) {
            let path = route::of_run(route::RUN_EXPLANATION, &run.item.id.to_string());
            let found: RunExplanation = client.get(&path).await?;
            (found.explanation, found.limits, found.question)
        } else {
            (None, Vec::new(), None)
        };
        let answer = Answer { run, explanation, limits, question };
        let id = answer.run.item.id.to_string();
        self.connected.output.one(&answer, &id, |out| {
            run_page::write(out, &answer.run, self.connected.times)?;
            if let Some(found) = &answer.explanation {
                write!(out, "\nPending: ")?;
                explanation::write(out, found)?;
                explanation::write_holders(out, &answer.limits, self.connected.times)?;
            }
            if let Some(open) = &answer.question {
                writeln!(out)?;
                question::write(out, open, &id)?;
            }
            Ok(())
        })?;
        Ok(Exit::Done)
    }
}
