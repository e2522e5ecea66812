//! `GET /healthz` and `/readyz`: for load balancers and unit files; they say nothing about anybody.

use axum::extract::State;

use super::Api;
use super::answer::Plain;
use super::problem::ApiError;

/// The process lives and answers.
pub(super) async fn healthz() -> Plain {
    Plain("ok\n".to_owned())
}

/// It can do its work now: the store answers, its disk has room for new work, and it does not drain.
pub(super) async fn readyz(State(api): State<Api>) -> Result<Plain, ApiError> {
    let mut said = if api.control.ready().await?.takes_logs() {
        "ready\n".to_owned()
    } else {
        "ready, but the disk is low: logs stay on the workers until there is room\n".to_owned()
    };
    if let Some(warning) = api.control.store_warning().await {
        said.push_str("warning: ");
        said.push_str(warning);
        said.push('\n');
    }
    Ok(Plain(said))
}
