//! The one mapping from what went wrong to what a worker is told: status, stable code, problem+json.
//!
//! Two messages: the worker's says what it may do; the store's own words go to the log alone. (Protocol, *Errors*.)

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_control::error::ServiceError;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::Millis;
use leasehold_wire::v1::problem::{self, Problem};
use leasehold_wire::{WireError, encode};

use crate::body::BodyError;

/// When to ask again what the store could not do now.
const AGAIN: Millis = Millis::from_secs(1);
/// When to ask again what the store cannot do until a person has looked at it.
const AGAIN_DAMAGED: Millis = Millis::from_secs(60);

/// What is said where the control plane lacks a right in its database.
const NOT_ALLOWED: &str =
    "it was not done: the control plane's user lacks a right in its database, and the control plane's log says which";

/// A worker call that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(Box<Problem>);

impl Refused {
    /// A call that reaches no route.
    pub(crate) fn at(status: StatusCode, detail: String) -> Self {
        let problem = Problem::from(&Refusal::new(RefusalCode::InvalidRequest, detail));
        Self(Box::new(Problem { status: status.as_u16(), ..problem }))
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(Problem::from(&refusal)))
    }
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        Self(Box::new(Problem::from(&error)))
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => WireError::body_over(limit).into(),
            // A slow link is no fault of the request: the same call may arrive the next time.
            BodyError::TooSlow | BodyError::Broken => {
                Refusal::new(RefusalCode::Overloaded, error.to_string()).retry_after(AGAIN).into()
            }
        }
    }
}

impl From<ServiceError<Refusal>> for Refused {
    fn from(error: ServiceError<Refusal>) -> Self {
        let overloaded =
            |message: &str, after| Self::from(Refusal::new(RefusalCode::Overloaded, message).retry_after(after));
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::NotDone { reason } => {
                tracing::warn!(reason, "a worker call was not done");
                overloaded("it was not done: send the same call again", AGAIN)
            }
            ServiceError::NotAllowed { reason } => {
                tracing::error!(reason, "the database does not let the control plane do what a worker asks for");
                // Of the codes that every worker knows, the one that makes it keep what it has and ask again.
                overloaded(NOT_ALLOWED, AGAIN)
            }
            ServiceError::Unknown { reason } => {
                tracing::warn!(reason, "whether a worker call was done is unknown");
                let Self(problem) = overloaded("whether it was done is not known: send the same call again", AGAIN);
                Self(Box::new(problem.of_an_unknown_commit()))
            }
            ServiceError::Damaged { reason } => {
                tracing::error!(reason, "a stored row is damaged");
                overloaded("a stored row is damaged: the control plane's log says which", AGAIN_DAMAGED)
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let mut response = Response::new(Body::from(encode(&*problem)));
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        if let Some(after) = problem.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.get().div_ceil(1000)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use leasehold_wire::v1::problem::Done;

    use super::*;

    #[test]
    fn an_unknown_commit_is_overloaded_and_keeps_the_stores_words_to_itself() {
        let errors = [
            (ServiceError::NotDone { reason: "row 7 of /var/db".to_owned() }, None),
            (ServiceError::NotAllowed { reason: "row 7 of /var/db".to_owned() }, None),
            (ServiceError::Unknown { reason: "row 7 of /var/db".to_owned() }, Some(Done::Unknown)),
            (ServiceError::Damaged { reason: "row 7 of /var/db".to_owned() }, None),
        ];
        for (error, done) in errors {
            let Refused(problem) = error.into();
            assert_eq!((problem.status, problem.code), (503, RefusalCode::Overloaded));
            assert_eq!(problem.done, done);
            assert!(problem.retry_after_ms.is_some());
            assert!(!problem.detail.contains("row 7"), "{}", problem.detail);
        }
    }

    #[test]
    fn every_refusal_keeps_its_code_and_gets_the_tables_status() {
        for &code in RefusalCode::ALL {
            let response = Refused::from(Refusal::new(code, "why")).into_response();
            assert_eq!(response.status().as_u16(), leasehold_wire::codes::status(code), "{code}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        }
    }
}
