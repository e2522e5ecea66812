//! When an attempt ends badly: does the run end too, wait for another try, or stay an open question.
//!
//! A retry happens only by the policy pinned in the revision. Failures of the machinery (never spawned, lost) have
//! a bounded counter of their own, so that a poison task cannot take down worker after worker. (Control design,
//! *Recovery*.)

use crate::crypto::{Digest, Domain};
use crate::limits;
use crate::run::{OnLost, Policy, Run, StopIntentReason};
use crate::time::Millis;

/// Why another attempt might be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The process failed by its own word.
    Failed,
    /// The process ran into its time limit.
    TimedOut,
    /// Provably nothing ran: always safe to try again.
    NeverSpawned,
    /// Contact was lost.
    Lost,
}

/// What becomes of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Attempt N+1 is due after this wait.
    Retry(Millis),
    /// The question stays open.
    Hold,
    /// The run ends.
    End,
}

/// Decides what follows an attempt that ended for `cause`. A cancelled run is never retried. The control plane's own record
/// that the time is up (the backstop) is no more than the launcher's: how the process really ended is what the policy is
/// asked about. Of an end that nobody saw, either wish decides.
pub fn after(run: &Run, policy: &Policy, cause: Cause) -> Next {
    let machinery_left = run.machinery_failures < limits::MACHINERY_RETRIES;
    let attempts_left = run.failures.saturating_add(1) < policy.max_attempts;
    let stopping = run.intent.is_some();
    let cancelled = run.intent.as_ref().is_some_and(|intent| intent.reason == StopIntentReason::Cancel);
    let wait = Next::Retry(backoff(run, policy));
    match cause {
        Cause::Failed if policy.retry_failed && attempts_left && !cancelled => wait,
        Cause::TimedOut if policy.retry_timed_out && attempts_left && !cancelled => wait,
        Cause::NeverSpawned if machinery_left && !stopping => wait,
        Cause::Lost => match policy.on_lost {
            OnLost::Hold => Next::Hold,
            OnLost::Retry if machinery_left && !stopping => wait,
            OnLost::Fail | OnLost::Retry => Next::End,
        },
        Cause::Failed | Cause::TimedOut | Cause::NeverSpawned => Next::End,
    }
}

/// The run with `cause` counted.
#[must_use]
pub fn counted(mut run: Run, cause: Cause) -> Run {
    let counter = match cause {
        Cause::Failed | Cause::TimedOut => &mut run.failures,
        Cause::NeverSpawned | Cause::Lost => &mut run.machinery_failures,
    };
    *counter = counter.saturating_add(1);
    run
}

/// Exponential backoff with full jitter. The jitter is drawn from the run's id and attempt, so that every replica and every
/// restart finds the same wait, and a thousand runs of one broken moment do not come back together.
fn backoff(run: &Run, policy: &Policy) -> Millis {
    let tries = run.failures.saturating_add(run.machinery_failures).min(30);
    let ceiling = policy.backoff_initial.times(1 << tries).min(policy.backoff_max);
    let mut seed = run.id.as_bytes().to_vec();
    seed.extend_from_slice(&run.latest.get().to_be_bytes());
    let digest = Digest::of(Domain::Body, &seed);
    let mut first = [0; 8];
    first.copy_from_slice(&digest.as_bytes()[..8]);
    Millis::new(u64::from_be_bytes(first) % ceiling.get().saturating_add(1))
}
