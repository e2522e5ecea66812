//! A run's output as server-sent events: exact bytes, stream by stream, and an end that says how it went.
//!
//! The `id` of an event is a [`Position`]; a reader that comes back with it as `Last-Event-ID` misses and repeats nothing.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;
use leasehold_core::frame::{Body, Frame, Stream};
use leasehold_core::id::AttemptId;
use leasehold_core::run::RunState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::{Log, Outcome};
use super::schema;
use super::time::Time;
use crate::field;

/// Where a reader stands: everything before this offset of this attempt's framed log has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The number of the attempt: 1, 2, …
    pub attempt: u64,
    /// Framed bytes of its log.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.attempt, self.offset)
    }
}

/// A text is not a position in a run's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a position in a run's output: expected `attempt:offset`, such as 1:4096")]
pub struct PositionError;

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (attempt, offset) = text.split_once(':').ok_or(PositionError)?;
        let number = |text: &str| text.parse().map_err(|_| PositionError);
        Ok(Self { attempt: number(attempt)?, offset: number(offset)? })
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    /// What follows is of this attempt.
    Attempt(AttemptBegins),
    /// Output.
    Output(Output),
    /// Output is missing here.
    Cut(Cut),
    /// Nothing more comes: the run has ended, or what there is was read and nobody wanted to follow.
    End(End),
}

/// The output of another attempt begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptBegins {
    /// Which attempt.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Id")]
    pub id: AttemptId,
    /// Which try.
    pub number: u64,
}

/// Bytes of one stream, exactly as they were written: as text where they are UTF-8, else as base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// Where they were written to.
    pub stream: OutputStream,
    /// When they were read.
    pub at: Time,
    /// The bytes, where they are UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes, where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Which of a process's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl From<Stream> for OutputStream {
    fn from(core: Stream) -> Self {
        match core {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}

impl Output {
    /// Bytes of `stream`.
    pub fn new(stream: OutputStream, at: Time, bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { stream, at, text: Some(text), base64: None },
            Err(error) => Self { stream, at, text: None, base64: Some(BASE64.encode(error.as_bytes())) },
        }
    }

    /// The bytes; none if the event holds neither form, or no base64.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match (self.text, self.base64) {
            (Some(text), _) => Some(text.into_bytes()),
            (None, Some(base64)) => BASE64.decode(base64.as_bytes()).ok(),
            (None, None) => None,
        }
    }
}

/// Output that had to be dropped at this place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cut {
    /// `quota`, `disk_full` or `write_failed`.
    pub reason: String,
    /// When.
    pub at: Time,
    /// Dropped bytes of standard output.
    pub stdout: u64,
    /// Dropped bytes of standard error.
    pub stderr: u64,
}

/// The end of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Where the run stands.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::OneOf<RunState>")]
    pub run_state: RunState,
    /// What it ended with, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The latest attempt's log.
    pub log: Log,
}

impl From<Frame> for LogEvent {
    fn from(frame: Frame) -> Self {
        let at = frame.at.into();
        match frame.body {
            Body::Output { stream, bytes } => Self::Output(Output::new(stream.into(), at, bytes)),
            Body::Cut(cut) => {
                Self::Cut(Cut { reason: cut.reason.to_string(), at, stdout: cut.stdout, stderr: cut.stderr })
            }
        }
    }
}

impl LogEvent {
    /// The `event` field.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Attempt(_) => "attempt",
            Self::Output(_) => "output",
            Self::Cut(_) => "cut",
            Self::End(_) => "end",
        }
    }

    /// The `data` field: one line of JSON.
    ///
    /// # Panics
    ///
    /// Never: every event is an object of texts and integers, which always has a JSON form.
    pub fn data(&self) -> String {
        match self {
            Self::Attempt(event) => serde_json::to_string(event),
            Self::Output(event) => serde_json::to_string(event),
            Self::Cut(event) => serde_json::to_string(event),
            Self::End(event) => serde_json::to_string(event),
        }
        .expect("events are objects with text keys, which always have a JSON form")
    }

    /// The event of its `event` and `data` fields; none for an event that this client does not know.
    pub fn parse(name: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        match name {
            "attempt" => serde_json::from_str(data).map(|event| Some(Self::Attempt(event))),
            "output" => serde_json::from_str(data).map(|event| Some(Self::Output(event))),
            "cut" => serde_json::from_str(data).map(|event| Some(Self::Cut(event))),
            "end" => serde_json::from_str(data).map(|event| Some(Self::End(event))),
            _ => Ok(None),
        }
    }
}
