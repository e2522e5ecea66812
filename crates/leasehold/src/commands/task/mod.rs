//! `leasehold task`: one file per verb.

mod apply;
mod delete;
mod diff;
mod export;
mod get;
mod history;
mod list;
mod pause;
mod run;
mod schema;
mod token;

use clap::{Args, Subcommand};
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_wire::api::route;

use super::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold task apply -f tasks/ --dry-run      what would change
  leasehold task apply -f tasks/                make it so
  leasehold task run nightly-report --param DAY=2027-01-31
  leasehold task list
  leasehold task export nightly-report > tasks/nightly-report.toml

A task is a file: its name, what it runs, where and under which limits. A
directory of them is what `apply` makes true; nothing is removed without
--prune.";

/// The verbs of tasks.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum Task {
    /// Make tasks what their files say: all of them, or none
    Apply(apply::Apply),
    /// Show how files differ from what is there
    Diff(diff::Diff),
    /// List tasks
    List(list::List),
    /// Show a task
    Get(get::Get),
    /// Print a task's file
    Export(export::Export),
    /// List the revisions that a task had, and who applied them
    History(history::History),
    /// Run a task as it is now
    Run(run::Run),
    /// Keep a task's triggers from starting anything
    Pause(pause::Pause),
    /// Let a task's triggers start runs again
    Resume(pause::Resume),
    /// Make the token that a task's webhook is called with
    Token(token::Token),
    /// Delete a task
    Delete(delete::Delete),
    /// Print the JSON Schema of a task file, for editors
    Schema(schema::Schema),
}

impl Task {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::Apply(apply) => apply.execute().await,
            Self::Diff(diff) => diff.execute().await,
            Self::List(list) => list.execute().await,
            Self::Get(get) => get.execute().await,
            Self::Export(export) => export.execute().await,
            Self::History(history) => history.execute().await,
            Self::Run(run) => Box::pin(run.execute()).await,
            Self::Pause(pause) => pause.execute().await,
            Self::Resume(resume) => resume.execute().await,
            Self::Token(token) => token.execute().await,
            Self::Delete(delete) => delete.execute().await,
            Self::Schema(schema) => schema.execute(),
        }
    }
}

/// What every verb of one task takes: which, whose, and where to ask.
#[derive(Debug, Args)]
pub(crate) struct OneTask {
    /// The task's name
    pub(crate) task: TaskName,

    #[command(flatten)]
    pub(crate) project: InProject,

    #[command(flatten)]
    pub(crate) connected: Connected,
}

impl OneTask {
    /// The path of a template of it.
    pub(crate) fn path(&self, template: &str) -> String {
        route::of_task(template, &self.project.name(), self.task.as_str())
    }
}

/// The namespace of a verb's tasks.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct InProject {
    /// The project that the tasks belong to [default: default]
    #[arg(long, env = "LEASEHOLD_PROJECT", value_name = "NAME")]
    project: Option<ProjectName>,
}

impl InProject {
    pub(crate) fn name(&self) -> String {
        self.project.clone().unwrap_or_default().to_string()
    }
}
