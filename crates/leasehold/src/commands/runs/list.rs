//! `leasehold runs list` and `leasehold ps`.

use clap::Args;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::limits;
use leasehold_core::run::RunState;
use leasehold_core::time::{Clock as _, Millis};
use leasehold_wire::api::page::Page;
use leasehold_wire::api::run::RunItem;
use leasehold_wire::api::{route, time::Time};
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::output::Row;
use crate::system::SystemClock;
use crate::times::{age, coarse};

const AFTER_HELP: &str = "\
Examples:
  leasehold runs list                              the newest 20
  leasehold runs list --state failed --since 1h
  leasehold runs list --task nightly-report
  leasehold ps --state running -o name             only ids
  leasehold runs list --limit 500 -o jsonl | jq -r .worker";

const STATE_HELP: &str = "Only runs in this state: pending, dispatching, running, retry_wait, lost, succeeded, failed, \
                          cancelled or timed_out; repeatable";

/// Lists runs, newest first.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct List {
    #[arg(long, value_name = "STATE", help = STATE_HELP)]
    state: Vec<RunState>,

    /// Only runs of this task
    #[arg(long, value_name = "TASK")]
    task: Option<TaskName>,

    /// Only runs submitted within this time, such as 90s, 1h or 2d
    #[arg(long, value_name = "DURATION")]
    since: Option<Millis>,

    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Only runs of this project
    #[arg(long, env = "LEASEHOLD_PROJECT", value_name = "NAME")]
    project: Option<ProjectName>,

    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
#[serde(transparent)]
struct RunRow(RunItem);

impl Row for RunRow {
    const HEADS: &'static [&'static str] = &["id", "name", "state", "worker", "age", "took"];

    fn cells(&self) -> Vec<String> {
        let item = &self.0;
        let took = match (item.started_at, item.ended_at) {
            (Some(started), Some(ended)) => coarse(ended.0.since(started.0)),
            _ => "-".to_owned(),
        };
        let worker = item.worker.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        vec![item.id.to_string(), item.name.clone(), item.state.to_string(), worker, age(item.created_at.0), took]
    }

    fn name(&self) -> String {
        self.0.id.to_string()
    }
}

impl List {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let filter = self.filter();
        let mut rows = Vec::new();
        let mut after: Option<String> = None;
        while rows.len() < self.limit {
            let wanted = (self.limit - rows.len()).min(limits::PAGE);
            let after_part = after.as_deref().map(|after| format!("&after={}", route::segment(after)));
            let path = format!("{}?limit={wanted}{filter}{}", route::RUNS, after_part.unwrap_or_default());
            let page: Page<RunItem> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(RunRow));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        self.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }

    fn filter(&self) -> String {
        let mut filter = String::new();
        let mut add = |name: &str, value: &str| {
            filter.extend(["&", name, "=", &route::segment(value)]);
        };
        for state in &self.state {
            add("state", state.as_str());
        }
        if let Some(task) = &self.task {
            add("task", task.as_str());
        }
        if let Some(since) = self.since {
            add("since", &Time(SystemClock.utc().minus(since)).to_string());
        }
        if let Some(project) = &self.project {
            add("project", project.as_str());
        }
        filter
    }
}
