//! `leasehold schedule ledger`: what became of a task's fire times.

use clap::Args;
use leasehold_core::id::TriggerName;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::LedgerItem;
use serde::Serialize;

use crate::commands::task::OneTask;
use crate::exit::Exit;
use crate::output::Row;
use crate::times::TimeArgs;

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule ledger nightly-report
  leasehold schedule ledger nightly-report --limit 500 -o jsonl |
    jq -r 'select(.happened == \"skipped\")'

The newest fire time comes first; each has one line, and a gap is one line:
  fired        its run was started
  caught_up    its run was started late: nothing could fire when it was due
  backfilled   its run was asked for afterwards
  waits        its run is started when nothing stands in its way any more
  skipped      it got no run: another stood in its way, or took its place
  missed       a gap: nothing could fire, or it was paused, edited, deleted

A trigger keeps its newest 1000 lines, and all of the last seven days.

Exit codes:
  0 printed · 3 there was never such a task, or such a trigger of it";

/// Prints a task's schedule ledger.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ledger {
    /// How many lines
    #[arg(long, value_name = "N", default_value_t = 64)]
    limit: usize,

    /// Only of this trigger
    #[arg(long, value_name = "NAME")]
    trigger: Option<TriggerName>,

    #[command(flatten)]
    of: OneTask,
}

#[derive(Serialize)]
#[serde(transparent)]
struct LineRow {
    item: LedgerItem,
    #[serde(skip)]
    times: TimeArgs,
}

impl Row for LineRow {
    const HEADS: &'static [&'static str] = &["time", "trigger", "happened", "run", "why"];

    fn cells(&self) -> Vec<String> {
        let item = &self.item;
        let why = match (&item.by_run_id, item.by_instant, item.last_at) {
            (Some(run), ..) => format!("run {run} stood in the way"),
            (_, Some(instant), _) => format!("{} took its place", self.times.show(instant.0)),
            (_, _, Some(last)) => {
                let (instants, why) = (item.instants.unwrap_or_default(), item.why.as_deref().unwrap_or_default());
                format!("{why}: {instants} up to {}", self.times.show(last.0))
            }
            _ => String::new(),
        };
        let run = item.run_id.map_or_else(String::new, |run| run.to_string());
        vec![self.times.show(item.at.0), item.trigger.to_string(), item.happened.clone(), run, why]
    }

    fn name(&self) -> String {
        self.item.at.to_string()
    }
}

impl Ledger {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let times = self.of.connected.times;
        let path = self.of.path(route::TASK_LEDGER);
        let of = self.trigger.map_or_else(String::new, |name| format!("&trigger={}", route::segment(name.as_str())));
        let mut rows: Vec<LineRow> = Vec::new();
        let mut after = String::new();
        while rows.len() < self.limit {
            let limit = (self.limit - rows.len()).min(leasehold_core::limits::PAGE);
            let page: Page<LedgerItem> = client.get(&format!("{path}?limit={limit}{of}{after}")).await?;
            rows.extend(page.items.into_iter().map(|item| LineRow { item, times }));
            let Some(next) = page.next else { break };
            after = format!("&after={}", route::segment(&next));
        }
        self.of.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
