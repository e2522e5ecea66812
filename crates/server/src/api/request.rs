//! The parts of an operator's request: the thing its path names, and its JSON body.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use bytes::Bytes;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_wire::api::problem::ProblemCode;

use super::Api;
use super::problem::ApiError;
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

/// The number of a revision of the path's task.
pub(super) struct AtRevision(pub(super) RevisionNumber);

impl FromStr for AtRevision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().and_then(|number| RevisionNumber::new(number).ok());
        number.map(Self).ok_or_else(|| "expected a number: 1, 2, 3 …".to_owned())
    }
}

impl FromRequestParts<Api> for AtRevision {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        named(parts, api, "number").await
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

/// A JSON body of at most `LIMIT` bytes, or none.
pub(super) struct JsonBody<const LIMIT: usize>(pub(super) Bytes);

impl<const LIMIT: usize> FromRequest<Api> for JsonBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Api) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = body::read(&parts.headers, body, LIMIT).await?;
        if !bytes.is_empty() {
            check_json(&parts.headers)?;
        }
        Ok(Self(bytes))
    }
}

fn check_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("nothing");
    let kind = said.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail =
        format!("the body's content type is {}; send application/json", said.chars().take(64).collect::<String>());
    Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail))
}
