//! `register`: a session takes its place. `PUT` on the session's own path; exact repeats get the same answer.
//!
//! The body's digest tells a repeat from another registration. It is of the canonical bytes, so spelling does not matter;
//! the worker keeps the bytes it sent and sends the same again.

use leasehold_core::capability::Capabilities;
use leasehold_core::crypto::{Digest, Domain, Ticket};
use leasehold_core::id::{BootId, SessionId};
use leasehold_core::limits;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::registration::Registration;
use serde::{Deserialize, Serialize};

use super::PROTOCOL;
use super::projection::Session;
use crate::document::Document;
use crate::error::WireError;
use crate::field;
use crate::parse::{Message, parse_with_digest};

/// Most characters of a software version.
pub const SOFTWARE: usize = 64;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// The ticket of the previous registration's answer, or of enrollment.
    #[serde(with = "field::token")]
    pub ticket: Ticket,
    /// What the machine can do, in core's canonical shape.
    pub capabilities: Document,
    /// The digest of the canonical capabilities.
    #[serde(with = "field::text")]
    pub capabilities_digest: Digest,
    /// How many runs it takes at most: 1 to 256.
    pub max_runs: u16,
    /// How many it would take now: always 0; the first heartbeat says more.
    pub slots: u16,
    /// The boot of the machine.
    #[serde(with = "field::text")]
    pub boot_id: BootId,
    /// The worker's software version.
    pub software: String,
    /// The protocol version it speaks.
    pub protocol: u16,
}

impl RegisterRequest {
    /// The request of a worker of this version.
    pub fn new(ticket: Ticket, capabilities: &Capabilities, max_runs: u16, boot_id: BootId, software: &str) -> Self {
        Self {
            ticket,
            capabilities: Document(capabilities.to_value()),
            capabilities_digest: capabilities.digest(),
            max_runs,
            slots: 0,
            boot_id,
            software: software.to_owned(),
            protocol: PROTOCOL,
        }
    }
}

impl Message for RegisterRequest {
    const SCHEMA: &'static str = "leasehold/register/v1";
    const LIMIT: usize = limits::REGISTRATION_BODY;

    fn check(&self) -> Result<(), WireError> {
        if self.protocol != PROTOCOL {
            let allowed = format!("version {PROTOCOL}: this control plane speaks no other");
            return Err(WireError {
                code: RefusalCode::UnsupportedProtocol,
                ..WireError::invalid("protocol", format!("got version {}", self.protocol), allowed)
            });
        }
        if self.max_runs == 0 || u32::from(self.max_runs) > limits::SLOTS {
            let allowed = format!("an integer from 1 to {}", limits::SLOTS);
            return Err(WireError::invalid("max_runs", format!("got {}", self.max_runs), allowed));
        }
        if self.slots != 0 {
            return Err(WireError::invalid("slots", format!("got {}", self.slots), "0: the first heartbeat says more"));
        }
        let plain = self.software.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        if self.software.is_empty() || self.software.len() > SOFTWARE || !plain {
            let allowed = format!("1 to {SOFTWARE} printable ASCII characters");
            return Err(WireError::invalid("software", "not a version text", allowed));
        }
        Ok(())
    }
}

/// The registration of a body, for the session that the path names. The one place that defines the body's digest.
pub fn parse_registration(session: SessionId, body: &[u8]) -> Result<Registration, WireError> {
    let (request, digest) = parse_with_digest::<RegisterRequest>(body, Domain::Registration)?;
    let capabilities = Capabilities::from_value(&request.capabilities.0)
        .map_err(|errors| WireError::of_shape("capabilities", &errors))?;
    if capabilities.digest() != request.capabilities_digest {
        return Err(WireError::invalid(
            "capabilities_digest",
            format!("got {}", request.capabilities_digest),
            format!("the digest of the capabilities beside it, {}", capabilities.digest()),
        ));
    }
    Ok(Registration {
        session,
        ticket: request.ticket,
        capabilities,
        max_runs: request.max_runs,
        boot: request.boot_id,
        software: request.software,
        protocol: request.protocol,
        body: digest,
    })
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterAnswer {
    /// The session: its lease and cadence.
    pub session: Session,
    /// The ticket for the next registration.
    #[serde(with = "field::token")]
    pub ticket: Ticket,
}

impl Message for RegisterAnswer {
    const SCHEMA: &'static str = "leasehold/register-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
