//! Workers as lists and pages show them.

use std::collections::BTreeMap;

use leasehold_core::device::DeviceId;
use leasehold_core::fault::Fault as CoreFault;
use leasehold_core::id::{AttemptId, RunId, SessionId, WorkerId};
use leasehold_core::session::{Session as CoreSession, SessionState};
use leasehold_core::time::LeaseInstant;
use leasehold_core::worker::{Drain as CoreDrain, Takeover as CoreTakeover, Worker, WorkerState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::time::Time;
use crate::document::Document;
use crate::field;

/// A worker in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerItem {
    /// Its name.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub id: WorkerId,
    /// Whether it can be given work.
    pub status: WorkerStatus,
    /// How many runs it takes at most; missing before it first registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u16>,
    /// How many leases it holds now.
    pub active_runs: u32,
    /// How many faults it said last that it has.
    pub fault_count: u32,
    /// Processor architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Its labels: its own, and those of its enrollment.
    pub labels: BTreeMap<String, String>,
    /// Its software version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// When it enrolled.
    pub enrolled_at: Time,
    /// When its certificate ends.
    pub certificate_expires_at: Time,
}

/// Whether a worker can be given work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// Its session is live.
    Online,
    /// Its session is live and takes nothing new.
    Draining,
    /// It has no live session.
    Offline,
    /// It enrolled and never registered a session.
    Enrolled,
    /// Its identity was revoked.
    Revoked,
    /// A status that this client does not know.
    #[serde(other)]
    Other,
}

impl WorkerStatus {
    /// The status at `now`.
    pub fn of(worker: &Worker, session: Option<&CoreSession>, now: LeaseInstant) -> Self {
        match session {
            _ if worker.state == WorkerState::Revoked => Self::Revoked,
            None => Self::Enrolled,
            Some(session) if !session.is_live(now) => Self::Offline,
            Some(session) if !worker.takes_work(session) => Self::Draining,
            Some(_) => Self::Online,
        }
    }

    /// Its name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Draining => "draining",
            Self::Offline => "offline",
            Self::Enrolled => "enrolled",
            Self::Revoked => "revoked",
            Self::Other => "other",
        }
    }
}

/// A worker with everything there is to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub item: WorkerItem,
    /// Who drains it, while somebody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// A takeover that somebody granted and nobody has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover: Option<Takeover>,
    /// Its current session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// What the machine can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Object>")]
    pub capabilities: Option<Document>,
    /// The attempts whose leases it holds.
    pub active_attempts: Vec<Active>,
    /// Its GPUs that are in use, or may be, and by which run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub busy_devices: BTreeMap<String, String>,
    /// What keeps it from doing its part, as it said last.
    pub faults: Vec<Fault>,
}

/// Something that keeps a worker from doing its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// What is wrong, in one word.
    pub kind: String,
    /// With which attempt, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    #[schemars(with = "Option<schema::Id>")]
    pub attempt_id: Option<AttemptId>,
    /// In words.
    pub detail: String,
    /// Since when, by the worker's wall clock.
    pub since: Time,
}

impl From<&CoreFault> for Fault {
    fn from(core: &CoreFault) -> Self {
        Self {
            kind: core.kind.to_string(),
            attempt_id: core.attempt,
            detail: core.detail.clone(),
            since: core.since.into(),
        }
    }
}

/// A person's wish that a worker take nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Who.
    pub by: String,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When.
    pub at: Time,
}

impl From<&CoreDrain> for Drain {
    fn from(core: &CoreDrain) -> Self {
        Self { by: core.by.clone(), why: core.why.clone(), at: core.at.into() }
    }
}

/// A person's permission for one registration that would be kept out otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Takeover {
    /// Who granted it.
    pub by: String,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Until when it counts.
    pub expires_at: Time,
}

impl From<&CoreTakeover> for Takeover {
    fn from(core: &CoreTakeover) -> Self {
        Self { by: core.by.clone(), why: core.why.clone(), expires_at: core.expires_at.into() }
    }
}

/// An attempt whose lease a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Active(
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub AttemptId,
);

/// Where a session stands: what it may do, and whether anybody hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// It takes work.
    Active,
    /// It finishes what it holds, and leaves.
    Draining,
    /// It left in an orderly way.
    Offline,
    /// It has been silent past its lease.
    Expired,
    /// A state that this client does not know.
    #[serde(other)]
    Other,
}

impl SessionStatus {
    fn of(session: &CoreSession, now: LeaseInstant) -> Self {
        match session.state {
            SessionState::Offline => Self::Offline,
            _ if session.is_expired(now) => Self::Expired,
            SessionState::Active => Self::Active,
            SessionState::Draining => Self::Draining,
        }
    }

    /// Its name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Offline => "offline",
            Self::Expired => "expired",
            Self::Other => "other",
        }
    }
}

/// One life of a worker's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Which life.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub id: SessionId,
    /// Its place among the worker's lives.
    pub generation: u64,
    /// How many of its beats were accepted.
    pub version: u64,
    /// Where it stands.
    pub state: SessionStatus,
    /// The boot of the machine.
    pub boot_id: String,
    /// How many runs it would take now, by its own word.
    pub slots: u16,
    /// The protocol version it speaks.
    pub protocol: u16,
    /// When it registered.
    pub registered_at: Time,
    /// How long ago it last spoke.
    pub silent_ms: u64,
    /// How often it should beat.
    pub interval_ms: u64,
}

impl WorkerItem {
    /// A worker as a list shows it; `active` counts the leases it holds, `faults` what it said of itself.
    pub fn new(
        worker: &Worker,
        session: Option<&CoreSession>,
        active: usize,
        faults: usize,
        now: LeaseInstant,
    ) -> Self {
        let capabilities = session.map(|session| &session.capabilities);
        Self {
            id: worker.id.clone(),
            status: WorkerStatus::of(worker, session, now),
            max_runs: session.map(|session| session.max_runs),
            active_runs: u32::try_from(active).unwrap_or(u32::MAX),
            fault_count: u32::try_from(faults).unwrap_or(u32::MAX),
            arch: capabilities.map(|capabilities| capabilities.arch.clone()),
            os: capabilities.map(|capabilities| capabilities.os.clone()),
            labels: capabilities.map_or_else(|| worker.labels.clone(), |capabilities| capabilities.labels.clone()),
            software: session.map(|session| session.software.clone()),
            enrolled_at: worker.enrolled_at.into(),
            certificate_expires_at: worker.certificate_expires_at.into(),
        }
    }
}

impl WorkerDetail {
    /// A worker with its current session, the attempts whose leases it holds, who holds its devices, and its faults.
    pub fn new(
        worker: &Worker,
        session: Option<&CoreSession>,
        active: &[AttemptId],
        holders: &BTreeMap<DeviceId, RunId>,
        faults: &[CoreFault],
        now: LeaseInstant,
    ) -> Self {
        let busy_devices = holders.iter().map(|(device, run)| (device.to_string(), run.to_string())).collect();
        Self {
            item: WorkerItem::new(worker, session, active.len(), faults.len(), now),
            drain: worker.drain.as_ref().map(Into::into),
            takeover: worker.takeover.as_ref().map(Into::into),
            session: session.map(|session| Session {
                id: session.id,
                generation: session.generation.get(),
                version: session.version.get(),
                state: SessionStatus::of(session, now),
                boot_id: session.boot.to_string(),
                slots: session.slots,
                protocol: session.protocol,
                registered_at: session.registered_at.into(),
                silent_ms: now.since(session.spoke_at).get(),
                interval_ms: session.interval.get(),
            }),
            capabilities: session.map(|session| Document(session.capabilities.to_value())),
            active_attempts: active.iter().copied().map(Active).collect(),
            busy_devices,
            faults: faults.iter().map(Into::into).collect(),
        }
    }
}
