//! `leasehold runs get`: everything about one run, and why it is pending.

use clap::Args;
use leasehold_core::run::RunState;
use leasehold_wire::api::explanation::{Explanation, RunExplanation};
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::{explanation, run_page};

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
}

impl Get {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let run: RunDetail = client.get(&route::of_run(route::RUN, &self.run)).await?;
        let explanation = if run.item.state == RunState::Pending {
            let path = route::of_run(route::RUN_EXPLANATION, &run.item.id.to_string());
            client.get::<RunExplanation>(&path).await?.explanation
        } else {
            None
        };
        let answer = Answer { run, explanation };
        let id = answer.run.item.id.to_string();
        self.connected.output.one(&answer, &id, |out| {
            run_page::write(out, &answer.run, self.connected.times)?;
            if let Some(found) = &answer.explanation {
                write!(out, "\nPending: ")?;
                explanation::write(out, found)?;
            }
            Ok(())
        })?;
        Ok(Exit::Done)
    }
}
