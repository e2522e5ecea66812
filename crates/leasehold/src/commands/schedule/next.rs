//! `leasehold schedule next`: when a task fires.

use clap::Args;
use leasehold_core::id::TriggerName;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::{FireTime, FireTimes};
use serde::Serialize;

use crate::commands::task::OneTask;
use crate::exit::Exit;
use crate::output::Row;
use crate::times::{TimeArgs, in_zone};

const AFTER_HELP: &str = "\
Examples:
  leasehold schedule next nightly-report
  leasehold schedule next nightly-report --count 3 --utc
  leasehold schedule next nightly-report -q | head -1

Each is shown in your own time zone, and on the clocks of the schedule's. They
are nominal times: a `jitter` starts each of them a little later, always by the
same span.

Exit codes:
  0 printed · 3 there is no such task, or no such trigger of it";

/// Prints a task's next fire times.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Next {
    /// How many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: usize,

    /// Only of this trigger
    #[arg(long, value_name = "NAME")]
    trigger: Option<TriggerName>,

    #[command(flatten)]
    of: OneTask,
}

#[derive(Serialize)]
#[serde(transparent)]
struct TimeRow {
    item: FireTime,
    #[serde(skip)]
    times: TimeArgs,
}

impl Row for TimeRow {
    const HEADS: &'static [&'static str] = &["fires", "in its zone", "trigger"];

    fn cells(&self) -> Vec<String> {
        let at = self.item.at.0;
        let there = self.item.time_zone.as_ref().map_or_else(String::new, |zone| in_zone(at, zone));
        vec![self.times.show(at), there, self.item.trigger.to_string()]
    }

    fn name(&self) -> String {
        self.item.at.to_string()
    }
}

impl Next {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.of.connected.client()?;
        let times = self.of.connected.times;
        let path = self.of.path(route::TASK_FIRE_TIMES);
        let of = self.trigger.map_or_else(String::new, |name| format!("&trigger={}", route::segment(name.as_str())));
        let answer: FireTimes = client.get(&format!("{path}?count={}{of}", self.count)).await?;
        if answer.paused {
            self.of.connected.output.note("Paused: nothing is started at these times until it is resumed");
        }
        let rows: Vec<_> = answer.times.into_iter().map(|item| TimeRow { item, times }).collect();
        self.of.connected.output.list(&rows)?;
        Ok(Exit::Done)
    }
}
