//! `GET /api/v1/runs/{run}/events`: a page of the run's story, or with `follow` the story as it happens.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse;
use axum::response::{IntoResponse as _, Response};
use leasehold_control::ControlPlane;
use leasehold_control::watch::EventFollower;
use leasehold_core::counter::EventSequence;
use leasehold_core::id::RunId;
use leasehold_wire::api::event::{Event, EventsEnd};
use leasehold_wire::api::page::Page;

use super::Api;
use super::answer::{Json, to_json};
use super::problem::ApiError;
use super::query::Query;
use super::request::AtRun;
use super::sse::{Source, last_event_id, respond};

pub(super) async fn events(
    State(api): State<Api>,
    AtRun(run): AtRun,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = query.only(&["after", "follow", "limit"])?;
    let after = query.one::<u64>("after")?.map(|number| sequence("after", number)).transpose()?;
    if !query.switch("follow")? {
        let limit = query.limit()?;
        let events = api.control.events(run, after, limit).await?;
        let next = events.last().filter(|_| events.len() == limit).map(|last| last.sequence.to_string());
        return Ok(Json::ok(Page { items: events.iter().map(Event::from).collect(), next }).into_response());
    }
    let after = match last_event_id(&headers)? {
        Some(text) => {
            let number = text
                .parse()
                .map_err(|_| ApiError::field("Last-Event-ID", text, "the id of an event of this stream"))?;
            Some(sequence("Last-Event-ID", number)?)
        }
        None => after,
    };
    let follower = api.control.watch(run, after).await?;
    Ok(respond(Watch { control: api.control, run, follower, pending: Vec::new(), over: false }, api.drain))
}

fn sequence(name: &str, number: u64) -> Result<EventSequence, ApiError> {
    EventSequence::new(number).map_err(|error| ApiError::field(name, number.to_string(), error.to_string()))
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
