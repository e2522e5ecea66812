//! What a launcher answers on its pipe, and what the agent may conclude from it.
//!
//! Only a whole, well-formed answer of the launcher says that something did or certainly did not start. Everything
//! else is [`LaunchOutcome::Unknown`], and the barrier is asked. (Worker design, *From offer to running*, step 6.)

use leasehold_core::attempt::{Handle, RejectReason};
use serde::{Deserialize, Serialize};

use crate::process_identity::ProcessIdentity;

const SCHEMA: &str = "leasehold/launched/v1";

/// Most bytes of an answer.
pub const ANSWER_BYTES: usize = 16 * 1024;

/// What a launch came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchOutcome {
    /// The job's process executes.
    Started {
        /// The job's process.
        handle: Handle,
    },
    /// Proven: nothing of the user's ran, and nothing will.
    Rejected(Rejection),
    /// Neither is proven. Ask the barrier; never report a start failure from this.
    Unknown {
        /// What happened instead of an answer, for people.
        detail: String,
    },
}

/// Why a launcher refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// For programs.
    pub reason: RejectReason,
    /// For people, at most [`DETAIL_CHARS`] characters; never holds a secret.
    pub detail: String,
}

/// Most characters of a rejection's detail: answer and receipt stay small whatever a path or a program is called.
pub const DETAIL_CHARS: usize = 512;

impl Rejection {
    /// Refuses for `reason`, in words that are cut where they are too many.
    pub fn new(reason: RejectReason, detail: impl std::fmt::Display) -> Self {
        Self { reason, detail: detail.to_string().chars().take(DETAIL_CHARS).collect() }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    schema: String,
    answer: Answer,
}

/// An answer as sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Answer {
    /// Executing.
    Started {
        /// The job's process.
        handle: String,
    },
    /// Nothing ran.
    Rejected {
        /// For programs.
        reason: String,
        /// For people.
        detail: String,
    },
    /// Another launcher holds or held this directory; this one wrote nothing.
    Already {},
}

impl Answer {
    pub(super) fn rejected(rejection: &Rejection) -> Self {
        Self::Rejected { reason: rejection.reason.to_string(), detail: rejection.detail.clone() }
    }

    pub(super) fn to_line(&self) -> Vec<u8> {
        let message = Message { schema: SCHEMA.to_owned(), answer: self.clone() };
        // Strings and plain enums always serialize; an empty line is *unknown* to the reader.
        let mut line = serde_json::to_vec(&message).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// What the agent may conclude from the bytes that it got.
    pub(super) fn conclude(line: &[u8]) -> LaunchOutcome {
        let unknown = |detail: &str| LaunchOutcome::Unknown { detail: detail.to_owned() };
        let Some(line) = line.strip_suffix(b"\n") else { return unknown("the launcher went away without an answer") };
        match serde_json::from_slice::<Message>(line) {
            Ok(message) if message.schema != SCHEMA => unknown("the launcher speaks another version"),
            Ok(Message { answer: Answer::Started { handle }, .. }) => match handle.parse::<ProcessIdentity>() {
                Ok(identity) => LaunchOutcome::Started { handle: identity.to_handle() },
                Err(_) => unknown("the launcher answered an invalid handle"),
            },
            Ok(Message { answer: Answer::Rejected { reason, detail }, .. }) => match reason.parse() {
                Ok(reason) => LaunchOutcome::Rejected(Rejection { reason, detail }),
                Err(_) => unknown("the launcher gave an unknown reason"),
            },
            Ok(Message { answer: Answer::Already {}, .. }) => unknown("another launcher has this attempt"),
            Err(_) => unknown("the launcher's answer is not one"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_it_said() {
        let rejected = Answer::rejected(&Rejection { reason: RejectReason::Exec, detail: "no such file".to_owned() });
        assert_eq!(
            Answer::conclude(&rejected.to_line()),
            LaunchOutcome::Rejected(Rejection { reason: RejectReason::Exec, detail: "no such file".to_owned() })
        );
        let started = Answer::Started { handle: "boot/7/9".to_owned() };
        assert_eq!(
            Answer::conclude(&started.to_line()),
            LaunchOutcome::Started { handle: "boot/7/9".parse::<ProcessIdentity>().unwrap().to_handle() }
        );
    }

    #[test]
    fn anything_else_is_unknown() {
        let whole = Answer::rejected(&Rejection { reason: RejectReason::Exec, detail: String::new() }).to_line();
        let cut = &whole[..whole.len() - 1];
        let bad_handle = Answer::Started { handle: "boot/0/9".to_owned() }.to_line();
        let version: &[u8] = br#"{"schema":"leasehold/launched/v2","answer":{"already":{}}}
"#;
        let extra: &[u8] = br#"{"schema":"leasehold/launched/v1","answer":{"already":{}},"more":1}
"#;
        for line in [b"".as_slice(), b"\n", cut, &bad_handle, version, extra, &Answer::Already {}.to_line()] {
            assert!(matches!(Answer::conclude(line), LaunchOutcome::Unknown { .. }));
        }
    }
}
