//! `GET /api/v1/runs/{run}/events`: a page of the run's story, or with `follow` the story as it happens.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse;
use axum::response::{IntoResponse as _, Response};
use leasehold_control::ControlPlane;
use leasehold_control::watch::EventFollower;
use leasehold_core::counter::EventSequence;
use leasehold_core::id::RunId;
use leasehold_wire::api::event::{Event, EventsEnd};
use leasehold_wire::api::page::Page;
use serde_json::json;

use super::answer::{Json, to_json};
use super::describe::{Answers, Contract, Schemas};
use super::problem::ApiError;
use super::query::{AFTER, COUNTED, Known, LIMIT, Param, Query};
use super::request::AtRun;
use super::sse::{LastEventId, Source, respond};
use super::{Api, header};

/// What a run's story is asked by.
pub(super) struct Told;

impl Known for Told {
    const PARAMS: &'static [Param] =
        &[AFTER, Param::switch("follow", "Whether the story is told as it happens: server-sent events."), LIMIT];
}

/// A page of the story, or a stream of it.
pub(super) struct Story(Response);

impl axum::response::IntoResponse for Story {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Answers for Story {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        let page = schemas.of_answer::<Page<Event>>();
        // Not parts of a body that a schema could name, but what the stream's `data` holds.
        let kinds = [schemas.of_answer::<Event>(), schemas.of_answer::<EventsEnd>()];
        let stream = json!({
            "type": "string",
            "description": "With `follow`: events `event` and, once the run has ended, `end`; `data` is JSON.",
            "contentMediaType": "text/event-stream",
            "x-events": { "event": kinds[0], "end": kinds[1] },
        });
        let forms = [("application/json", page), ("text/event-stream", stream)];
        contract.answer(StatusCode::OK, "A page, or a stream.", &forms);
    }
}

pub(super) async fn events(
    State(api): State<Api>,
    AtRun(run): AtRun,
    query: Query<Told>,
    LastEventId(last): LastEventId,
) -> Result<Story, ApiError> {
    // The query's own bound is that of a sequence.
    let after = query.number("after", COUNTED)?.and_then(|number| EventSequence::new(number).ok());
    if !query.switch("follow")? {
        let limit = query.limit()?;
        let events = api.control.events(run, after, limit).await?;
        let next = events.last().filter(|_| events.len() == limit).map(|last| last.sequence.to_string());
        return Ok(Story(Json(Page { items: events.iter().map(Event::from).collect(), next }).into_response()));
    }
    let after = match last {
        Some(text) => {
            let number = text.parse().ok().and_then(|number| EventSequence::new(number).ok());
            let refused = || ApiError::field(header::LAST_EVENT_ID, &text, "the id of an event of this stream");
            Some(number.ok_or_else(refused)?)
        }
        None => after,
    };
    let follower = api.control.watch(run, after).await?;
    Ok(Story(respond(Watch { control: api.control, run, follower, pending: Vec::new(), over: false }, api.drain)))
}

struct Watch {
    control: ControlPlane,
    run: RunId,
    follower: EventFollower,
    /// In reverse order.
    pending: Vec<leasehold_core::event::Event>,
    over: bool,
}

impl Source for Watch {
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.pending.pop() {
                let id = event.sequence.to_string();
                return Some(sse::Event::default().id(id).event("event").data(text(&Event::from(&event))));
            }
            if self.over {
                return None;
            }
            match self.follower.next().await {
                Ok(Some(events)) => self.pending = events.into_iter().rev().collect(),
                Ok(None) => {
                    self.over = true;
                    let run_state = self.control.run_view(self.run).await.ok()?.run.state;
                    return Some(sse::Event::default().event("end").data(text(&EventsEnd { run_state })));
                }
                // Without its `end` the stream is known as broken, and its reader comes back.
                Err(error) => {
                    tracing::debug!(run.id = %self.run, %error, "a watch of a run broke off");
                    return None;
                }
            }
        }
    }
}

fn text<T: serde::Serialize>(event: &T) -> String {
    String::from_utf8_lossy(&to_json(event)).into_owned()
}
