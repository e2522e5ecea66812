//! A run: one request to execute one revision, from admission to an end that is true.
//!
//! The states and their one table of transitions, the record, and how a run closes. (Protocol, *What the states mean*.)

use crate::attempt::Outcome;
use crate::chain::After;
use crate::counter::{AttemptNumber, FenceNumber, RunVersion};
use crate::crypto::Digest;
use crate::id::{ProjectName, RunId, TaskName, TriggerName};
use crate::time::{LeaseInstant, Millis, UtcMillis};
use crate::trigger::Scheduled;

names! {
    /// Where a run stands.
    pub enum RunState as "run state" {
        /// Waits for a worker.
        Pending = "pending",
        /// An attempt is claimed or starting.
        Dispatching = "dispatching",
        /// An attempt's process runs.
        Running = "running",
        /// Waits for its next attempt.
        RetryWait = "retry_wait",
        /// Contact was lost and the question is open.
        Lost = "lost",
        /// Ended well.
        Succeeded = "succeeded",
        /// Ended badly.
        Failed = "failed",
        /// Ended by a person's wish.
        Cancelled = "cancelled",
        /// Ended by its time limit.
        TimedOut = "timed_out",
    }
}

impl RunState {
    /// Whether the run has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    /// Whether the one table of run transitions allows this step.
    pub const fn may_become(self, to: Self) -> bool {
        use RunState::{Cancelled, Dispatching, Failed, Lost, Pending, RetryWait, Running, Succeeded, TimedOut};
        match self {
            // Succeeded and failed: what late evidence of an earlier attempt says.
            Pending => matches!(to, Dispatching | Cancelled | TimedOut | Succeeded | Failed),
            Dispatching => {
                matches!(to, Pending | Running | RetryWait | Succeeded | Failed | Cancelled | TimedOut | Lost)
            }
            Running => matches!(to, RetryWait | Succeeded | Failed | Cancelled | TimedOut | Lost),
            RetryWait => matches!(to, Pending | Cancelled | TimedOut | Succeeded | Failed),
            Lost => matches!(to, RetryWait | Succeeded | Failed | Cancelled | TimedOut),
            Succeeded | Failed | Cancelled | TimedOut => false,
        }
    }
}

names! {
    /// Why a run is to be stopped.
    pub enum StopIntentReason as "stop reason" {
        /// Someone asked for it.
        Cancel = "cancel",
        /// Its time limit.
        Timeout = "timeout",
    }
}

impl StopIntentReason {
    /// How a run ends where nothing of it ran, or where its end was not observed.
    pub const fn outcome(self) -> RunState {
        match self {
            Self::Cancel => RunState::Cancelled,
            Self::Timeout => RunState::TimedOut,
        }
    }
}

/// The stored wish that a run stop: who, when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopIntent {
    /// Cancel or timeout. A timeout that comes later takes a cancel's place only where nothing ran.
    pub reason: StopIntentReason,
    /// Who wished it, as [`crate::actor::Actor`] prints.
    pub by: String,
    /// The person's words, if any.
    pub why: Option<String>,
    /// When, for people.
    pub at: UtcMillis,
}

/// How a run's question was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// What it ended with.
    pub outcome: Outcome,
    /// Whether the attempt's own end was not observed (`end_not_observed`).
    pub unobserved: bool,
    /// When, for people.
    pub at: UtcMillis,
}

/// A run as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Which run.
    pub id: RunId,
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task, if of one.
    pub task: Option<TaskName>,
    /// The time of a trigger that it was admitted for; none: somebody asked for it.
    pub scheduled: Option<Scheduled>,
    /// The webhook whose call it was admitted for; none: no call.
    pub webhook: Option<TriggerName>,
    /// The immutable revision that it executes.
    pub revision: Digest,
    /// The revision's placement; with project and limited task it makes the run's lane.
    pub placement: Digest,
    /// Higher goes first: −100 to 100.
    pub priority: i16,
    /// Where it stands.
    pub state: RunState,
    /// Compare-and-swap version.
    pub version: RunVersion,
    /// The number of its latest attempt.
    pub latest: AttemptNumber,
    /// The highest fence number it ever gave out.
    pub fence: Option<FenceNumber>,
    /// The wish that it stop.
    pub intent: Option<StopIntent>,
    /// Attempts that count against the `retry` policy.
    pub failures: u32,
    /// Failures of the machinery (never spawned, lost), counted apart.
    pub machinery_failures: u32,
    /// In `retry_wait`: when the next attempt is due.
    pub due: Option<LeaseInstant>,
    /// When it was submitted.
    pub created_at: UtcMillis,
    /// When its first process started.
    pub started_at: Option<UtcMillis>,
    /// How it ended.
    pub closing: Option<Closing>,
    /// The successes that it follows; none: somebody or something else asked for it.
    pub after: Option<After>,
}

impl Run {
    /// The same run one version later in `state`.
    ///
    /// The table holds in every build: a step that it does not allow is a defect of the decision, found by the
    /// exhaustive tests, and debug builds stop at it.
    #[must_use]
    pub fn moved(&self, state: RunState) -> Self {
        debug_assert!(self.state == state || self.state.may_become(state), "run {} to {state}", self.state);
        Self { state, version: self.version.next(), due: None, ..self.clone() }
    }

    /// The same run one version later, ended as `state`.
    #[must_use]
    pub fn closed(&self, state: RunState, outcome: Outcome, unobserved: bool, at: UtcMillis) -> Self {
        let mut run = self.moved(state);
        run.closing = Some(Closing { outcome, unobserved, at });
        run
    }
}

names! {
    /// What becomes of a run whose attempt is lost.
    pub enum OnLost as "on_lost policy" {
        /// The question stays open until evidence or a person closes it.
        Hold = "hold",
        /// The run fails.
        Fail = "fail",
        /// The next attempt starts: only for work that declares it safe.
        Retry = "retry",
    }
}

/// The part of a revision that decisions about its runs read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long a renewal makes the lease last.
    pub lease: Millis,
    /// From `starting` to `running`.
    pub start: Millis,
    /// How long the process may run.
    pub timeout: Option<Millis>,
    /// Attempts in all, the first included: 1 or more.
    pub max_attempts: u32,
    /// Whether a failed attempt is retried.
    pub retry_failed: bool,
    /// Whether an attempt that timed out is retried.
    pub retry_timed_out: bool,
    /// What becomes of a lost run.
    pub on_lost: OnLost,
    /// How many runs of its task may hold a place at once; none: any number. Says nothing of a run without a task.
    pub concurrency: Option<u32>,
    /// Whether a lost run keeps its places until its question is closed.
    pub mutex: bool,
    /// The first wait before a retry.
    pub backoff_initial: Millis,
    /// The longest wait before a retry.
    pub backoff_max: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_run_transitions_is_the_protocols() {
        let rows = [
            ("pending", "dispatching succeeded failed cancelled timed_out"),
            ("dispatching", "pending running retry_wait lost succeeded failed cancelled timed_out"),
            ("running", "retry_wait lost succeeded failed cancelled timed_out"),
            ("retry_wait", "pending succeeded failed cancelled timed_out"),
            ("lost", "retry_wait succeeded failed cancelled timed_out"),
            ("succeeded", ""),
            ("failed", ""),
            ("cancelled", ""),
            ("timed_out", ""),
        ];
        for (from, allowed) in rows {
            let from: RunState = from.parse().unwrap();
            for to in RunState::ALL {
                let listed = allowed.split(' ').any(|name| name == to.as_str());
                assert_eq!(from.may_become(*to), listed, "{from} → {to}");
            }
        }
        assert_eq!(rows.len(), RunState::ALL.len());
    }
}
