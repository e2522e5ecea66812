//! `leasehold schedule list`.

use clap::Args;
use leasehold_core::id::TaskName;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::ScheduleItem;
use serde::Serialize;

use crate::commands::connected::Connected;
use crate::commands::task::InProject;
use crate::exit::Exit;
use crate::output::Row;
use crate::times::TimeArgs;

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule list
  leasehold schedule list --task nightly-report
  leasehold schedule list -o jsonl | jq -r 'select(.paused) | .task'

Exit codes:
  0 listed · 3 there is no such task or project";

/// Lists the triggers of a project's tasks.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct List {
    /// Only those of this task
    #[arg(long, value_name = "NAME")]
    task: Option<TaskName>,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

#[derive(Serialize)]
#[serde(transparent)]
struct ScheduleRow {
    item: ScheduleItem,
    #[serde(skip)]
    times: TimeArgs,
}

impl Row for ScheduleRow {
    const HEADS: &'static [&'static str] = &["task", "trigger", "cron", "time zone", "next", "overlap"];

    fn cells(&self) -> Vec<String> {
        let item = &self.item;
        let next = match (item.paused, item.next_at) {
            (true, _) => "paused".to_owned(),
            (false, Some(at)) => self.times.show(at.0),
            (false, None) => String::new(),
        };
        let cron = item.cron.clone().unwrap_or_else(|| item.kind.to_string());
        let zone = item.time_zone.clone().unwrap_or_default();
        vec![item.id.task.to_string(), item.id.trigger.to_string(), cron, zone, next, item.overlap.clone()]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.item.id.task, self.item.id.trigger)
    }
}

impl List {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let times = self.connected.times;
        let of = self.task.map_or_else(String::new, |task| format!("task={}&", route::segment(task.as_str())));
        let all = format!("{}?{of}", route::of_project(route::SCHEDULES, &self.project.name()));
        let mut rows = Vec::new();
        let mut path = format!("{all}limit=64");
        loop {
            let page: Page<ScheduleItem> = client.get(&path).await?;
            rows.extend(page.items.into_iter().map(|item| ScheduleRow { item, times }));
            let Some(next) = page.next else { break };
            path = format!("{all}after={}", route::segment(&next));
        }
        self.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
