//! The form of an operator's answers.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::describe::{Answers, Contract, Schemas};
use super::problem::ApiError;

/// The JSON of an answer.
///
/// # Panics
///
/// Never: answers are objects with text keys, which always have a JSON form.
pub(super) fn to_json<T: Serialize>(answer: &T) -> Vec<u8> {
    serde_json::to_vec(answer).expect("answers are objects with text keys, which always have a JSON form")
}

pub(super) fn json_response<T: Serialize>(status: StatusCode, answer: &T) -> Response {
    let mut response = Response::new(Body::from(to_json(answer)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Everything here changes by the second, and one answer holds a token.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A JSON answer of status 200.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json_response(StatusCode::OK, &self.0)
    }
}

impl<T: JsonSchema> Answers for Json<T> {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        contract.answer(StatusCode::OK, "Done.", &[("application/json", schemas.of_answer::<T>())]);
    }
}

/// What an operator route answers.
pub(super) type Answered<T> = Result<Json<T>, ApiError>;

/// The answer to what makes something: 201 where it was made now, 200 where it was there from the same request before.
pub(super) struct Made<T> {
    /// Whether it was made now.
    pub(super) new: bool,
    /// The thing.
    pub(super) answer: T,
}

impl<T: Serialize> IntoResponse for Made<T> {
    fn into_response(self) -> Response {
        json_response(if self.new { StatusCode::CREATED } else { StatusCode::OK }, &self.answer)
    }
}

impl<T: JsonSchema> Answers for Made<T> {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        let schema = schemas.of_answer::<T>();
        contract.answer(StatusCode::CREATED, "It was made.", &[("application/json", schema.clone())]);
        contract.answer(StatusCode::OK, "The same request had made it before.", &[("application/json", schema)]);
        contract.problem(StatusCode::CONFLICT);
    }
}

/// The answer to what makes something anew each time.
pub(super) struct Fresh<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Fresh<T> {
    fn into_response(self) -> Response {
        json_response(StatusCode::CREATED, &self.0)
    }
}

impl<T: JsonSchema> Answers for Fresh<T> {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        contract.answer(StatusCode::CREATED, "It was made.", &[("application/json", schemas.of_answer::<T>())]);
    }
}

/// A line or two for people and load balancers.
pub(super) struct Plain(pub(super) String);

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl Answers for Plain {
    fn answers(contract: &mut Contract, _: &mut Schemas) {
        contract.answer(StatusCode::OK, "Yes.", &[("text/plain", json!({ "type": "string" }))]);
    }
}
