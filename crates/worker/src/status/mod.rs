//! What a worker is doing, for the person at its machine: the agent's own word where one runs, and what its state
//! directory says.
//!
//! A view: field names as the API has them, times as RFC 3339, spans in milliseconds. It holds no token, no key and
//! nothing of a job but its names. ([`crate::engine`] fills [`Agent`], [`survey`] the rest.)

pub(crate) mod question;
pub mod survey;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use question::{Answer, AskError, Question, ask, follow};

const SCHEMA: &str = "leasehold/worker-status/v1";

/// A worker, as it is on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Which shape this is.
    pub schema: String,
    /// Its name.
    pub worker: String,
    /// The installation that it belongs to.
    pub trust_domain: String,
    /// Where its control plane is, as it was told.
    pub server: String,
    /// Where its identity, its inbox and its attempts are.
    pub state_dir: String,
    /// When its certificate ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires_at: Option<String>,
    /// Why it must not register any more: `fenced` or `ticket_spent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Whether a person drained it here.
    pub drained_here: bool,
    /// Its agent; none runs, or it does not answer, where this is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// Why an agent that runs was not heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unheard: Option<String>,
    /// What it holds: from the agent, or from the inbox where none runs.
    pub attempts: Vec<Attempt>,
    /// Inbox records by state.
    pub inbox: BTreeMap<String, usize>,
    /// Files that could not be trusted and were moved away.
    pub quarantine: Vec<String>,
    /// Attempts' directories that no record speaks for.
    pub orphans: Vec<Orphan>,
}

/// A running agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub software: String,
    /// What it does now, in one sentence.
    pub summary: String,
    /// Whether it is leaving: told to stop.
    pub leaving: bool,
    /// Whether a person drained it here.
    pub drained_here: bool,
    /// Whether an operator drained it at the control plane, as far as it has heard.
    pub drained_by_operator: bool,
    /// Its session, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// How many runs it takes at once.
    pub max_runs: u16,
    /// How many more it would take now.
    pub free_slots: usize,
    /// Attempts that are not settled.
    pub open: usize,
    /// When the control plane answered last, in this life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_at: Option<String>,
    /// How long ago that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// What it holds.
    pub attempts: Vec<Attempt>,
    /// Inbox records by state.
    pub inbox: BTreeMap<String, usize>,
    /// What its machine and its launchers can do beyond running a process.
    pub features: Vec<String>,
    /// What went wrong in this life, the newest last.
    pub faults: Vec<Fault>,
}

/// The live session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Its place among the worker's lives.
    pub generation: u64,
    /// How many of its beats were accepted.
    pub version: u64,
}

/// One attempt that this machine holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Of which run.
    pub run: String,
    /// Its id, which is the name of its directory.
    pub attempt: String,
    /// 1, 2, …
    pub number: u64,
    /// The task, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Where its inbox record stands.
    pub state: String,
    /// What is known of its process.
    pub job: String,
    /// When its launcher stops it unless the lease is renewed; only a running agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ends_in_ms: Option<u64>,
    /// When it has run long enough; only a running agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_out_in_ms: Option<u64>,
    /// Why it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<String>,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at: String,
    /// Of which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// What.
    pub text: String,
}

/// The directory of an attempt whose record is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// The attempt.
    pub attempt: String,
    /// Whether its launcher still runs; its lease ends it.
    pub running: bool,
}
