//! Why a run is still pending, per worker; and of a lost run, the question that is open.

use std::collections::BTreeMap;

use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::lost;
use leasehold_core::occupancy::{self, LimitFact};
use leasehold_core::placement;
use leasehold_core::resolve::Verb;
use leasehold_core::run::RunState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::time::Time;
use crate::field;

/// The answer to *why is it still pending*.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunExplanation {
    /// The run.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub run_id: RunId,
    /// Where it stands; a run has more to explain while it is pending or lost, or where something of it cannot be killed.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<RunState>")]
    pub state: RunState,
    /// Why it is pending, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
    /// The limits of runs at once that it is under, full or not, while it is pending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// What is open about it, while it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// What of it the kernel does not let go of although it is killed, a sentence for each attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remains: Vec<String>,
}

/// A limit of runs at once, and what other runs hold of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Whose: `task`, `project`.
    pub of: String,
    /// The task's or project's name.
    pub name: String,
    /// How many runs may hold a place at once.
    pub limit: u32,
    /// How many other runs do.
    pub occupied: u32,
    /// Those that have held one longest; at most eight.
    pub holders: Vec<Holder>,
}

/// A run that holds a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Which run.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub run_id: RunId,
    /// What people call it.
    pub name: String,
    /// The number of its attempt that holds the place.
    pub attempt: u64,
    /// Why: `live` (a worker has it), `in_question` (lost, under `mutex`), `may_live` (something of it may still live).
    pub hold: String,
    /// Who has it, or had.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Name>")]
    pub worker: Option<WorkerId>,
    /// Since when.
    pub since: Time,
}

impl From<&LimitFact> for Limit {
    fn from(fact: &LimitFact) -> Self {
        let holder = |holder: &occupancy::Holder| Holder {
            run_id: holder.run,
            name: holder.name.clone(),
            attempt: holder.attempt.get(),
            hold: holder.hold.to_string(),
            worker: holder.worker.clone(),
            since: holder.since.into(),
        };
        Self {
            of: fact.of.to_string(),
            name: fact.name.clone(),
            limit: fact.places.limit,
            occupied: fact.places.occupied,
            holders: fact.holders.iter().map(holder).collect(),
        }
    }
}

/// The open question of a lost run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The number of the attempt in question.
    pub attempt: u64,
    /// Who had it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Name>")]
    pub worker: Option<WorkerId>,
    /// What is on record, a sentence each.
    pub known: Vec<String>,
    /// What nobody knows, a sentence each.
    pub unknown: Vec<String>,
    /// What a person may say now.
    pub options: Vec<ResolveOption>,
}

/// One thing that a person may say about a lost run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolveOption {
    /// The verb.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<Verb>")]
    pub verb: Verb,
    /// What it does.
    pub effect: String,
}

impl From<&lost::Question> for Question {
    fn from(core: &lost::Question) -> Self {
        let options = core.options.iter();
        Self {
            attempt: core.attempt.get(),
            worker: core.worker.clone(),
            known: core.known.clone(),
            unknown: core.unknown.clone(),
            options: options.map(|(verb, effect)| ResolveOption { verb: *verb, effect: effect.clone() }).collect(),
        }
    }
}

/// Why a run is pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// What to expect: `no_workers`, `never`, `busy`, `limited`, `ready`.
    pub outlook: String,
    /// What the nearest worker lacks, or what is waited for, in words.
    pub nearest: String,
    /// The class of mismatch that keeps most workers back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leading: Option<String>,
    /// How many workers each class keeps back.
    pub classes: BTreeMap<String, u32>,
    /// Every worker that was looked at, by id.
    pub workers: Vec<WorkerExplanation>,
    /// Whether there are more workers than were looked at.
    pub truncated: bool,
}

/// The part of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerExplanation {
    /// Which worker.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub worker: WorkerId,
    /// Has it everything that is required, whatever its state now?
    pub capable: bool,
    /// How well it fits, if it is capable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    /// Everything that keeps it from taking the run now; none: it can.
    pub mismatches: Vec<Mismatch>,
}

/// One thing that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mismatch {
    /// What kind of thing.
    pub class: String,
    /// What the run wants.
    pub wanted: String,
    /// What the worker has.
    pub have: String,
}

impl Explanation {
    /// The explanation of what core found.
    pub fn new(core: &placement::Explanation, truncated: bool) -> Self {
        let mismatch = |found: &placement::Mismatch| Mismatch {
            class: found.class.to_string(),
            wanted: found.wanted.clone(),
            have: found.have.clone(),
        };
        let worker = |found: &placement::WorkerExplanation| WorkerExplanation {
            worker: found.worker.clone(),
            capable: found.capable,
            score: found.score.map(placement::Score::get),
            mismatches: found.mismatches.iter().map(mismatch).collect(),
        };
        Self {
            outlook: core.outlook.to_string(),
            nearest: core.nearest.clone(),
            leading: core.leading.map(|class| class.to_string()),
            classes: core.classes.iter().map(|(class, count)| (class.to_string(), *count)).collect(),
            workers: core.workers.iter().map(worker).collect(),
            truncated,
        }
    }
}
