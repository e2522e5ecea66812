//! What starts runs of a task by itself. Here only their shape; when an expression fires is decided in [`crate::schedule`].
//! Whether a zone of that name exists is asked where triggers are kept: a worker carries no zones.

use crate::canonical::Value;
use crate::id::TriggerName;
use crate::limits::{
    CATCHUP_RUNS, CATCHUP_RUNS_MAX, CATCHUP_WINDOW, CATCHUP_WINDOW_MAX, CRON_BYTES, JITTER_MAX, NAME_BYTES, TRIGGERS,
};
use crate::schedule::Expression;
use crate::shape::{Field, ShapeErrorKind, Table};
use crate::time::Millis;

names! {
    /// What happens to fire times that passed while nothing could fire.
    pub enum CatchUp as "catch-up policy" {
        /// They are missed.
        None = "none",
        /// The last one fires.
        Latest = "latest",
        /// All fire, within the window and the maximum.
        All = "all",
    }
}

names! {
    /// What happens when a run is due while one of the same task occupies.
    pub enum Overlap as "overlap policy" {
        /// The new one is skipped.
        Skip = "skip",
        /// One waits.
        BufferOne = "buffer-one",
        /// The old one is cancelled first.
        CancelOther = "cancel-other",
        /// Both run.
        AllowAll = "allow-all",
    }
}

/// One thing that starts runs of a task by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// Its name within the task.
    pub name: TriggerName,
    /// What it waits for.
    pub source: Source,
    /// What happens when a run is due while another occupies.
    pub overlap: Overlap,
}

/// What a trigger waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Times.
    Cron(Schedule),
    /// Calls, authorised by a token of their own.
    Webhook,
}

/// Times at which a trigger fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The cron expression as written.
    pub expression: String,
    /// The IANA time zone it is read in.
    pub time_zone: String,
    /// What happens to missed times.
    pub catchup: CatchUp,
    /// How far back a catch-up looks.
    pub catchup_window: Millis,
    /// How many runs one catch-up starts at most.
    pub catchup_max: u32,
    /// How far fire times are spread.
    pub jitter: Millis,
}

const CRON_KEYS: [&str; 5] = ["catchup", "catchup_max", "catchup_window", "jitter", "time_zone"];

/// The triggers of a task, sorted by name.
pub(super) fn read_triggers(field: &Field<'_>) -> Vec<Trigger> {
    let mut triggers: Vec<Trigger> = Vec::new();
    for member in field.list(TRIGGERS) {
        let Some(trigger) = read_trigger(&member) else { continue };
        if triggers.iter().any(|other| other.name == trigger.name) {
            let got = format!("the trigger `{}` twice", trigger.name);
            member.refuse(ShapeErrorKind::Value, got, "a `name` of its own for every trigger of a kind");
        }
        triggers.push(trigger);
    }
    triggers.sort_by(|a, b| a.name.cmp(&b.name));
    triggers
}

fn read_trigger(field: &Field<'_>) -> Option<Trigger> {
    let table = field.table(&[
        "catchup",
        "catchup_max",
        "catchup_window",
        "cron",
        "jitter",
        "name",
        "overlap",
        "time_zone",
        "webhook",
    ])?;
    let said = table.optional("webhook").map(|f| f.boolean());
    let webhook = said == Some(Some(true));
    let name = match table.optional("name") {
        Some(name) => name.parsed(NAME_BYTES),
        // The usual task has one trigger of a kind, which needs no name.
        None => if webhook { "webhook" } else { "cron" }.parse().ok(),
    };
    let overlap = table.optional("overlap").and_then(|f| f.named(Overlap::ALL)).unwrap_or(Overlap::Skip);
    let source = match (table.optional("cron"), webhook) {
        (Some(cron), false) => Source::Cron(read_schedule(&table, &cron)?),
        (None, true) => {
            for key in CRON_KEYS.iter().filter(|key| table.has(key)) {
                table.conflict(key, format!("`{key}` with a webhook"), "it only with `cron`");
            }
            // A call has no time that could wait for its turn.
            if !matches!(overlap, Overlap::Skip | Overlap::AllowAll) {
                table.conflict(
                    "overlap",
                    format!("`{overlap}` with a webhook"),
                    "skip or allow-all: a call never waits",
                );
            }
            Source::Webhook
        }
        // What is meant, and misspelled, was told.
        (None, _) if said == Some(None) || table.is_misspelled("cron") || table.is_misspelled("webhook") => {
            return None;
        }
        (cron, _) => {
            let got = if cron.is_some() { "both `cron` and `webhook`" } else { "neither `cron` nor `webhook = true`" };
            table.conflict("", got, "exactly one of them");
            return None;
        }
    };
    Some(Trigger { name: name?, source, overlap })
}

fn read_schedule(table: &Table<'_>, cron: &Field<'_>) -> Option<Schedule> {
    let expression = cron.line(CRON_BYTES)?.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Err(error) = expression.parse::<Expression>() {
        cron.refuse(ShapeErrorKind::Value, error.got(), error.allowed());
    }
    let span = |key: &str, least, most| table.optional(key).and_then(|f| f.duration(least..=most));
    Some(Schedule {
        expression,
        time_zone: table.optional("time_zone").and_then(|f| read_zone(&f)).unwrap_or_else(|| "UTC".to_owned()),
        catchup: table.optional("catchup").and_then(|f| f.named(CatchUp::ALL)).unwrap_or(CatchUp::Latest),
        catchup_window: span("catchup_window", Millis::from_secs(1), CATCHUP_WINDOW_MAX).unwrap_or(CATCHUP_WINDOW),
        catchup_max: table
            .optional("catchup_max")
            .and_then(|f| f.unsigned(1..=CATCHUP_RUNS_MAX))
            .unwrap_or(CATCHUP_RUNS),
        jitter: span("jitter", Millis::ZERO, JITTER_MAX).unwrap_or(Millis::ZERO),
    })
}

fn read_zone(field: &Field<'_>) -> Option<String> {
    let zone = field.line(NAME_BYTES)?;
    let plain = zone.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+'));
    if !plain || zone.starts_with('/') {
        field.refuse(ShapeErrorKind::Value, format!("`{zone}`"), "an IANA time zone such as Europe/Berlin or UTC");
        return None;
    }
    Some(zone.to_owned())
}

impl Trigger {
    pub(super) fn to_value(&self) -> Value {
        let mut entries =
            vec![("name", Value::text(self.name.as_str())), ("overlap", Value::text(self.overlap.as_str()))];
        match &self.source {
            Source::Webhook => entries.push(("webhook", Value::Bool(true))),
            Source::Cron(schedule) => entries.extend([
                ("catchup", Value::text(schedule.catchup.as_str())),
                ("catchup_max", Value::Int(schedule.catchup_max.into())),
                ("catchup_window", Value::text(schedule.catchup_window.to_string())),
                ("cron", Value::text(&schedule.expression)),
                ("jitter", Value::text(schedule.jitter.to_string())),
                ("time_zone", Value::text(&schedule.time_zone)),
            ]),
        }
        Value::map(entries)
    }
}
