//! `GET /api/v1/runs/{run}/log`: a run's output, as server-sent events that can be resumed, or as plain bytes.
//!
//! An event's id is the position behind it: the attempt's number and the framed bytes of its log that were read. Attempts
//! follow each other in one stream; frames are decoded here and nowhere stored.

use std::collections::VecDeque;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use bytes::Bytes;
use futures_util::stream;
use leasehold_control::ControlPlane;
use leasehold_control::error::{Denied, ServiceError};
use leasehold_control::logs::LogFollower;
use leasehold_control::view::RunView;
use leasehold_control::watch::EventFollower;
use leasehold_core::attempt::Attempt;
use leasehold_core::frame::{self, Decoder, Frame, FrameError, Stream};
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::limits;
use leasehold_core::run::RunState;
use leasehold_core::shape;
use leasehold_wire::api::log::{AttemptBegins, Cut, End, LogEvent, Output, Position, PositionError};
use leasehold_wire::api::run::Log;
use serde_json::json;

use super::describe::{Answers, Contract, Schemas};
use super::problem::ApiError;
use super::query::{COUNTED, Known, Param, Query};
use super::request::AtRun;
use super::sse::{LastEventId, Source, respond};
use super::{Api, header};

/// What a run's output is asked by.
pub(super) struct Read;

impl Known for Read {
    const PARAMS: &'static [Param] = &[
        Param::number("attempt", "That of this attempt alone."),
        Param::switch("follow", "Whether to wait for what is still to come."),
        Param {
            name: "format",
            about: "`events` (the default), or `raw`: what the process wrote, byte by byte.",
            schema: || json!({ "type": "string", "enum": ["events", "raw"] }),
        },
        Param {
            name: "stream",
            about: "With `format=raw`: one of the two streams.",
            schema: || json!({ "type": "string", "enum": ["stdout", "stderr"] }),
        },
    ];
}

/// A run's output.
pub(super) struct Printed(Response);

impl axum::response::IntoResponse for Printed {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Answers for Printed {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        let stream = json!({
            "type": "string",
            "description": "Events `attempt`, `output`, `cut` and at last `end`; `data` is JSON.",
            "contentMediaType": "text/event-stream",
            "x-events": {
                "attempt": schemas.of_answer::<AttemptBegins>(),
                "output": schemas.of_answer::<Output>(),
                "cut": schemas.of_answer::<Cut>(),
                "end": schemas.of_answer::<End>(),
            },
        });
        let raw = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
        let forms = [("text/event-stream", stream), ("application/octet-stream", raw)];
        contract.answer(StatusCode::OK, "The output.", &forms);
    }
}

pub(super) async fn log(
    State(api): State<Api>,
    AtRun(run): AtRun,
    query: Query<Read>,
    LastEventId(last): LastEventId,
) -> Result<Printed, ApiError> {
    let only = query.number("attempt", COUNTED)?;
    let follow = query.switch("follow")?;
    let view = api.control.run_view(run).await?;
    let number = match only {
        Some(number) => number,
        None => view.run.latest.get(),
    };
    match query.text("format")? {
        None | Some("events") => {
            if query.text("stream")?.is_some() {
                return Err(ApiError::field("stream", "it without format=raw", "every event says its stream"));
            }
            let position = match last {
                Some(text) => text.parse().map_err(|error: PositionError| {
                    ApiError::field(header::LAST_EVENT_ID, &text, shape::allowed(&error.to_string()))
                })?,
                None => Position { attempt: number, offset: 0 },
            };
            let attempt = attempt_of(&view, position.attempt)?;
            check_position(&api.control, attempt.id, position.offset).await?;
            let reader = Reader::new(api.control, run, follow, only.is_some(), attempt, position.offset);
            Ok(Printed(respond(reader, api.drain)))
        }
        Some("raw") => {
            if follow {
                return Err(ApiError::field("follow", "it with format=raw", "format=events, which can be followed"));
            }
            let wanted = match query.text("stream")? {
                None => None,
                Some("stdout") => Some(Stream::Stdout),
                Some("stderr") => Some(Stream::Stderr),
                Some(other) => return Err(ApiError::field("stream", other, "stdout or stderr; both without it")),
            };
            let attempt = attempt_of(&view, number)?.id;
            Ok(Printed(raw(RawLog { control: api.control, attempt, offset: 0, decoder: Decoder::new(), wanted })))
        }
        Some(other) => Err(ApiError::field("format", other, "events or raw")),
    }
}

fn attempt_of(view: &RunView, number: u64) -> Result<&Attempt, ApiError> {
    let found = view.attempts.iter().find(|attempt| attempt.number.get() == number);
    found.ok_or_else(|| Denied::no_part(format_args!("attempt {number}"), "this run").into())
}

/// Whether a frame begins at `offset`, as far as what is stored there tells.
async fn check_position(control: &ControlPlane, attempt: AttemptId, offset: u64) -> Result<(), ApiError> {
    let refused = || {
        let allowed = "the id of an event of this stream: a frame begins there";
        ApiError::field(header::LAST_EVENT_ID, format!("an offset of {offset}"), allowed)
    };
    let page = control.read_log(attempt, offset, frame::HEADER).await?;
    if offset > page.received {
        return Err(refused());
    }
    frame::whole_frames(&page.bytes).map(|_| ()).map_err(|_| refused())
}

fn begins(position: Position, attempt: &Attempt) -> (Position, LogEvent) {
    (position, LogEvent::Attempt(AttemptBegins { id: attempt.id, number: attempt.number.get() }))
}

/// How long a frame is in its log.
fn length(frame: &Frame) -> u64 {
    let length = match &frame.body {
        frame::Body::Output { bytes, .. } => frame::encoded_len(bytes.len()),
        frame::Body::Cut(cut) => {
            let mut encoded = Vec::new();
            frame::encode_cut(&mut encoded, frame.at, *cut);
            encoded.len()
        }
    };
    count(length)
}

/// Why a stream breaks off without its `end`: its reader comes back with the last id.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the service did not answer: {0}")]
    Service(#[from] ServiceError<Denied>),
    #[error("the stored log is damaged: {0}")]
    Frame(#[from] FrameError),
}

/// Reads a run's output from a position on, attempt by attempt.
struct Reader {
    control: ControlPlane,
    run: RunId,
    follow: bool,
    /// Whether one attempt was asked for.
    only: bool,
    attempt: AttemptId,
    /// Behind the last whole frame.
    position: Position,
    /// Behind the last byte that was fetched; frames may end in between.
    fetched: u64,
    follower: Option<LogFollower>,
    decoder: Decoder,
    ready: VecDeque<(Position, LogEvent)>,
    over: bool,
}

impl Source for Reader {
    async fn next(&mut self) -> Option<Event> {
        match self.read().await {
            Ok(event) => event.map(|(position, event)| {
                Event::default().id(position.to_string()).event(event.name()).data(event.data())
            }),
            Err(error) => {
                tracing::debug!(run.id = %self.run, %error, "a reader of a log broke off");
                None
            }
        }
    }
}

impl Reader {
    fn new(control: ControlPlane, run: RunId, follow: bool, only: bool, attempt: &Attempt, offset: u64) -> Self {
        let position = Position { attempt: attempt.number.get(), offset };
        Self {
            control,
            run,
            follow,
            only,
            attempt: attempt.id,
            position,
            fetched: offset,
            follower: None,
            decoder: Decoder::new(),
            ready: VecDeque::from([begins(position, attempt)]),
            over: false,
        }
    }

    async fn read(&mut self) -> Result<Option<(Position, LogEvent)>, Broken> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            if self.over {
                return Ok(None);
            }
            match self.piece().await? {
                Some(bytes) => self.decode(&bytes)?,
                None => self.attempt_is_read().await?,
            }
        }
    }

    /// The next bytes of the attempt's log; none when nothing more of it is to be read.
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let bytes = if self.follow {
            if self.follower.is_none() {
                self.follower = Some(self.control.follow_log(self.run, self.attempt, self.fetched).await?);
            }
            let Some(follower) = &mut self.follower else { return Ok(None) };
            follower.next().await?.map(|piece| piece.bytes)
        } else {
            let page = self.control.read_log(self.attempt, self.fetched, limits::LOG_CHUNK).await?;
            Some(page.bytes).filter(|bytes| !bytes.is_empty())
        };
        self.fetched += bytes.as_ref().map_or(0, |bytes| count(bytes.len()));
        Ok(bytes)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.decoder.push(bytes);
        while let Some(frame) = self.decoder.next_frame()? {
            self.position.offset += length(&frame);
            self.ready.push_back((self.position, frame.into()));
        }
        Ok(())
    }

    /// Turns to the run's next attempt, waiting for it if there will be one; else the stream is at its end.
    async fn attempt_is_read(&mut self) -> Result<(), Broken> {
        let mut story: Option<EventFollower> = None;
        loop {
            let view = self.control.run_view(self.run).await?;
            let next = view.attempts.iter().find(|attempt| attempt.number.get() > self.position.attempt);
            if let Some(next) = next.filter(|_| !self.only) {
                let Self { control, run, follow, only, .. } = self;
                *self = Self::new(control.clone(), *run, *follow, *only, next, 0);
                return Ok(());
            }
            let decided = view.run.state.is_terminal() || view.run.state == RunState::Lost;
            if decided || self.only || !self.follow {
                self.ready.push_back((self.position, LogEvent::End(end(&view))));
                self.over = true;
                return Ok(());
            }
            if story.is_none() {
                story = Some(self.control.watch(self.run, None).await?);
            }
            if let Some(story) = &mut story {
                story.next().await?;
            }
        }
    }
}

fn end(view: &RunView) -> End {
    let log = match view.attempts.last() {
        Some(latest) => Log::of(latest, view.logs.get(&latest.id).copied().unwrap_or(0)),
        None => Log::none(),
    };
    let outcome = view.run.closing.as_ref().map(|closing| (&closing.outcome).into());
    End { run_state: view.run.state, outcome, log }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// What has arrived of an attempt's output, without its frames: what the process wrote, to one stream or to both.
struct RawLog {
    control: ControlPlane,
    attempt: AttemptId,
    offset: u64,
    decoder: Decoder,
    wanted: Option<Stream>,
}

impl RawLog {
    async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            let page = self.control.read_log(self.attempt, self.offset, limits::LOG_CHUNK).await?;
            if page.bytes.is_empty() {
                return Ok(None);
            }
            self.offset += count(page.bytes.len());
            self.decoder.push(&page.bytes);
            let mut output = Vec::new();
            while let Some(frame) = self.decoder.next_frame()? {
                if let frame::Body::Output { stream, bytes } = frame.body
                    && self.wanted.is_none_or(|wanted| wanted == stream)
                {
                    output.extend_from_slice(&bytes);
                }
            }
            if !output.is_empty() {
                return Ok(Some(output.into()));
            }
        }
    }
}

fn raw(log: RawLog) -> Response {
    // An error cuts the body off: a client never takes half a log for a whole one.
    let pieces = stream::unfold(Some(log), |log| async {
        let mut log = log?;
        match log.next().await {
            Ok(bytes) => bytes.map(|bytes| (Ok(bytes), Some(log))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
