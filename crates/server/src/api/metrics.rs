//! `GET /metrics`: what is counted, for Prometheus. It names nobody, and still tells a stranger how busy a place is: a
//! viewer's token is needed, but for the admin socket.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use leasehold_control::metrics;
use serde_json::json;

use super::Api;
use super::describe::{Answers, Contract, Schemas};

pub(super) async fn metrics(State(api): State<Api>) -> Counted {
    Counted(api.control.metrics().await)
}

/// What is counted, as text.
pub(super) struct Counted(String);

impl IntoResponse for Counted {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, metrics::CONTENT_TYPE), (CACHE_CONTROL, "no-store")], self.0).into_response()
    }
}

impl Answers for Counted {
    fn answers(contract: &mut Contract, _: &mut Schemas) {
        contract.answer(StatusCode::OK, "OpenMetrics text.", &[(metrics::CONTENT_TYPE, json!({ "type": "string" }))]);
    }
}
