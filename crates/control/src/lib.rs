//! The services of the control plane of Leasehold: one file per verb.
//!
//! A service loads, lets `leasehold-core` decide inside one named transaction of the store, and wakes who waits. Services never
//! see HTTP or wire types, never compose transactions, and read time and randomness from parameters only; tokio's timers
//! are hints. Worker-facing services take a [`principal::WorkerPrincipal`] first, operator-facing ones that change something
//! a [`principal::Caller`]. (Control design; protocol.)

pub mod access;
pub mod activate;
pub mod admit;
mod announce;
pub mod audit;
pub mod cancel;
mod chains;
mod dispatch;
pub mod end;
pub mod enroll;
pub mod error;
pub mod explain;
mod hints;
pub mod install;
mod ledger;
pub mod logs;
pub mod metrics;
mod neighbours;
mod open_pulls;
pub mod plane;
pub mod principal;
pub mod project;
pub mod pull;
pub mod query;
pub mod readiness;
mod recover;
pub mod resolve;
pub mod room;
mod rounds;
pub mod schedule;
pub mod seal;
pub mod sessions;
pub mod task;
pub mod watch;
pub mod webhook;
mod why;
pub mod worker;

#[cfg(test)]
mod fixture;

pub use metrics::Metrics;
pub use plane::{ControlPlane, Settings};
pub use principal::{Caller, SessionRef, WorkerPrincipal};

/// What the services answer: records as they are. The store port itself stays behind the services.
pub mod view {
    pub use leasehold_store::call::{AuditPage, LedgerPage, Renewal, RunFilter, TriggersAfter};
    pub use leasehold_store::view::{
        AuditEntry, Backfilled, Beaten, LedgerEntry, LedgerKey, LogPage, PlanView, ProjectView, RunSummary, RunView,
        TaskRevision, TaskView, TriggerView, WorkerView,
    };
}
