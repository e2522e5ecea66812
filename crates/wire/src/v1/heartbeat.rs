//! `heartbeat`: the session lives on, and every lease it holds is renewed. The one timer of the protocol.

use leasehold_core::counter::{LeaseVersion, SessionGeneration, SessionVersion};
use leasehold_core::directive::Directive as CoreDirective;
use leasehold_core::fault::{Fault as CoreFault, FaultKind};
use leasehold_core::id::AttemptId;
use leasehold_core::lease::LeaseProjection;
use leasehold_core::limits;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::SessionProjection;
use leasehold_core::time::UtcMillis;
use serde::{Deserialize, Serialize};

use super::end::CancelIncomplete;
use super::fence::LeaseProof;
use super::problem::Refused;
use super::projection::{Directive, Lease, Session};
use crate::error::WireError;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The session version that the worker expects; an accepted beat adds one.
    #[serde(with = "field::number")]
    pub session_version: SessionVersion,
    /// How many runs it would take now.
    pub slots: u16,
    /// Whether it takes nothing new because it was told to (`drain`); left out where it is not so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Its current faults, at most 16: in a session's first beat, and whenever they have changed since the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<Fault>>,
    /// The leases it holds, at most 256.
    pub renewals: Vec<Renewal>,
}

/// Something that keeps the machine from doing its part; a person should look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What is wrong.
    #[serde(with = "field::text")]
    pub kind: FaultKind,
    /// With which attempt, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    pub attempt_id: Option<AttemptId>,
    /// In words: at most 200 bytes, on one line.
    pub detail: String,
    /// Since when, by the worker's wall clock.
    #[serde(with = "field::utc")]
    pub since_ms: UtcMillis,
}

impl From<&CoreFault> for Fault {
    fn from(core: &CoreFault) -> Self {
        Self { kind: core.kind, attempt_id: core.attempt, detail: core.detail.clone(), since_ms: core.since }
    }
}

impl From<&Fault> for CoreFault {
    fn from(wire: &Fault) -> Self {
        Self { kind: wire.kind, attempt: wire.attempt_id, detail: wire.detail.clone(), since: wire.since_ms }
    }
}

/// One lease to renew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    /// Its attempt.
    #[serde(with = "field::text")]
    pub attempt_id: AttemptId,
    /// The proof of holding it.
    pub lease: LeaseProof,
    /// The version that the worker knows; it orders renewals and refuses nothing.
    #[serde(with = "field::number")]
    pub version: LeaseVersion,
    /// What the kernel does not let go of while its job is being stopped; at most 8 renewals of a beat name any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_incomplete: Option<CancelIncomplete>,
}

impl Message for HeartbeatRequest {
    const SCHEMA: &'static str = "leasehold/heartbeat/v1";
    const LIMIT: usize = limits::HEARTBEAT_BODY;

    fn check(&self) -> Result<(), WireError> {
        WireError::check_count("renewals", self.renewals.len(), limits::HEARTBEAT_RENEWALS)?;
        let named = self.renewals.iter().filter(|renewal| renewal.cancel_incomplete.is_some()).count();
        WireError::check_count("renewals.cancel_incomplete", named, limits::HEARTBEAT_LEFT)?;
        let mut seen = std::collections::BTreeSet::new();
        for (index, renewal) in self.renewals.iter().enumerate() {
            if !seen.insert(renewal.attempt_id) {
                let field = format!("renewals[{index}].attempt_id");
                return Err(WireError::invalid(field, "the same attempt twice", "every attempt once"));
            }
            if let Some(left) = &renewal.cancel_incomplete {
                left.check(&format!("renewals[{index}].cancel_incomplete"))?;
            }
        }
        let faults = self.faults.as_deref().unwrap_or_default();
        WireError::check_count("faults", faults.len(), limits::FAULTS)?;
        for (index, fault) in faults.iter().enumerate() {
            let field = || format!("faults[{index}].detail");
            if fault.detail.len() > limits::FAULT_DETAIL_BYTES {
                let allowed = format!("at most {} bytes", limits::FAULT_DETAIL_BYTES);
                return Err(WireError::limit(field(), format!("{} bytes", fault.detail.len()), allowed));
            }
            if fault.detail.chars().any(char::is_control) {
                return Err(WireError::invalid(field(), "a control character", "words on one line"));
            }
        }
        if u32::from(self.slots) > limits::SLOTS {
            let allowed = format!("an integer from 0 to {}", limits::SLOTS);
            return Err(WireError::invalid("slots", format!("got {}", self.slots), allowed));
        }
        Ok(())
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatAnswer {
    /// The session now.
    pub session: Session,
    /// A verdict per renewal, in the order they were asked.
    pub leases: Vec<LeaseAnswer>,
    /// What the worker is to do.
    pub directives: Vec<Directive>,
    /// The control plane's wall clock: it decides nothing, and shows the worker how far its own is off.
    #[serde(with = "field::utc")]
    pub now_ms: UtcMillis,
}

/// The verdict on one renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseAnswer {
    /// Its attempt.
    #[serde(with = "field::text")]
    pub attempt_id: AttemptId,
    /// What became of it.
    pub verdict: RenewalVerdict,
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewalVerdict {
    /// The lease lives on as shown.
    Renewed(Lease),
    /// It does not.
    Refused(Refused),
}

impl HeartbeatAnswer {
    /// The answer of what a store said.
    pub fn new(
        session: &SessionProjection,
        leases: &[(AttemptId, Result<LeaseProjection, Refusal>)],
        directives: &[CoreDirective],
        now: UtcMillis,
    ) -> Self {
        let verdict = |verdict: &Result<LeaseProjection, Refusal>| match verdict {
            Ok(lease) => RenewalVerdict::Renewed(lease.into()),
            Err(refusal) => RenewalVerdict::Refused(refusal.into()),
        };
        Self {
            session: session.into(),
            leases: leases.iter().map(|(id, lease)| LeaseAnswer { attempt_id: *id, verdict: verdict(lease) }).collect(),
            directives: directives.iter().map(Directive::from).collect(),
            now_ms: now,
        }
    }
}

impl RenewalVerdict {
    /// The same as core says it.
    pub fn to_result(&self) -> Result<LeaseProjection, Refusal> {
        match self {
            Self::Renewed(lease) => Ok(lease.into()),
            Self::Refused(refused) => Err(refused.into()),
        }
    }
}

impl Message for HeartbeatAnswer {
    const SCHEMA: &'static str = "leasehold/heartbeat-answer/v1";
    const LIMIT: usize = limits::HEARTBEAT_ANSWER;

    fn check(&self) -> Result<(), WireError> {
        WireError::check_count("leases", self.leases.len(), limits::HEARTBEAT_RENEWALS)?;
        WireError::check_count("directives", self.directives.len(), limits::DIRECTIVES)
    }
}
