//! The one mapping from what went wrong to what an operator is told: status, stable code, problem+json.
//!
//! Two messages: the operator's names field, got, allowed and fix; the store's own words go to the log alone.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_control::error::{Denied, ServiceError};
use leasehold_control::readiness::{NotReady, Reason};
use leasehold_core::cancel::CancelRefused;
use leasehold_core::chain::Broken;
use leasehold_core::project::Undeletable;
use leasehold_core::resolve::ResolveRefused;
use leasehold_core::role::Role;
use leasehold_core::run::RunState;
use leasehold_core::shape::{ShapeError, ShapeErrorKind};
use leasehold_core::task;
use leasehold_core::time::Millis;
use leasehold_wire::api::problem::{Problem, ProblemCode};
use leasehold_wire::v1::problem::CONTENT_TYPE as PROBLEM_JSON;

use super::webhooks::not_callable;
use crate::body::BodyError;

/// When to ask again what the store could not do now.
const AGAIN: Millis = Millis::from_secs(1);

/// An operator's request that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError(Box<Problem>);

impl ApiError {
    /// A problem with its code and its sentence.
    pub(super) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)))
    }

    /// Several mistakes in the fields of a request.
    pub(super) fn fields(errors: &[ShapeError]) -> Self {
        Self(Box::new(Problem::of_shape(errors)))
    }

    /// One value that is not allowed.
    pub(super) fn field(path: &str, got: impl AsRef<str>, allowed: impl Into<String>) -> Self {
        Self::fields(&[ShapeError::new(path, ShapeErrorKind::Value, got, allowed)])
    }

    /// Nobody knows who asks.
    pub(super) fn unauthenticated(detail: &str) -> Self {
        let fix = "make a token with an admin's help, or use the command line on the control plane's own machine";
        Self(Box::new(Problem::new(ProblemCode::Unauthenticated, detail).fix(fix)))
    }

    /// Who asks is known, and may not.
    pub(super) fn forbidden(role: Role, needed: Role) -> Self {
        let detail = format!("this token's role is {role}; this needs {needed}");
        Self(Box::new(Problem::new(ProblemCode::Forbidden, detail).fix(format!("use a token of role {needed}"))))
    }

    fn again(code: ProblemCode, detail: &str) -> Self {
        Self::later(code, detail, AGAIN)
    }

    /// What can be asked again after a while.
    pub(super) fn later(code: ProblemCode, detail: &str, after: Millis) -> Self {
        Self(Box::new(Problem { retry_after_ms: Some(after.get()), ..Problem::new(code, detail) }))
    }

    /// The same, with what to do about it.
    pub(super) fn fix(self, fix: &str) -> Self {
        Self(Box::new(self.0.fix(fix)))
    }
}

impl From<NotReady> for ApiError {
    fn from(why: NotReady) -> Self {
        match why.reasons() {
            [Reason::DiskFull] => Denied::DiskFull.into(),
            _ => Self::again(ProblemCode::NotReady, &why.to_string()),
        }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => Self::fields(&[ShapeError::new(
                "",
                ShapeErrorKind::Limit,
                "a larger body",
                format!("at most {limit} bytes"),
            )]),
            BodyError::TooSlow | BodyError::Broken => Self::again(ProblemCode::Overloaded, &error.to_string()),
        }
    }
}

impl From<Vec<ShapeError>> for ApiError {
    fn from(errors: Vec<ShapeError>) -> Self {
        Self::fields(&errors)
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        let detail = denied.to_string();
        match denied {
            Denied::NotFound { .. } | Denied::NoPart { .. } => Self::new(ProblemCode::NotFound, detail),
            Denied::Ambiguous { .. } => Self::new(ProblemCode::Ambiguous, detail),
            Denied::Invalid { field, got, allowed } => Self::field(&field, got, allowed),
            Denied::Mistakes(errors) => Self::fields(&errors),
            Denied::KeyReused => Self::new(ProblemCode::KeyReused, detail).fix("send a new key with a new request"),
            Denied::DiskFull => Self::again(ProblemCode::DiskFull, &detail)
                .fix("make room on the file system of the control plane's data directory"),
            Denied::Cancel(CancelRefused::AlreadyEnded(_)) => Self::new(ProblemCode::AlreadyEnded, detail),
            Denied::Holds(_) => Self::new(ProblemCode::WorkerHolds, detail).fix(
                "drain it and wait until nothing runs there, and resolve its lost runs; or, if the machine is gone with \
                 everything that ran there, say so (`leasehold worker delete NAME --destroyed`)",
            ),
            Denied::ProjectExists(_) => Self::new(ProblemCode::ProjectExists, detail)
                .fix("change it with `leasehold project set NAME --concurrency N`"),
            Denied::Project(Undeletable::Default) => Self::new(ProblemCode::ProjectInUse, detail)
                .fix("its limit can be lifted: `leasehold project set default --concurrency none`"),
            Denied::Project(Undeletable::InUse { .. }) => Self::new(ProblemCode::ProjectInUse, detail)
                .fix("cancel or resolve them first: `leasehold runs list --project NAME` shows them"),
            Denied::Project(Undeletable::HasTasks { .. }) => Self::new(ProblemCode::ProjectInUse, detail)
                .fix("delete them first: `leasehold task list --project NAME` shows them"),
            Denied::Task { name, why: task::Undeletable::InUse(_) } => Self::new(ProblemCode::TaskInUse, detail)
                .fix(&format!("cancel them first (`leasehold runs list --task {name}` shows them), or with it (--cascade)")),
            Denied::Task { name, why: task::Undeletable::Lost(_) } => Self::new(ProblemCode::TaskInUse, detail)
                .fix(&format!("resolve them first: `leasehold runs list --task {name} --state lost` shows them")),
            Denied::Task { name, why: task::Undeletable::TooMany } => Self::new(ProblemCode::TaskInUse, detail)
                .fix(&format!("cancel some of them first: `leasehold runs list --task {name}` shows them")),
            Denied::Moved { .. } => Self::new(ProblemCode::PreconditionFailed, detail)
                .fix("read it again: its ETag is what to send with the next edit"),
            Denied::Chain(Broken::Followed { task, .. }) => Self::new(ProblemCode::TaskInUse, detail)
                .fix(&format!("take `{task}` out of their `after` and apply them, or delete them first")),
            Denied::Chain(Broken::Missing { .. } | Broken::Cycle(_)) => Self::new(ProblemCode::InvalidRequest, detail),
            Denied::Paused => Self::new(ProblemCode::Paused, detail)
                .fix("call again once it is resumed: an operator paused it (`leasehold schedule list`)"),
            Denied::NotCallable => not_callable(),
            Denied::PlanMoved(_) | Denied::TaskMoved(_) => Self::new(ProblemCode::TaskMoved, detail),
            Denied::Cancel(CancelRefused::Lost) => Self::new(ProblemCode::RunLost, detail).fix(
                "`leasehold runs explain RUN` says what is known; `leasehold runs resolve RUN` takes wait, retry, \
                 mark-failed or mark-succeeded",
            ),
            Denied::Resolve(ResolveRefused::AlreadyEnded(_)) => Self::new(ProblemCode::AlreadyEnded, detail)
                .fix("`leasehold run --again RUN` submits the same as a new run"),
            Denied::Resolve(ResolveRefused::NotLost(RunState::RetryWait)) => Self::new(ProblemCode::NotLost, detail)
                .fix("its next attempt starts by itself; `leasehold cancel RUN` stops that"),
            Denied::Resolve(ResolveRefused::NotLost(_)) => Self::new(ProblemCode::NotLost, detail)
                .fix("`leasehold cancel RUN` stops it; only a lost run is resolved"),
            Denied::Resolve(ResolveRefused::OtherAttempt { .. }) => Self::new(ProblemCode::VersionConflict, detail)
                .fix("look at the run again: `leasehold runs explain RUN`"),
        }
    }
}

impl From<ServiceError<Denied>> for ApiError {
    fn from(error: ServiceError<Denied>) -> Self {
        match error {
            ServiceError::Refused(denied) => denied.into(),
            ServiceError::NotDone { reason } => {
                tracing::warn!(reason, "an operator's request was not done");
                Self::again(ProblemCode::Overloaded, "it was not done: send the same request again")
            }
            ServiceError::NotAllowed { reason } => {
                tracing::error!(reason, "the database does not let the control plane do what an operator asks for");
                let detail = "it was not done: the control plane's user lacks a right in its database";
                Self::new(ProblemCode::Internal, detail)
                    .fix("the control plane's log says which right: grant what deploy/postgresql/roles.sql grants")
            }
            ServiceError::Unknown { reason } => {
                tracing::warn!(reason, "whether an operator's request was done is unknown");
                let detail =
                    "whether it was done is not known: send the same request, with the same Idempotency-Key, again";
                Self::again(ProblemCode::UnknownOutcome, detail)
            }
            ServiceError::Damaged { reason } => {
                tracing::error!(reason, "a stored row is damaged");
                Self::new(ProblemCode::Damaged, "a stored row contradicts its own rules; nothing was done")
                    .fix("the control plane's log says which row")
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::from(super::answer::to_json(&*problem)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(after) = problem.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"leasehold\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_own_words_reach_no_operator() {
        let errors = [
            (ServiceError::NotDone { reason: "row 7 of /var/db".to_owned() }, ProblemCode::Overloaded),
            (ServiceError::NotAllowed { reason: "row 7 of /var/db".to_owned() }, ProblemCode::Internal),
            (ServiceError::Unknown { reason: "row 7 of /var/db".to_owned() }, ProblemCode::UnknownOutcome),
            (ServiceError::Damaged { reason: "row 7 of /var/db".to_owned() }, ProblemCode::Damaged),
        ];
        for (error, code) in errors {
            let ApiError(problem) = error.into();
            assert_eq!(problem.code, code);
            assert!(!problem.detail.contains("row 7"), "{}", problem.detail);
        }
    }

    #[test]
    fn every_problem_is_sent_with_the_status_of_its_code() {
        for &code in ProblemCode::ALL {
            let response = ApiError::new(code, "why").into_response();
            assert_eq!(response.status().as_u16(), code.status(), "{}", code.as_str());
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        }
    }
}
