//! `leasehold task apply`: what files say becomes what is there, all of it or nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use leasehold_core::limits::APPLY_BODY;
use leasehold_core::task::Step;
use leasehold_wire::api::route;
use leasehold_wire::api::task::{ApplyTasks, PlanAnswer, PlanLine, TasksAnswer};
use serde::Serialize;

use super::InProject;
use crate::client::{Asked, Client};
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::failure::UsageError;
use crate::task_files;

const AFTER_HELP: &str = "\
Examples:
  leasehold task apply -f nightly-report.toml
  leasehold task apply -f tasks/ --dry-run     show the plan, change nothing
  leasehold task apply -f tasks/ --prune       delete what no file names, too
  generate-tasks | leasehold task apply -f -

The plan is shown and then carried out in one transaction: if anything changed
in between, nothing is done. Applied again, nothing changes. Runs that are there
keep what they were submitted with. At most 10000 tasks, and 32 MiB of them as
they are sent, are taken at once.

Exit codes:
  0 done, or nothing to do · 2 a file has mistakes: all of them are told
  4 not allowed: this needs an operator's token
  10 the tasks changed meanwhile, or one that would go has runs that have not
    ended (--cascade cancels them with it); --dry-run foresees the second";

/// Applies task files.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Apply {
    /// A task file, a directory of them (`*.toml`, with those inside), or `-` for stdin; repeatable
    #[arg(short, long, required = true, value_name = "FILE|DIR")]
    file: Vec<PathBuf>,

    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Delete every task of the project that no file names
    #[arg(long)]
    prune: bool,

    /// With --prune: cancel the runs of what is deleted
    #[arg(long, requires = "prune")]
    cascade: bool,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

/// What was done, or would be.
#[derive(Serialize)]
struct Applied {
    changed: bool,
    tasks: Vec<PlanLine>,
}

impl Apply {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let tasks = task_files::read(&self.file)?;
        let client = self.connected.client()?;
        let project = self.project.name();
        let wanted = ApplyTasks { tasks, prune: self.prune, cascade: self.cascade, plan: None };
        let shown = plan(&client, &project, &wanted).await?;
        let settled = shown.tasks.iter().all(|line| line.step == Step::Keep.name());
        let changed = if self.dry_run || settled {
            false
        } else {
            let wanted = ApplyTasks { plan: Some(shown.plan), ..wanted };
            let path = route::of_project(route::TASKS, &project);
            let answer: TasksAnswer = client.put(&path, Asked::json(wanted.to_body())).await?;
            answer.changed
        };
        let mut applied = Applied { changed, tasks: shown.tasks };
        if !self.dry_run {
            // It was carried out: what stood in the way is gone.
            applied.tasks.iter_mut().for_each(|line| line.refused = None);
        }
        self.connected.output.one(&applied, &names(&applied.tasks), |out| {
            for line in applied.tasks.iter().filter(|line| line.step != Step::Keep.name()) {
                let refused = line.refused.as_ref().map_or_else(String::new, |why| format!(": refused, {why}"));
                writeln!(out, "{} {}  {}{refused}", sign(&line.step), line.name, line.step)?;
            }
            writeln!(out, "{}", summary(&applied.tasks, self.dry_run))
        })?;
        if applied.tasks.iter().any(|line| line.refused.is_some()) {
            self.connected.output.note("as things are, applying this is refused, and nothing of it is done");
            return Ok(Exit::Conflict);
        }
        Ok(Exit::Done)
    }
}

/// What applying would do.
pub(super) async fn plan(client: &Client, project: &str, wanted: &ApplyTasks) -> anyhow::Result<PlanAnswer> {
    let body = wanted.to_body();
    if body.len() > APPLY_BODY {
        let told = format!("these tasks are {} bytes to send: at most {APPLY_BODY} are taken at once", body.len());
        return Err(UsageError(format!("{told}; apply them in parts, without --prune")).into());
    }
    Ok(client.post(&route::of_project(route::TASKS_PLAN, project), Asked::json(body)).await?)
}

/// The names of what changes, a line each.
fn names(lines: &[PlanLine]) -> String {
    let changed = lines.iter().filter(|line| line.step != Step::Keep.name());
    changed.map(|line| line.name.to_string()).collect::<Vec<_>>().join("\n")
}

fn sign(step: &str) -> char {
    match step {
        "create" => '+',
        "update" => '~',
        "remove" => '-',
        _ => ' ',
    }
}

fn summary(lines: &[PlanLine], dry_run: bool) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        *counts.entry(line.step.as_str()).or_default() += 1;
    }
    let words = [("create", "created"), ("update", "updated"), ("remove", "removed"), ("keep", "unchanged")];
    let parts: Vec<String> = words
        .iter()
        .filter_map(|(step, done)| {
            let count = counts.get(step)?;
            let words = if dry_run && *step != "keep" { format!("to {step}") } else { (*done).to_owned() };
            Some(format!("{count} {words}"))
        })
        .collect();
    if parts.is_empty() { "no tasks".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_was_done_or_would_be() {
        let line = |name: &str, step: &str| PlanLine {
            name: name.parse().unwrap(),
            step: step.to_owned(),
            before: None,
            after: None,
            refused: None,
        };
        let lines = [line("a", "create"), line("b", "keep"), line("c", "remove"), line("d", "create")];
        assert_eq!(summary(&lines, false), "2 created, 1 removed, 1 unchanged");
        assert_eq!(summary(&lines, true), "2 to create, 1 to remove, 1 unchanged");
        assert_eq!(summary(&[], false), "no tasks");
        assert_eq!(names(&lines), "a\nc\nd");
    }
}
