//! What an edit says that it saw: entity tags, and the conditions that no edit overwrites another's by.
//!
//! A tag names what a person may change of a thing (a task's revision, a project's settings), not every byte of an answer: what
//! changes by itself, such as how many runs hold a place, makes no edit stale. (Product, *The command line*.)

use axum::extract::FromRequestParts;
use axum::http::header::ETAG;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_core::crypto::Digest;
use leasehold_core::project::Settings;
use leasehold_wire::api::problem::ProblemCode;
use serde_json::json;

use super::describe::{Answers, Contract, Schemas, Takes};
use super::problem::ApiError;
use super::{Api, header};

/// What a tag stands for.
pub(super) trait Tag: Sized {
    /// The text between the quotes.
    fn to_tag(&self) -> String;

    /// What the text stands for; none if it is no tag of ours, which then matches nothing.
    fn of_tag(text: &str) -> Option<Self>;
}

impl Tag for Digest {
    fn to_tag(&self) -> String {
        self.to_string()
    }

    fn of_tag(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Tag for Settings {
    fn to_tag(&self) -> String {
        self.concurrency.map_or_else(|| "concurrency=none".to_owned(), |limit| format!("concurrency={limit}"))
    }

    fn of_tag(text: &str) -> Option<Self> {
        let concurrency = match text.strip_prefix("concurrency=")? {
            "none" => None,
            limit => Some(limit.parse().ok()?),
        };
        Some(Self { concurrency })
    }
}

/// What an edit says that it saw (`If-Match`).
pub(super) enum Seen<T> {
    /// Nothing was said.
    Unsaid,
    /// Whatever is there (`*`).
    Any,
    /// Exactly this.
    This(T),
}

impl<T: Tag> Seen<T> {
    fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(text) = header::text(headers, header::IF_MATCH)?.map(str::trim) else { return Ok(Self::Unsaid) };
        if text == "*" {
            return Ok(Self::Any);
        }
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let tag = quoted.filter(|tag| !tag.contains('"'));
        // A weak tag is well-formed, and matches nothing.
        if tag.is_none() && !text.starts_with("W/\"") {
            return Err(ApiError::field(header::IF_MATCH, text, "one tag in quotes, as `ETag` said it, or *"));
        }
        tag.and_then(T::of_tag).map(Self::This).ok_or_else(moved)
    }

    /// What must be there, where something must.
    pub(super) fn exactly(self) -> Option<T> {
        match self {
            Self::This(seen) => Some(seen),
            Self::Unsaid | Self::Any => None,
        }
    }
}

fn moved() -> ApiError {
    ApiError::new(ProblemCode::PreconditionFailed, "it is not what If-Match says that you saw: nothing was done")
        .fix("read it again: its ETag is what to send with the next edit")
}

impl<T: Tag> FromRequestParts<Api> for Seen<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        Self::of(&parts.headers)
    }
}

impl<T> Takes for Seen<T> {
    fn takes(contract: &mut Contract, _: &mut Schemas) {
        let about = "The `ETag` that was seen: what has changed since is not overwritten.";
        contract.header(header::IF_MATCH, about, &json!({ "type": "string" }));
        contract.problem(StatusCode::PRECONDITION_FAILED);
    }
}

/// What whoever writes a whole thing saw of it: one of both headers must say.
pub(super) enum Base<T> {
    /// Nothing (`If-None-Match: *`).
    Nothing,
    /// Whatever is there (`If-Match: *`).
    Any,
    /// Exactly this.
    This(T),
}

impl<T: Tag> FromRequestParts<Api> for Base<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        let none = header::text(&parts.headers, header::IF_NONE_MATCH)?.map(str::trim);
        match (none, Seen::of(&parts.headers)?) {
            (None, Seen::Any) => Ok(Self::Any),
            (None, Seen::This(seen)) => Ok(Self::This(seen)),
            (Some("*"), Seen::Unsaid) => Ok(Self::Nothing),
            (Some(other), Seen::Unsaid) => Err(ApiError::field(header::IF_NONE_MATCH, other, "*")),
            (Some(_), _) => Err(ApiError::field(header::IF_NONE_MATCH, "it with If-Match", "one of the two")),
            (None, Seen::Unsaid) => {
                let detail =
                    "an edit says what it is an edit of: send If-Match with the ETag that you saw, or If-None-Match: *";
                Err(ApiError::new(ProblemCode::PreconditionRequired, detail))
            }
        }
    }
}

impl<T> Takes for Base<T> {
    fn takes(contract: &mut Contract, schemas: &mut Schemas) {
        Seen::<T>::takes(contract, schemas);
        let about = "`*`: nothing is there yet. This or `If-Match` must be sent.";
        contract.header(header::IF_NONE_MATCH, about, &json!({ "const": "*" }));
        contract.problem(StatusCode::PRECONDITION_REQUIRED);
    }
}

/// An answer with the tag of what it shows.
pub(super) struct Tagged<A> {
    tag: String,
    answer: A,
}

impl<A> Tagged<A> {
    /// The answer that shows `what`.
    pub(super) fn new(what: &impl Tag, answer: A) -> Self {
        Self { tag: format!("\"{}\"", what.to_tag()), answer }
    }
}

impl<A: IntoResponse> IntoResponse for Tagged<A> {
    fn into_response(self) -> Response {
        let mut response = self.answer.into_response();
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

impl<A: Answers> Answers for Tagged<A> {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        A::answers(contract, schemas);
        contract.answers_with("ETag", "What `If-Match` of the next edit takes.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_as_what_it_stands_for() {
        for settings in [Settings { concurrency: None }, Settings { concurrency: Some(7) }] {
            assert_eq!(Settings::of_tag(&settings.to_tag()), Some(settings));
        }
        for other in ["", "7", "concurrency=", "concurrency=-1"] {
            assert_eq!(Settings::of_tag(other), None, "{other}");
        }
    }
}
