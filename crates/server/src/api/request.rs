//! The parts of an operator's request: the thing its path names, and its JSON body.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use leasehold_core::counter::RevisionNumber;
use leasehold_core::id::{ProjectName, RunId, TaskName, TriggerName, WorkerId};
use leasehold_core::limits;
use leasehold_wire::api::problem::ProblemCode;
use leasehold_wire::api::request::Request as Body;
use serde_json::json;

use super::describe::{Contract, Schemas, Takes};
use super::problem::ApiError;
use super::{Api, header};
use crate::body;

/// The run of the path: its id, or the beginning of one that only one run has.
pub(super) struct AtRun(pub(super) RunId);

impl FromRequestParts<Api> for AtRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text = segment(parts, api, "run").await?;
        match text.parse() {
            Ok(run) => Ok(Self(run)),
            Err(_) => Ok(Self(api.control.resolve_run(&text).await?)),
        }
    }
}

/// The worker of the path.
pub(super) struct AtWorker(pub(super) WorkerId);

impl FromRequestParts<Api> for AtWorker {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        named(parts, api, "worker").await.map(Self)
    }
}

/// The project of the path.
pub(super) struct AtProject(pub(super) ProjectName);

impl FromRequestParts<Api> for AtProject {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        named(parts, api, "project").await.map(Self)
    }
}

/// The task of the path.
pub(super) struct AtTask(pub(super) TaskName);

impl FromRequestParts<Api> for AtTask {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        named(parts, api, "task").await.map(Self)
    }
}

/// The trigger of the path's task.
pub(super) struct AtTrigger(pub(super) TriggerName);

impl FromRequestParts<Api> for AtTrigger {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        named(parts, api, "trigger").await.map(Self)
    }
}

/// The number of a revision of the path's task.
pub(super) struct AtRevision(pub(super) RevisionNumber);

impl FromStr for AtRevision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().and_then(|number| RevisionNumber::new(number).ok());
        number.map(Self).ok_or_else(|| "revisions are counted: expected 1, 2, 3 …".to_owned())
    }
}

impl FromRequestParts<Api> for AtRevision {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text = segment(parts, api, "number").await?;
        let refused = |words| ApiError::new(ProblemCode::NotFound, format!("there is no such revision: {words}"));
        text.parse::<Self>().map_err(refused)
    }
}

/// The thing that the path names. A name that none can have is one that does not exist, and the text says what names look
/// like.
async fn named<T: FromStr<Err: Display>>(parts: &mut Parts, api: &Api, what: &str) -> Result<T, ApiError> {
    let text = segment(parts, api, what).await?;
    text.parse().map_err(|error| ApiError::new(ProblemCode::NotFound, format!("there is no such {what}: {error}")))
}

async fn segment(parts: &mut Parts, api: &Api, name: &str) -> Result<String, ApiError> {
    let refused = || ApiError::field(name, "bytes that are not UTF-8", "percent-encoded UTF-8 in the path");
    let params = RawPathParams::from_request_parts(parts, api).await.map_err(|_| refused())?;
    params.iter().find(|(key, _)| *key == name).map(|(_, text)| text.to_owned()).ok_or_else(refused)
}

/// A part of the path for the API's description.
macro_rules! in_path {
    ($($part:ty: $name:literal, $about:literal, $schema:expr;)+) => { $(
        impl Takes for $part {
            fn takes(contract: &mut Contract, _: &mut Schemas) {
                contract.path($name, $about, &$schema);
            }
        }
    )+ };
}
in_path! {
    AtRun: "run", "The run: its id, or the beginning of one that only one run has.", json!({ "type": "string" });
    AtWorker: "worker", "The name of the worker.", json!({ "type": "string" });
    AtProject: "project", "The name of the project.", json!({ "type": "string" });
    AtTask: "task", "The name of the task.", json!({ "type": "string" });
    AtTrigger: "trigger", "The name of the trigger in its task.", json!({ "type": "string" });
    AtRevision: "number", "Which of the task's revisions.", json!({ "type": "integer", "minimum": 1 });
}

/// The JSON body of a request, read and checked.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: Body> FromRequest<Api> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Api) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = body::read(&parts.headers, body, T::LIMIT).await?;
        if !bytes.is_empty() {
            check_json(&parts.headers)?;
        }
        Ok(Self(T::read(&bytes)?))
    }
}

impl<T: Body> Takes for JsonBody<T> {
    fn takes(contract: &mut Contract, schemas: &mut Schemas) {
        let schema = schemas.requests.subschema_for::<T>();
        contract.body = Some(json!({
            "description": format!("At most {} bytes.", T::LIMIT),
            "required": T::read(b"").is_err(),
            "content": { "application/json": { "schema": schema } },
        }));
        for status in [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNSUPPORTED_MEDIA_TYPE] {
            contract.problem(status);
        }
    }
}

/// The key that makes a request safe to repeat, if the caller sent one.
pub(super) struct IdempotencyKey(pub(super) Option<String>);

impl FromRequestParts<Api> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        Ok(Self(header::text(&parts.headers, header::IDEMPOTENCY_KEY)?.map(str::to_owned)))
    }
}

impl Takes for IdempotencyKey {
    fn takes(contract: &mut Contract, _: &mut Schemas) {
        let schema = json!({ "type": "string", "pattern": format!("^[!-~]{{1,{}}}$", limits::NAME_BYTES) });
        let about = "A key of the caller's own: the same request with the same key is done once, however often it arrives. \
                     With another request the key is refused (`key_reused`).";
        contract.header(header::IDEMPOTENCY_KEY, about, &schema);
    }
}

/// No key: what is made here takes the place of what was made before, and a repeat would be the one that counts.
pub(super) struct Unkeyed;

impl FromRequestParts<Api> for Unkeyed {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        if parts.headers.contains_key(header::IDEMPOTENCY_KEY) {
            let allowed = "no key: each request makes another one, which takes the place of the one before";
            return Err(ApiError::field(header::IDEMPOTENCY_KEY, "a key", allowed));
        }
        Ok(Self)
    }
}

impl Takes for Unkeyed {
    fn takes(contract: &mut Contract, _: &mut Schemas) {
        contract.problem(StatusCode::BAD_REQUEST);
    }
}

fn check_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let said = header::once(headers, header::CONTENT_TYPE)?;
    let said = said.map_or("nothing", |value| value.to_str().unwrap_or("no text"));
    let kind = said.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail =
        format!("the body's content type is {}; send application/json", said.chars().take(64).collect::<String>());
    Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail))
}
