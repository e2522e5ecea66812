//! `GET /metrics`: what is counted, for Prometheus. It names nobody, and still tells a stranger how busy a place is: a
//! viewer's token is needed, but for the admin socket.

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use leasehold_control::metrics;

use super::Api;

pub(super) async fn metrics(State(api): State<Api>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE), (CACHE_CONTROL, "no-store")], api.control.metrics().await)
}
