//! `GET /healthz` and `/readyz`: for load balancers and unit files; they say nothing about anybody.

use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::problem::ApiError;

/// The process lives and answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// It can do its work now: the store answers, and it does not drain.
pub(super) async fn readyz(State(api): State<Api>) -> Result<(StatusCode, &'static str), ApiError> {
    api.control.ready().await?;
    Ok((StatusCode::OK, "ready\n"))
}
