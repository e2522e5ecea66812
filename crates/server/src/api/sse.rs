//! Server-sent events: one event after another until there are no more, with an id to come back with.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::json;

use super::describe::{Contract, Schemas, Takes};
use super::problem::ApiError;
use super::{Api, header};
use crate::drain::Drain;

/// So that neither a proxy nor a half-open connection goes unnoticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where a stream's events come from.
pub(super) trait Source: Send + 'static {
    /// The next event; none ends the stream.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

/// The stream of a source, which the drain ends, too: a client comes back with the last id that it saw.
pub(super) fn respond(source: impl Source, drain: Drain) -> Response {
    let events = stream::unfold((source, drain), |(mut source, drain)| async move {
        let event = tokio::select! {
            biased;
            () = drain.begun() => None,
            event = source.next() => event,
        };
        Some((Ok::<_, Infallible>(event?), (source, drain)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The id of the last event that a client saw; none at first.
pub(super) struct LastEventId(pub(super) Option<String>);

impl FromRequestParts<Api> for LastEventId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        let said = header::text(&parts.headers, header::LAST_EVENT_ID)?;
        Ok(Self(said.filter(|id| !id.is_empty()).map(str::to_owned)))
    }
}

impl Takes for LastEventId {
    fn takes(contract: &mut Contract, _: &mut Schemas) {
        let about =
            "The id of the last event that was seen: the stream goes on behind it, and nothing is repeated or missed.";
        contract.header(header::LAST_EVENT_ID, about, &json!({ "type": "string" }));
    }
}
