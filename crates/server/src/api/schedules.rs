//! Schedules: listed, their next fire times and their ledger; paused, resumed, filled afterwards.

use std::str::FromStr;

use axum::extract::State;
use leasehold_control::schedule::{BackfillAsk, FIRE_TIMES, FireTime as FireTimeView, PauseAsk};
use leasehold_control::view::{LedgerKey, LedgerPage, TriggersAfter};
use leasehold_core::id::{TaskName, TriggerName};
use leasehold_core::time::UtcMillis;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::schedule::{
    Backfill, BackfillAnswer, FireTime, FireTimes, LedgerItem, PauseAnswer, PauseTask, ScheduleItem,
};
use serde_json::json;

use super::Api;
use super::access::By;
use super::answer::{Answered, Json};
use super::query::{AFTER, Known, LIMIT, Param, Query};
use super::request::{AtProject, AtTask, JsonBody};

/// Fire times that are shown unless the query says how many.
const COUNT: usize = 10;

/// The place of a trigger in a list: `task/name`.
struct AfterTrigger(TaskName, TriggerName);

impl FromStr for AfterTrigger {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected what the page before said";
        let (task, name) = text.split_once('/').ok_or(expected)?;
        Ok(Self(task.parse().map_err(|_| expected)?, name.parse().map_err(|_| expected)?))
    }
}

/// The place of a line in a ledger: `milliseconds.trigger`, with `.gap` for that of a gap.
struct AfterLine(LedgerKey);

impl FromStr for AfterLine {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected what the page before said";
        let (text, is_gap) = text.strip_suffix(".gap").map_or((text, false), |text| (text, true));
        let (at, trigger) = text.split_once('.').ok_or(expected)?;
        let at = UtcMillis::new(at.parse().map_err(|_| expected)?);
        Ok(Self(LedgerKey { at, trigger: trigger.parse().map_err(|_| expected)?, is_gap }))
    }
}

fn shown(key: &LedgerKey) -> String {
    format!("{}.{}{}", key.at.get(), key.trigger, if key.is_gap { ".gap" } else { "" })
}

/// What a list of triggers is asked by.
pub(super) struct Listed;

impl Known for Listed {
    const PARAMS: &'static [Param] = &[AFTER, LIMIT, Param::text("task", "Those of this task.")];
}

/// What a ledger is asked by.
pub(super) struct Lines;

impl Known for Lines {
    const PARAMS: &'static [Param] = &[AFTER, LIMIT, OF];
}

/// What the next fire times are asked by.
pub(super) struct Times;

impl Known for Times {
    const PARAMS: &'static [Param] = &[
        Param {
            name: "count",
            about: "How many; ten unless said.",
            schema: || json!({ "type": "integer", "minimum": 1, "maximum": FIRE_TIMES }),
        },
        OF,
    ];
}

const OF: Param = Param::text("trigger", "Those of this trigger.");

/// `GET /api/v1/projects/{project}/schedules`: in the order of their tasks and names.
pub(super) async fn list(
    State(api): State<Api>,
    AtProject(project): AtProject,
    query: Query<Listed>,
) -> Answered<Page<ScheduleItem>> {
    let limit = query.limit()?;
    let after = query.one::<AfterTrigger>("after")?.map(|AfterTrigger(task, name)| (task, name));
    let page = TriggersAfter { project, task: query.one("task")?, after };
    let views = api.control.schedules(page, limit).await?;
    let next = views.last().filter(|_| views.len() == limit);
    let next = next.map(|last| format!("{}/{}", last.kept.key.task, last.kept.key.name));
    let item = |view: &leasehold_control::view::TriggerView| {
        ScheduleItem::new(&view.kept, &view.trigger, view.task_pause.as_ref(), view.token.as_ref())
    };
    Ok(Json(Page { items: views.iter().map(item).collect(), next }))
}

/// `GET …/tasks/{task}/fire-times`: the earliest first.
pub(super) async fn fire_times(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(task): AtTask,
    query: Query<Times>,
) -> Answered<FireTimes> {
    let count = query.number("count", 1..=FIRE_TIMES)?.unwrap_or(COUNT);
    let trigger: Option<TriggerName> = query.one("trigger")?;
    let (times, paused) = api.control.fire_times(&project, &task, trigger.as_ref(), count).await?;
    let time = |one: FireTimeView| FireTime { trigger: one.trigger, at: one.at.into(), time_zone: Some(one.time_zone) };
    Ok(Json(FireTimes { times: times.into_iter().map(time).collect(), paused }))
}

/// `GET …/tasks/{task}/ledger`: the newest first; of a deleted task, too.
pub(super) async fn ledger(
    State(api): State<Api>,
    AtProject(project): AtProject,
    AtTask(task): AtTask,
    query: Query<Lines>,
) -> Answered<Page<LedgerItem>> {
    let limit = query.limit()?;
    let before = query.one::<AfterLine>("after")?.map(|AfterLine(key)| key);
    let page = LedgerPage { project, task, trigger: query.one("trigger")?, before };
    let lines = api.control.ledger(page, limit).await?;
    let next = lines.last().filter(|_| lines.len() == limit).map(|last| shown(&last.key()));
    let items = lines.iter().map(|line| LedgerItem::new(&line.trigger, &line.line, line.run, line.written_at));
    Ok(Json(Page { items: items.collect(), next }))
}

/// `POST …/tasks/{task}/pause`: nothing of it starts by itself.
pub(super) async fn pause(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(task): AtTask,
    JsonBody(PauseTask { trigger, why }): JsonBody<PauseTask>,
) -> Answered<PauseAnswer> {
    let changed = api.control.pause_schedule(&caller, PauseAsk { project, task, trigger, why }).await?;
    Ok(Json(PauseAnswer { changed }))
}

/// `POST …/tasks/{task}/resume`: that pause is over.
pub(super) async fn resume(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(task): AtTask,
    JsonBody(PauseTask { trigger, why }): JsonBody<PauseTask>,
) -> Answered<PauseAnswer> {
    let changed = api.control.resume_schedule(&caller, PauseAsk { project, task, trigger, why }).await?;
    Ok(Json(PauseAnswer { changed }))
}

/// `POST …/tasks/{task}/backfill`: a page of it; `rest` says where the next begins. Safe to repeat: a fire time that has a
/// run gets no second.
pub(super) async fn backfill(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(task): AtTask,
    JsonBody(Backfill { trigger, from, to }): JsonBody<Backfill>,
) -> Answered<BackfillAnswer> {
    let ask = BackfillAsk { project, task, trigger, first: from.0, last: to.0 };
    let backfilled = api.control.backfill(&caller, ask).await?;
    let run_ids = backfilled.runs.iter().map(ToString::to_string).collect();
    Ok(Json(BackfillAnswer { run_ids, rest: backfilled.rest.map(Into::into) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_ledger_comes_back_as_it_was_shown() {
        for is_gap in [false, true] {
            let key = LedgerKey { at: UtcMillis::new(-5), trigger: "cron".parse().unwrap(), is_gap };
            assert_eq!(shown(&key).parse::<AfterLine>().unwrap().0, key);
        }
        assert!("5".parse::<AfterLine>().is_err() && "x.cron".parse::<AfterLine>().is_err());
        assert!("report/cron".parse::<AfterTrigger>().is_ok() && "report".parse::<AfterTrigger>().is_err());
    }
}
