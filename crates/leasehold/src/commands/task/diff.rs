//! `leasehold task diff`: how files differ from what is there.

use std::path::PathBuf;

use clap::Args;
use leasehold_core::task::Step;
use leasehold_wire::api::route;
use leasehold_wire::api::task::{ApplyTasks, TaskDetail};
use serde::Serialize;
use similar::TextDiff;

use super::{InProject, apply};
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::{task_files, task_toml};

const AFTER_HELP: &str = "\
Examples:
  leasehold task diff -f nightly-report.toml
  leasehold task diff -f tasks/ --prune          and what no file names
  leasehold task diff -f tasks/ --exit-code      10 if anything differs

What is compared is what a task means: comments, order and spelling make no
difference.

Exit codes:
  0 shown · 2 a file has mistakes · 10 with --exit-code: something differs";

/// Compares task files with what is there.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Diff {
    /// A task file, a directory of them, or `-` for stdin; repeatable
    #[arg(short, long, required = true, value_name = "FILE|DIR")]
    file: Vec<PathBuf>,

    /// Show every task of the project that no file names, too
    #[arg(long)]
    prune: bool,

    /// Exit with 10 if anything differs
    #[arg(long)]
    exit_code: bool,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

/// What differs of one task.
#[derive(Serialize)]
struct Differing {
    name: String,
    step: String,
    diff: String,
}

impl Diff {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let wanted = ApplyTasks { tasks: task_files::read(&self.file)?, prune: self.prune, ..ApplyTasks::default() };
        let client = self.connected.client()?;
        let project = self.project.name();
        let mut differing = Vec::new();
        for line in apply::plan(&client, &project, &wanted).await?.tasks {
            if line.step == Step::Keep.name() {
                continue;
            }
            let name = line.name.to_string();
            let before = match line.before {
                Some(_) => {
                    let task: TaskDetail = client.get(&route::of_task(route::TASK, &project, &name)).await?;
                    task_toml::write(&task.revision.0, false)?
                }
                None => String::new(),
            };
            let after = match wanted.tasks.get(&line.name) {
                Some(revision) => task_toml::write(&revision.to_value(), false)?,
                None => String::new(),
            };
            differing.push(Differing { diff: unified(&name, &before, &after), name, step: line.step });
        }
        let names = differing.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join("\n");
        self.connected
            .output
            .one(&differing, &names, |out| differing.iter().try_for_each(|one| write!(out, "{}", one.diff)))?;
        Ok(if self.exit_code && !differing.is_empty() { Exit::Conflict } else { Exit::Done })
    }
}

fn unified(name: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff().context_radius(3).header(&format!("{name} (there)"), &format!("{name} (file)")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let text = unified("a", "one\ntwo\n", "one\nthree\n");
        assert_eq!(text, "--- a (there)\n+++ a (file)\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
    }
}
