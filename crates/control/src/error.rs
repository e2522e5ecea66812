//! What a service answers when it did not do what it was asked: refused with a reason, certainly not done, or unknown.
//!
//! A commit whose answer was lost is never turned into "none" or "failed": the caller hears [`ServiceError::Unknown`] and
//! asks again with the same call. (Control design, *Store* and *Operating it*.)

use std::fmt::Display;

use leasehold_core::cancel::CancelRefused;
use leasehold_core::chain;
use leasehold_core::id::{RunId, TaskName, TriggerName};
use leasehold_core::limits::BACKFILL_RUNS;
use leasehold_core::project;
use leasehold_core::refusal::Refusal;
use leasehold_core::resolve::ResolveRefused;
use leasehold_core::schedule::BackfillError;
use leasehold_core::shape::ShapeError;
use leasehold_core::task;
use leasehold_core::worker::Holds;
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::Unmet;

/// Why a service did not answer. `R` is the kind of refusal: [`Refusal`] to workers, [`Denied`] to operators.
///
/// The reasons are for the log alone; who asked is told to ask again later, or that a row is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError<R> {
    /// It was refused, for a reason that the caller is told.
    #[error("{0}")]
    Refused(R),
    /// Certainly not done: may be asked again as it was.
    #[error("not done: {reason}")]
    NotDone {
        /// For the log.
        reason: String,
    },
    /// Certainly not done: the control plane's own user may not do it in the database, until a person grants what is missing.
    #[error("not allowed to: {reason}")]
    NotAllowed {
        /// For the log.
        reason: String,
    },
    /// Done or not: only the same call again tells.
    #[error("not known whether it was done: {reason}")]
    Unknown {
        /// For the log.
        reason: String,
    },
    /// A stored row contradicts its own rules; asking again will not help.
    #[error("damaged: {reason}")]
    Damaged {
        /// For the log.
        reason: String,
    },
}

impl<R> ServiceError<R> {
    /// What a service says while the control plane shuts down.
    pub(crate) fn shutting_down() -> Self {
        Self::NotDone { reason: "the control plane is shutting down".to_owned() }
    }
}

impl<R> From<StoreError> for ServiceError<R> {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotDone { reason } => Self::NotDone { reason },
            StoreError::NotAllowed { reason } => Self::NotAllowed { reason },
            StoreError::Unknown { reason } => Self::Unknown { reason },
            StoreError::Damaged { reason } => Self::Damaged { reason },
        }
    }
}

/// Why an operator's request cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no such thing.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// What was looked for: `run`, `worker`, `task`.
        what: &'static str,
        /// What it was called.
        name: String,
    },
    /// There is no such part of a thing.
    #[error("there is no {part} of {of}")]
    NoPart {
        /// Which part, such as a trigger with its name.
        part: String,
        /// Of what.
        of: String,
    },
    /// Several things are called so.
    #[error("`{prefix}` begins several run ids, such as {}; write more of it", join(.matches))]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// Some of those it could mean.
        matches: Vec<RunId>,
    },
    /// A part of the request is not allowed.
    #[error("{field}: got {got}, allowed is {allowed}")]
    Invalid {
        /// Which part.
        field: String,
        /// What was given.
        got: String,
        /// What is allowed.
        allowed: String,
    },
    /// Parts of the request are not allowed.
    #[error("{}", told(.0))]
    Mistakes(Vec<ShapeError>),
    /// The idempotency key was used with another request before.
    #[error("this Idempotency-Key was used with another request before")]
    KeyReused,
    /// The disk has no room for new work.
    #[error(
        "the control plane's disk is nearly full: new work is refused until there is room again; what runs goes on, and \
         its ends are kept"
    )]
    DiskFull,
    /// A cancel that cannot be.
    #[error(transparent)]
    Cancel(#[from] CancelRefused),
    /// A worker that cannot be deleted yet.
    #[error(transparent)]
    Holds(#[from] Holds),
    /// A word on a lost run that changes nothing.
    #[error(transparent)]
    Resolve(#[from] ResolveRefused),
    /// A project that is there already, as somebody else wanted it.
    #[error(transparent)]
    ProjectExists(#[from] project::Exists),
    /// A project that cannot be deleted.
    #[error(transparent)]
    Project(#[from] project::Undeletable),
    /// A task that cannot be deleted.
    #[error("task {name}: {why}")]
    Task {
        /// Which.
        name: TaskName,
        /// Why.
        why: task::Undeletable,
    },
    /// Tasks that cannot follow each other so.
    #[error(transparent)]
    Chain(#[from] chain::Broken),
    /// Tasks that changed since the plan was made.
    #[error(transparent)]
    PlanMoved(#[from] task::PlanMoved),
    /// Something that changed since the caller looked at it.
    #[error("the {what} {name} changed since you looked at it: nothing was done")]
    Moved {
        /// What.
        what: &'static str,
        /// Which.
        name: String,
    },
    /// A webhook that is paused, by itself or with its task.
    #[error("this webhook is paused: nothing was started")]
    Paused,
    /// Whoever calls a webhook may not: there is none, it has no token, or another one. Which of them is never told.
    #[error("there is no webhook here that can be called with this token")]
    NotCallable,
    /// A task that changed while a run was made from it.
    #[error("the task {0} changed while this run was made from it: ask again")]
    TaskMoved(String),
}

fn join(ids: &[RunId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn told(errors: &[ShapeError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Denied {
    /// There is no `what` called `name`.
    pub fn not_found(what: &'static str, name: &impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }

    /// There is no such part of `of`.
    pub fn no_part(part: impl Display, of: impl Display) -> Self {
        Self::NoPart { part: part.to_string(), of: of.to_string() }
    }

    /// A port's answer about a trigger of a task, or about the task where none was named: each is called by its own name.
    pub(crate) fn of_trigger(unmet: &Unmet, task: &TaskName, trigger: Option<&TriggerName>) -> Self {
        match (unmet, trigger) {
            (Unmet::NotFound("task"), _) | (_, None) => Self::of(unmet, task),
            (Unmet::NotFound(what), Some(name)) => {
                Self::no_part(format_args!("{what} `{name}`"), format_args!("task `{task}`"))
            }
            (_, Some(name)) => Self::of(unmet, name),
        }
    }

    /// A port's answer about `name`, in the operator's words.
    pub(crate) fn of(unmet: &Unmet, name: &impl ToString) -> Self {
        match unmet {
            Unmet::NotFound(what) => Self::not_found(what, name),
            Unmet::AlreadyInstalled => Self::Invalid {
                field: "installation".to_owned(),
                got: "a second one".to_owned(),
                allowed: "one per store".to_owned(),
            },
            Unmet::KeyReused => Self::KeyReused,
            Unmet::Cancel(refused) => Self::Cancel(*refused),
            Unmet::Holds(holds) => Self::Holds(*holds),
            Unmet::Resolve(refused) => Self::Resolve(*refused),
            Unmet::ProjectExists(exists) => Self::ProjectExists(*exists),
            Unmet::Project(undeletable) => Self::Project(*undeletable),
            Unmet::Task(name, why) => Self::Task { name: name.clone(), why: *why },
            Unmet::Chain(broken) => Self::Chain(broken.clone()),
            Unmet::PlanMoved(moved) => Self::PlanMoved(*moved),
            Unmet::Backfill(why) => Self::of_backfill(*why),
            Unmet::Moved(what) => Self::Moved { what, name: name.to_string() },
            Unmet::TaskMoved => Self::TaskMoved(name.to_string()),
        }
    }

    fn of_backfill(why: BackfillError) -> Self {
        let (field, got, allowed) = match why {
            BackfillError::Backwards => ("to", "a time before `from`".to_owned(), "`from` or later".to_owned()),
            BackfillError::Future => {
                ("to", "a time to come".to_owned(), "one that has passed: the schedule fires by itself then".to_owned())
            }
            BackfillError::Nothing => {
                ("from", "a span without a fire time".to_owned(), "a span in which the schedule has one".to_owned())
            }
            BackfillError::TooMany { instants } => {
                ("from", format!("a span with {instants} fire times"), format!("at most {BACKFILL_RUNS} of them"))
            }
        };
        Self::Invalid { field: field.to_owned(), got, allowed }
    }
}

/// What a worker-facing service answers.
pub type WorkerResult<T> = Result<T, ServiceError<Refusal>>;

/// What an operator-facing service answers.
pub type OperatorResult<T> = Result<T, ServiceError<Denied>>;

/// The answer of an outcome, applied or replayed alike.
pub(crate) fn settle<T, R>(outcome: Result<Outcome<T, R>, StoreError>) -> Result<T, ServiceError<R>> {
    outcome?.into_result().map_err(ServiceError::Refused)
}
