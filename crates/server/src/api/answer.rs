//! The form of an operator's answers.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::ApiError;

/// The JSON of an answer.
///
/// # Panics
///
/// Never: answers are objects with text keys, which always have a JSON form.
pub(super) fn to_json<T: Serialize>(answer: &T) -> Vec<u8> {
    serde_json::to_vec(answer).expect("answers are objects with text keys, which always have a JSON form")
}

/// A JSON answer.
pub(super) struct Json<T>(pub(super) StatusCode, pub(super) T);

impl<T> Json<T> {
    /// An answer of status 200.
    pub(super) fn ok(answer: T) -> Self {
        Self(StatusCode::OK, answer)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(to_json(&self.1)));
        *response.status_mut() = self.0;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Everything here changes by the second, and one answer holds a token.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// What an operator route answers.
pub(super) type Answered<T> = Result<Json<T>, ApiError>;
