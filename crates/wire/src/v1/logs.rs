//! `logs`: a piece of an attempt's framed log, as raw bytes (`application/octet-stream`, at most 256 KiB).
//!
//! The body is the log's own bytes, so the fences travel in headers and the offset in the query. The token's header is
//! to be marked sensitive, so that no header compression table and no log keeps it.

use leasehold_core::counter::{LeaseGeneration, SessionGeneration};
use leasehold_core::crypto::LeaseToken;
use leasehold_core::limits;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::fence::LeaseProof;
use crate::error::{WireError, cut};
use crate::parse::Message;

/// The content type of the request.
pub const CONTENT_TYPE: &str = "application/octet-stream";
/// The header of the session's generation.
pub const SESSION_GENERATION: &str = "leasehold-session-generation";
/// The header of the offer id.
pub const OFFER: &str = "leasehold-offer";
/// The header of the lease's generation.
pub const LEASE_GENERATION: &str = "leasehold-lease-generation";
/// The header of the lease token: a secret.
pub const LEASE_TOKEN: &str = "leasehold-lease-token";

/// The fences of a piece of log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFence {
    /// The session's generation.
    pub session_generation: SessionGeneration,
    /// The proof of holding the lease, or of having held it (up to the pinned length).
    pub lease: LeaseProof,
}

impl LogFence {
    /// The public headers. The secret one is [`Self::token_header`].
    pub fn headers(&self) -> [(&'static str, String); 3] {
        [
            (SESSION_GENERATION, self.session_generation.to_string()),
            (OFFER, self.lease.offer_id.to_string()),
            (LEASE_GENERATION, self.lease.generation.to_string()),
        ]
    }

    /// The secret header, [`LEASE_TOKEN`]; its text is wiped when dropped.
    pub fn token_header(&self) -> (&'static str, Zeroizing<String>) {
        (LEASE_TOKEN, Zeroizing::new(self.lease.token.reveal()))
    }

    /// The fences of headers; `header` looks one up by its lower-case name.
    pub fn from_headers<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Result<Self, WireError> {
        let required =
            |name: &str, allowed: &str| header(name).ok_or_else(|| WireError::invalid(name, "missing", allowed));
        let number = |name: &str| {
            let text = required(name, "an integer")?;
            decimal(text).ok_or_else(|| {
                WireError::invalid(name, format!("got `{}`", cut(text)), format!("an integer from 0 to {}", i64::MAX))
            })
        };
        let refused = |name: &str, problem: String| WireError::invalid(name, problem, "the value of the lease");
        let offer_id = required(OFFER, "an offer id")?.parse().map_err(|error| refused(OFFER, format!("{error}")))?;
        let token = required(LEASE_TOKEN, "the lease token")?;
        let token = LeaseToken::parse(token).map_err(|error| refused(LEASE_TOKEN, error.to_string()))?;
        let generation = LeaseGeneration::new(number(LEASE_GENERATION)?)
            .map_err(|error| refused(LEASE_GENERATION, error.to_string()))?;
        let session_generation = SessionGeneration::new(number(SESSION_GENERATION)?)
            .map_err(|error| refused(SESSION_GENERATION, error.to_string()))?;
        Ok(Self { session_generation, lease: LeaseProof { offer_id, generation, token } })
    }
}

/// The offset of a query string such as `offset=4096`; nothing else may stand in it.
pub fn parse_offset(query: Option<&str>) -> Result<u64, WireError> {
    let refused = |problem: String| {
        WireError::invalid("offset", problem, format!("`?offset=N` with an integer from 0 to {}", i64::MAX))
    };
    let query = query.ok_or_else(|| refused("missing".to_owned()))?;
    query.strip_prefix("offset=").and_then(decimal).ok_or_else(|| refused(format!("got `?{}`", cut(query))))
}

/// Refuses a piece that is empty or over [`limits::LOG_CHUNK`].
pub fn check_chunk(length: usize) -> Result<(), WireError> {
    match length {
        0 => Err(WireError::invalid("", "the body is empty", "framed bytes of the log")),
        _ if length > limits::LOG_CHUNK => Err(WireError::limit(
            "",
            format!("the body has {length} bytes"),
            format!("at most {} bytes", limits::LOG_CHUNK),
        )),
        _ => Ok(()),
    }
}

/// One spelling per number: digits only, no sign, no leading zero.
fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text && i64::try_from(number).is_ok()).then_some(number)
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsAnswer {
    /// How many framed bytes of this log are durable: the offset to go on from.
    pub durable: u64,
}

impl Message for LogsAnswer {
    const SCHEMA: &'static str = "leasehold/logs-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
