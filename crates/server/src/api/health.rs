//! `GET /healthz` and `/readyz`: for load balancers and unit files. Anybody may ask, and hears of no run, worker or person.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::answer::Plain;
use super::describe::{Answers, Contract, Schemas};
use super::problem::ApiError;

/// The process lives and answers.
pub(super) async fn healthz() -> Plain {
    Plain("ok\n".to_owned())
}

/// The answer of whoever is ready.
pub(super) struct Ready(String);

impl IntoResponse for Ready {
    fn into_response(self) -> Response {
        Plain(self.0).into_response()
    }
}

impl Answers for Ready {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        Plain::answers(contract, schemas);
        contract.problem(StatusCode::SERVICE_UNAVAILABLE);
    }
}

/// It can do its work now: the store commits, its disk has room for new work, and it does not drain. Else every reason why
/// not is told, in a sentence.
pub(super) async fn readyz(State(api): State<Api>) -> Result<Ready, ApiError> {
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
    Ok(Ready(said))
}
