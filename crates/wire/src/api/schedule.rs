//! Schedules: the triggers of tasks, their next fire times, their ledger, and what a person does to them.

use leasehold_core::canonical::Value;
use leasehold_core::id::{ProjectName, RunId, TaskName, TriggerName};
use leasehold_core::limits::{JSON_BODY, NAME_BYTES, WHY_BYTES};
use leasehold_core::revision::{Source, Trigger};
use leasehold_core::schedule::{Happened, InTheWay, Line};
use leasehold_core::shape::ShapeError;
use leasehold_core::time::UtcMillis;
use leasehold_core::trigger::webhook::TokenMade;
use leasehold_core::trigger::{KeptTrigger, Kind, Pause, TriggerKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::route;
use super::schema;
use super::time::Time;
use crate::field;

/// A person's pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PauseItem {
    /// What is paused: `task` or `trigger`.
    pub of: String,
    /// Who said so.
    pub by: String,
    /// Their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Since when.
    pub at: Time,
}

impl PauseItem {
    /// The pause of a task.
    pub fn of_task(pause: &Pause) -> Self {
        Self::new("task", pause)
    }

    fn new(of: &str, pause: &Pause) -> Self {
        Self { of: of.to_owned(), by: pause.by.clone(), why: pause.why.clone(), at: pause.at.into() }
    }
}

/// Which trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerId {
    /// Whose namespace.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub project: ProjectName,
    /// Of which task.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub task: TaskName,
    /// Its name in the task.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub trigger: TriggerName,
}

impl From<TriggerKey> for TriggerId {
    fn from(TriggerKey { project, task, name }: TriggerKey) -> Self {
        Self { project, task, trigger: name }
    }
}

impl TriggerId {
    /// Where a webhook of this name is called.
    pub fn hook(&self) -> String {
        route::of_trigger(route::HOOK, self.project.as_str(), self.task.as_str(), self.trigger.as_str())
    }
}

/// A trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleItem {
    /// Which.
    #[serde(flatten)]
    pub id: TriggerId,
    /// `cron` or `webhook`.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<Kind>")]
    pub kind: Kind,
    /// Its expression, if it waits for times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The zone that this is read in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// `skip`, `buffer-one`, `cancel-other` or `allow-all`.
    pub overlap: String,
    /// The next nominal time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// The nominal time that waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_at: Option<Time>,
    /// Whether it, or its task, is paused.
    pub paused: bool,
    /// When its token was made, if it waits for calls and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_made_at: Option<Time>,
    /// Who made that token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_made_by: Option<String>,
    /// The pauses that it is under.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<PauseItem>,
}

impl ScheduleItem {
    /// A trigger as it is kept, with what its task says of it.
    pub fn new(kept: &KeptTrigger, trigger: &Trigger, task_pause: Option<&Pause>, token: Option<&TokenMade>) -> Self {
        let schedule = match &trigger.source {
            Source::Cron(schedule) => Some(schedule),
            Source::Webhook => None,
        };
        let pauses = task_pause.map(PauseItem::of_task).into_iter();
        Self {
            id: kept.key.clone().into(),
            kind: kept.kind,
            cron: schedule.map(|schedule| schedule.expression.clone()),
            time_zone: schedule.map(|schedule| schedule.time_zone.clone()),
            overlap: trigger.overlap.to_string(),
            next_at: kept.progress.next.filter(|_| !kept.progress.paused).map(Time::from),
            waiting_at: kept.progress.waiting.or(kept.progress.backlog.map(|backlog| backlog.next)).map(Time::from),
            paused: kept.progress.paused,
            token_made_at: token.map(|made| made.at.into()),
            token_made_by: token.map(|made| made.by.clone()),
            pauses: pauses.chain(kept.pause.as_ref().map(|one| PauseItem::new("trigger", one))).collect(),
        }
    }
}

/// A fire time that will come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FireTime {
    /// Of which trigger.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub trigger: TriggerName,
    /// The nominal time.
    pub at: Time,
    /// The zone that its expression is read in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// The next fire times of a task, the earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FireTimes {
    /// They.
    pub times: Vec<FireTime>,
    /// Whether a pause keeps some of them from starting anything.
    pub paused: bool,
}

/// A line of a task's schedule ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerItem {
    /// The nominal time; of a gap, its first instant.
    pub at: Time,
    /// Of which trigger.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub trigger: TriggerName,
    /// `fired`, `caught_up`, `backfilled`, `waits`, `skipped` or `missed`.
    pub happened: String,
    /// The run that was admitted for it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Id>")]
    pub run_id: Option<RunId>,
    /// Skipped: the run that stood in the way.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Id>")]
    pub by_run_id: Option<RunId>,
    /// Skipped: the other instant that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_instant: Option<Time>,
    /// Missed: the last instant of the gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Time>,
    /// Missed: how many instants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instants: Option<u64>,
    /// Missed: `down`, `paused`, `edited`, `deleted` or `restored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the line was written.
    pub written_at: Time,
}

impl LedgerItem {
    /// A line of `trigger` with the run that it admitted.
    pub fn new(trigger: &TriggerName, line: &Line, run: Option<RunId>, written_at: UtcMillis) -> Self {
        let mut item = Self {
            at: written_at.into(),
            trigger: trigger.clone(),
            happened: String::new(),
            run_id: run,
            by_run_id: None,
            by_instant: None,
            last_at: None,
            instants: None,
            why: None,
            written_at: written_at.into(),
        };
        let happened = match line {
            Line::At(nominal, happened) => {
                item.at = (*nominal).into();
                match happened {
                    Happened::Fired => "fired",
                    Happened::CaughtUp => "caught_up",
                    Happened::Backfilled => "backfilled",
                    Happened::Waits => "waits",
                    Happened::Skipped(InTheWay::Run(run)) => {
                        item.by_run_id = Some(*run);
                        "skipped"
                    }
                    Happened::Skipped(InTheWay::Instant(instant)) => {
                        item.by_instant = Some((*instant).into());
                        "skipped"
                    }
                }
            }
            Line::Gap(gap) => {
                item.at = gap.first.into();
                item.last_at = Some(gap.last.into());
                item.instants = Some(gap.instants);
                item.why = Some(gap.why.to_string());
                "missed"
            }
        };
        happened.clone_into(&mut item.happened);
        item
    }
}

/// A pause, or its end; an empty body is the task's, without a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PauseTask {
    /// Which of its triggers; none: the task.
    #[schemars(with = "Option<schema::Name>")]
    pub trigger: Option<TriggerName>,
    /// The person's words.
    #[schemars(length(max = WHY_BYTES))]
    pub why: Option<String>,
}

asked!(PauseTask, JSON_BODY);

impl PauseTask {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        request::read(body, JSON_BODY, &["trigger", "why"], |table, _| {
            Some(Self {
                trigger: table.optional("trigger").and_then(|f| f.parsed(NAME_BYTES)),
                why: table.optional("why").and_then(|f| f.any_text(WHY_BYTES)).map(str::to_owned),
            })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let trigger = self.trigger.iter().map(|name| ("trigger", Value::text(name.as_str())));
        Value::map(trigger.chain(self.why.iter().map(|why| ("why", Value::text(why))))).to_bytes()
    }
}

/// The answer to a pause and to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PauseAnswer {
    /// Whether it changed anything; otherwise it was so before.
    pub changed: bool,
}

/// Runs for fire times that have passed, both ends included.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Backfill {
    /// Of which trigger; none: the only schedule of the task.
    #[schemars(with = "Option<schema::Name>")]
    pub trigger: Option<TriggerName>,
    /// From here on.
    pub from: Time,
    /// Up to here.
    pub to: Time,
}

/// A time in RFC 3339 is shorter than this.
const TIME_BYTES: usize = 64;

asked!(Backfill, JSON_BODY);

impl Backfill {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        request::read(body, JSON_BODY, &["from", "to", "trigger"], |table, _| {
            let allowed = "a time such as 2027-01-31T03:00:00Z";
            let trigger = table.optional("trigger").and_then(|f| f.parsed(NAME_BYTES));
            let from = table.required("from", allowed).and_then(|f| f.parsed(TIME_BYTES));
            let to = table.required("to", allowed).and_then(|f| f.parsed(TIME_BYTES));
            Some(Self { trigger, from: from?, to: to? })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let times = [("from", Value::text(self.from.to_string())), ("to", Value::text(self.to.to_string()))];
        let trigger = self.trigger.iter().map(|name| ("trigger", Value::text(name.as_str())));
        Value::map(times.into_iter().chain(trigger)).to_bytes()
    }
}

/// A page of a backfill: what comes after `rest` is asked for again, from there on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackfillAnswer {
    /// The runs that were admitted, the oldest fire time first.
    pub run_ids: Vec<String>,
    /// Where the next page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Time>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were_written() {
        let pause = PauseTask { trigger: Some("cron".parse().unwrap()), why: Some("new disk".to_owned()) };
        assert_eq!(PauseTask::parse(&pause.to_body()), Ok(pause));
        assert_eq!(PauseTask::parse(b""), Ok(PauseTask::default()));
        let (from, to) = ("2027-01-01T00:00:00Z".parse().unwrap(), "2027-01-02T00:00:00Z".parse().unwrap());
        let backfill = Backfill { trigger: None, from, to };
        assert_eq!(Backfill::parse(&backfill.to_body()), Ok(backfill));
        let refused = Backfill::parse(br#"{"from":"yesterday","to":"2027-01-02T00:00:00Z"}"#).unwrap_err();
        assert_eq!(refused[0].path, "from");
    }
}
