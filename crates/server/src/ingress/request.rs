//! The parts of a worker's request, each judged before the handler sees it; and the form of an answer.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use leasehold_control::WorkerPrincipal;
use leasehold_core::id::{AttemptId, SessionId};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_wire::{Message, WireError, encode, parse};

use super::Ingress;
use super::refused::Refused;
use crate::body;

/// The worker of the request: what [`super::admit`] found in the connection's certificate.
pub(super) struct Caller(pub(super) WorkerPrincipal);

impl FromRequestParts<Ingress> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Ingress) -> Result<Self, Refused> {
        let principal = parts.extensions.get::<WorkerPrincipal>().cloned();
        principal.map(Self).ok_or_else(|| Refusal::new(RefusalCode::Unauthenticated, "no client certificate").into())
    }
}

/// The session of the path.
pub(super) struct AtSession(pub(super) SessionId);

impl FromRequestParts<Ingress> for AtSession {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &Ingress) -> Result<Self, Refused> {
        Ok(Self(segment(parts, state, "session").await?))
    }
}

/// The session and the attempt of the path.
pub(super) struct AtAttempt(pub(super) SessionId, pub(super) AttemptId);

impl FromRequestParts<Ingress> for AtAttempt {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &Ingress) -> Result<Self, Refused> {
        Ok(Self(segment(parts, state, "session").await?, segment(parts, state, "attempt").await?))
    }
}

async fn segment<T: std::str::FromStr<Err: std::fmt::Display>>(
    parts: &mut Parts,
    state: &Ingress,
    name: &'static str,
) -> Result<T, Refused> {
    let refused = |problem: String| WireError::invalid(name, problem, "a lower-case UUIDv7 in the path");
    let params = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| refused("the path is not UTF-8".to_owned()))?;
    let text = params.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    let text = text.ok_or_else(|| refused("missing".to_owned()))?;
    Ok(text.parse().map_err(|error: T::Err| refused(error.to_string()))?)
}

/// A body of the protocol, read within its limit and parsed by its schema.
pub(super) struct Said<T>(pub(super) T);

impl<T: Message> FromRequest<Ingress> for Said<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &Ingress) -> Result<Self, Refused> {
        let bytes = read(request, T::LIMIT).await?;
        Ok(Self(parse(&bytes)?))
    }
}

/// The bytes of a body of at most `LIMIT` bytes, for the messages whose digest counts and for logs.
pub(super) struct Raw<const LIMIT: usize>(pub(super) Bytes);

impl<const LIMIT: usize> FromRequest<Ingress> for Raw<LIMIT> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &Ingress) -> Result<Self, Refused> {
        Ok(Self(read(request, LIMIT).await?))
    }
}

async fn read(request: Request, limit: usize) -> Result<Bytes, Refused> {
    let (parts, body) = request.into_parts();
    Ok(body::read(&parts.headers, body, limit).await?)
}

/// An answer of the protocol.
pub(super) struct Answer<T>(pub(super) T);

impl<T: Message> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(encode(&self.0)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Tickets and offers are for the worker alone.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// What a worker route answers.
pub(super) type Answered<T> = Result<Answer<T>, Refused>;
