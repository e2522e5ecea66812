//! `session.json`: the ticket of the next registration, and the registration whose answer has not come yet.
//!
//! Written before the request and unchanged until the answer's ticket is durable, so that an unanswered registration is
//! repeated exactly as it was. A fenced worker is remembered here, because it never registers again by itself.
//! (Worker design, *One start path*; protocol, *Sessions*.)

use leasehold_core::crypto::Ticket;
use leasehold_core::id::SessionId;
use leasehold_core::limits::KIB;
use serde::{Deserialize, Serialize};

use crate::fault::steps::file;
use crate::state::{StateError, StateFile};

/// The name of the file.
pub const FILE_NAME: &str = "session.json";

const SCHEMA: &str = "leasehold/worker-session/v1";
const BYTES: usize = 64 * KIB;

/// A registration that was, or is about to be, sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The session that registers.
    pub session: SessionId,
    /// The exact body.
    pub body: String,
}

/// Why this state directory must not register any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Another session took this worker's place.
    Fenced,
    /// Another session spent the ticket.
    TicketSpent,
}

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFile {
    /// The ticket of the next registration; spent once the intent's registration is accepted.
    pub ticket: Ticket,
    /// The registration under way.
    pub intent: Option<Intent>,
    /// Why there will be none.
    pub stopped: Option<Stopped>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    ticket: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intent: Option<FileIntent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<Stopped>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIntent {
    session: String,
    body: String,
}

impl SessionFile {
    /// What enrollment leaves: the first ticket.
    pub const fn enrolled(ticket: Ticket) -> Self {
        Self { ticket, intent: None, stopped: None }
    }
}

impl StateFile for SessionFile {
    type Kind = file::Session;
    const NAME: &'static str = FILE_NAME;
    const LIMIT: usize = BYTES;

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let intent = self.intent.as_ref();
        let file = File {
            schema: SCHEMA.to_owned(),
            ticket: self.ticket.reveal(),
            intent: intent.map(|intent| FileIntent { session: intent.session.to_string(), body: intent.body.clone() }),
            stopped: self.stopped,
        };
        serde_json::to_vec(&file).map_err(|error| StateError::damaged(FILE_NAME, error))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let damaged = |why: &dyn std::fmt::Display| StateError::damaged(FILE_NAME, why);
        let file: File = serde_json::from_slice(bytes).map_err(|error| damaged(&error))?;
        if file.schema != SCHEMA {
            return Err(damaged(&format!("schema `{}`, expected `{SCHEMA}`", file.schema)));
        }
        let intent = match file.intent {
            Some(intent) => {
                Some(Intent { session: intent.session.parse().map_err(|error| damaged(&error))?, body: intent.body })
            }
            None => None,
        };
        let ticket = Ticket::parse(&file.ticket).map_err(|error| damaged(&error))?;
        Ok(Self { ticket, intent, stopped: file.stopped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_file_survives_its_bytes_and_refuses_others() {
        let file = SessionFile {
            ticket: Ticket::from_bytes([3; 32]),
            intent: Some(Intent {
                session: "01900000-0000-7000-8000-000000000000".parse().unwrap(),
                body: "{\"schema\":\"…\"}".to_owned(),
            }),
            stopped: Some(Stopped::Fenced),
        };
        let bytes = file.to_bytes().unwrap();
        assert_eq!(SessionFile::from_bytes(&bytes).unwrap(), file);
        let text = String::from_utf8(bytes).unwrap();
        for other in [
            text.replace("v1", "v2"),
            text.replace("\"ticket\"", "\"tickets\""),
            text.replace("01900000-0000-7", "01900000-0000-4"),
            text[..text.len() - 1].to_owned(),
        ] {
            assert!(SessionFile::from_bytes(other.as_bytes()).is_err(), "{other}");
        }
    }
}
