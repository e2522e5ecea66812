//! What a worker is shown of its session and leases, and the directives that ride on answers.
//!
//! Every lease says `remaining_ms`: the receiver counts from when it *sent* the request, on its boot-time clock.

use leasehold_core::attempt::AttemptState;
use leasehold_core::cancel::StopDirective;
use leasehold_core::counter::{LeaseGeneration, LeaseVersion, SessionGeneration, SessionVersion};
use leasehold_core::directive::Directive as CoreDirective;
use leasehold_core::id::AttemptId;
use leasehold_core::lease::LeaseProjection;
use leasehold_core::run::StopIntentReason;
use leasehold_core::session::{SessionProjection, SessionState};
use leasehold_core::time::Millis;
use serde::{Deserialize, Serialize};

use crate::field;

/// The session as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Its generation.
    #[serde(with = "field::number")]
    pub generation: SessionGeneration,
    /// Its version.
    #[serde(with = "field::number")]
    pub version: SessionVersion,
    /// What it may do.
    #[serde(with = "field::text")]
    pub state: SessionState,
    /// How long its lease still runs; zero when it has ended.
    #[serde(with = "field::number")]
    pub remaining_ms: Millis,
    /// How often it should beat.
    #[serde(with = "field::number")]
    pub interval_ms: Millis,
}

impl From<&SessionProjection> for Session {
    fn from(core: &SessionProjection) -> Self {
        Self {
            generation: core.generation,
            version: core.version,
            state: core.state,
            remaining_ms: core.remaining,
            interval_ms: core.interval,
        }
    }
}

impl From<&Session> for SessionProjection {
    fn from(wire: &Session) -> Self {
        Self {
            generation: wire.generation,
            version: wire.version,
            state: wire.state,
            remaining: wire.remaining_ms,
            interval: wire.interval_ms,
        }
    }
}

/// A lease as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Which claim of the attempt.
    #[serde(with = "field::number")]
    pub generation: LeaseGeneration,
    /// Its version.
    #[serde(with = "field::number")]
    pub version: LeaseVersion,
    /// How long it still runs; zero when it has ended.
    #[serde(with = "field::number")]
    pub remaining_ms: Millis,
    /// How long each renewal makes it last.
    #[serde(with = "field::number")]
    pub length_ms: Millis,
    /// Where the attempt stands.
    #[serde(with = "field::text")]
    pub attempt_state: AttemptState,
}

impl From<&LeaseProjection> for Lease {
    fn from(core: &LeaseProjection) -> Self {
        Self {
            generation: core.generation,
            version: core.version,
            remaining_ms: core.remaining,
            length_ms: core.length,
            attempt_state: core.attempt_state,
        }
    }
}

impl From<&Lease> for LeaseProjection {
    fn from(wire: &Lease) -> Self {
        Self {
            generation: wire.generation,
            version: wire.version,
            remaining: wire.remaining_ms,
            length: wire.length_ms,
            attempt_state: wire.attempt_state,
        }
    }
}

/// Something the worker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Directive {
    /// Stop this attempt; repeated until its end is known.
    Stop {
        /// Which attempt.
        #[serde(with = "field::text")]
        attempt_id: AttemptId,
        /// Why.
        #[serde(with = "field::text")]
        reason: StopIntentReason,
    },
    /// Take nothing new and keep what runs; repeated until a heartbeat says `draining`.
    Drain,
    /// Take work again; repeated until a heartbeat no longer says `draining`.
    Resume,
}

impl From<&CoreDirective> for Directive {
    fn from(core: &CoreDirective) -> Self {
        match core {
            CoreDirective::Stop(stop) => Self::Stop { attempt_id: stop.attempt, reason: stop.reason },
            CoreDirective::Drain => Self::Drain,
            CoreDirective::Resume => Self::Resume,
        }
    }
}

impl From<&Directive> for CoreDirective {
    fn from(wire: &Directive) -> Self {
        match wire {
            Directive::Stop { attempt_id, reason } => {
                Self::Stop(StopDirective { attempt: *attempt_id, reason: *reason })
            }
            Directive::Drain => Self::Drain,
            Directive::Resume => Self::Resume,
        }
    }
}
