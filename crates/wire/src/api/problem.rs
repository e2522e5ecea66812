//! Problems of the operator API (`application/problem+json`, RFC 9457): a stable code, every field that is wrong, and the fix.

use leasehold_core::shape::{ShapeError, ShapeErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $title:literal;)+) => {
        /// The stable code of a problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemCode {
            $($(#[$doc])* $variant,)+
            /// A code that this client does not know: its status tells the rest.
            #[serde(other)]
            Other,
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ Self::Other => "other" }
            }

            /// The HTTP status that carries it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ Self::Other => 500 }
            }

            /// The short title, for people.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ Self::Other => "Something else went wrong" }
            }
        }
    };
}

codes! {
    /// A part of the request is not allowed.
    InvalidRequest = "invalid_request", 400, "The request is not valid";
    /// The request names a field that nobody knows.
    UnknownField = "unknown_field", 400, "The request names an unknown field";
    /// A prefix that several things begin with.
    Ambiguous = "ambiguous", 400, "The name fits several things";
    /// No token, or one that is not valid.
    Unauthenticated = "unauthenticated", 401, "No valid token";
    /// The token's role does not allow it.
    Forbidden = "forbidden", 403, "Not allowed";
    /// There is no such thing.
    NotFound = "not_found", 404, "Not found";
    /// The route exists for other methods.
    MethodNotAllowed = "method_not_allowed", 405, "This route has no such method";
    /// The idempotency key was used with another request before.
    KeyReused = "key_reused", 409, "The idempotency key was used with another request";
    /// The run has ended already.
    AlreadyEnded = "already_ended", 409, "The run has already ended";
    /// The run is lost: there is a question to close, not a process to stop.
    RunLost = "run_lost", 409, "Contact with the run was lost";
    /// The worker still holds attempts.
    WorkerHolds = "worker_holds", 409, "The worker still holds attempts";
    /// The project is there already, with other settings.
    ProjectExists = "project_exists", 409, "The project exists already";
    /// The project cannot be deleted: runs of it are open, or everybody uses it.
    ProjectInUse = "project_in_use", 409, "The project is in use";
    /// Runs of the task have not ended.
    TaskInUse = "task_in_use", 409, "The task is in use";
    /// The tasks changed since the plan was made, or since a run was made from one.
    TaskMoved = "task_moved", 409, "The task changed meanwhile";
    /// It is paused: nothing of it starts.
    Paused = "paused", 409, "It is paused";
    /// The run is not lost: there is no question to close.
    NotLost = "not_lost", 409, "There is no question to close";
    /// The named version is not the current one.
    VersionConflict = "version_conflict", 409, "It changed meanwhile";
    /// It is not what the caller said that they saw (`If-Match`, `If-None-Match`).
    PreconditionFailed = "precondition_failed", 412, "It changed since you looked at it";
    /// The request is over a limit.
    LimitExceeded = "limit_exceeded", 413, "The request is over a limit";
    /// The body is not JSON.
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be application/json";
    /// An edit must say what it is an edit of.
    PreconditionRequired = "precondition_required", 428, "Say what you saw";
    /// Too many requests.
    RateLimited = "rate_limited", 429, "Too many requests";
    /// A stored row contradicts its own rules.
    Damaged = "damaged", 500, "Stored data is damaged";
    /// Something that should not happen.
    Internal = "internal", 500, "Something went wrong on our side";
    /// Certainly not done; may be asked again as it was.
    Overloaded = "overloaded", 503, "The control plane cannot take this now";
    /// Of `readyz` alone: the control plane cannot do its work now.
    NotReady = "not_ready", 503, "The control plane is not ready";
    /// The control plane's disk has no room for new work.
    DiskFull = "disk_full", 503, "The control plane's disk is nearly full";
    /// Done or not: only the same request again tells.
    UnknownOutcome = "unknown_outcome", 503, "Whether it was done is unknown";
}

/// A request that was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// A URI of the kind of problem: `urn:leasehold:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem, for people.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// The stable code.
    pub code: ProblemCode,
    /// What was wrong here. Never a secret.
    pub detail: String,
    /// Every field that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// When asking again makes sense, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// One mistake in one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldError {
    /// The field, such as `revision.placement.require.runtimes.python`; empty for the whole body.
    pub path: String,
    /// `missing`, `unknown`, `type`, `value`, `limit` or `conflict`.
    pub kind: String,
    /// What was got, cut to 64 characters.
    pub got: String,
    /// What is allowed.
    pub allowed: String,
    /// The nearest known key or value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// The mistake as one sentence.
    pub message: String,
}

impl From<&ShapeError> for FieldError {
    fn from(core: &ShapeError) -> Self {
        let kind = match core.kind {
            ShapeErrorKind::Missing => "missing",
            ShapeErrorKind::Unknown => "unknown",
            ShapeErrorKind::Type => "type",
            ShapeErrorKind::Value => "value",
            ShapeErrorKind::Limit => "limit",
            ShapeErrorKind::Conflict => "conflict",
        };
        Self {
            path: core.path.clone(),
            kind: kind.to_owned(),
            got: core.got.clone(),
            allowed: core.allowed.clone(),
            nearest: core.nearest.clone(),
            message: core.to_string(),
        }
    }
}

impl Problem {
    /// A problem with its code and its sentence.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:leasehold:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            errors: Vec::new(),
            fix: None,
            retry_after_ms: None,
        }
    }

    /// The problem of a request with these mistakes. One kind of mistake gives its own code, several `invalid_request`.
    pub fn of_shape(errors: &[ShapeError]) -> Self {
        let all = |kind| !errors.is_empty() && errors.iter().all(|error| error.kind == kind);
        let code = if all(ShapeErrorKind::Unknown) {
            ProblemCode::UnknownField
        } else if all(ShapeErrorKind::Limit) {
            ProblemCode::LimitExceeded
        } else {
            ProblemCode::InvalidRequest
        };
        let detail = match errors {
            [] => "the request cannot be read".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
        };
        Self { errors: errors.iter().map(FieldError::from).collect(), ..Self::new(code, detail) }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}
