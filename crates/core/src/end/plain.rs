//! The end of a job that went as planned, decided before anything is loaded: what most ends write does not depend on what
//! stands in their records, as long as nothing there speaks against them.
//!
//! No rule of its own: [`plain`] asks the rule for an end under its lease with records that are as [`Plain`] assumes. A
//! store that can compare these assumptions and write the change in one step does so, and asks [`super::end`] with the real
//! records wherever one of them does not hold. (Control design, *Placement*: SQL that repeats a rule.)

use super::{EndCall, Ended, Ending, under_lease};
use crate::attempt::{Attempt, AttemptState};
use crate::change::Change;
use crate::counter::{AttemptNumber, FenceNumber, LeaseVersion, RunVersion};
use crate::device::Devices;
use crate::id::{ProjectName, RunId};
use crate::lease::{Lease, LeaseState};
use crate::run::{OnLost, Policy, Run, RunState};
use crate::time::{LeaseInstant, Millis, Now, UtcMillis};

/// What an end changes, assumed that
///
/// - somebody may speak for the worker, and its session is the caller's: not offline, its lease running;
/// - the attempt's latest lease is the one that the call names, in the worker's hands, and active;
/// - the attempt is running, by the launch that the call names, and it is the latest of its run;
/// - the run is running, and nobody wished it to stop;
/// - unless [`Self::whatever_the_policy`]: the run has one attempt, whatever becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The answer.
    pub ended: Ended,
    /// What the records become, where it is not what they are: states, outcomes, what the call says of log and usage, and
    /// nothing left of what the beats said. Ids, versions and what never changes are not theirs. The run's closing and the
    /// events are of the instant at which it is written.
    pub change: Change,
    /// Whether the policy of the revision has no say in it.
    pub whatever_the_policy: bool,
}

/// What this end changes if nothing speaks against it; none where that depends on more than [`Plain`] assumes.
pub fn plain(call: &EndCall) -> Option<Plain> {
    if !matches!(call.ending, Ending::Exited { .. }) || call.left.is_some() {
        return None;
    }
    let once = under_plain_lease(call, 1)?;
    let again = under_plain_lease(call, u32::MAX)?;
    let whatever_the_policy = once == again;
    let (ended, change) = once;
    Some(Plain { ended, change, whatever_the_policy })
}

/// The rule's word on records that are as they are assumed to be, under a policy of so many attempts.
fn under_plain_lease(call: &EndCall, max_attempts: u32) -> Option<(Ended, Change)> {
    // What the rule does not read, and nobody writes, has some value too.
    let run = RunId::from_bytes(*call.lease.attempt.as_bytes()).ok()?;
    let now = Now { lease: LeaseInstant::new(0), utc: UtcMillis::new(0) };
    let attempt = Attempt {
        state: AttemptState::Running,
        lease_generation: Some(call.lease.generation),
        worker: Some(call.session.worker.clone()),
        callback: Some(call.callback?),
        ..Attempt::pending(call.lease.attempt, run, AttemptNumber::FIRST)
    };
    let lease = Lease {
        attempt: attempt.id,
        run,
        offer: call.lease.offer,
        token: call.lease.token,
        generation: call.lease.generation,
        version: LeaseVersion::FIRST,
        worker: call.session.worker.clone(),
        session: call.session.session,
        session_generation: call.session.generation,
        fence: FenceNumber::FIRST,
        length: Millis::ZERO,
        expires: now.lease,
        state: LeaseState::Active,
        score: 0,
        devices: Devices::default(),
        claimed_at: now.utc,
    };
    let run = Run {
        id: run,
        project: ProjectName::default(),
        task: None,
        scheduled: None,
        webhook: None,
        revision: call.body,
        placement: call.body,
        priority: 0,
        state: RunState::Running,
        version: RunVersion::FIRST,
        latest: attempt.number,
        fence: Some(lease.fence),
        intent: None,
        failures: 0,
        machinery_failures: 0,
        due: None,
        created_at: now.utc,
        started_at: Some(now.utc),
        closing: None,
        after: None,
    };
    let policy = Policy {
        lease: Millis::ZERO,
        start: Millis::ZERO,
        timeout: None,
        max_attempts,
        retry_failed: true,
        retry_timed_out: true,
        on_lost: OnLost::Hold,
        concurrency: None,
        mutex: false,
        backoff_initial: Millis::ZERO,
        backoff_max: Millis::ZERO,
    };
    Some(under_lease(&run, &attempt, &lease, call, &policy, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Callback, ExitStatus, Left, StopReason};
    use crate::counter::{CallbackSequence, LeaseGeneration, SessionGeneration};
    use crate::crypto::Digest;
    use crate::lease::LeaseFence;
    use crate::session::SessionFence;

    fn call(ending: Ending) -> EndCall {
        let digest = Digest::from_bytes([7; 32]);
        let id = "01900000-0000-7000-8000-000000000001";
        EndCall {
            session: SessionFence {
                worker: "nas".parse().unwrap(),
                session: id.parse().unwrap(),
                generation: SessionGeneration::FIRST,
            },
            lease: LeaseFence {
                attempt: id.parse().unwrap(),
                offer: id.parse().unwrap(),
                generation: LeaseGeneration::FIRST,
                token: digest,
            },
            ending,
            callback: Some(Callback { sequence: CallbackSequence::FIRST, token: digest }),
            running: None,
            log: None,
            usage: None,
            left: None,
            body: digest,
        }
    }

    fn exited(code: u8) -> Ending {
        Ending::Exited { status: ExitStatus::Code(code), at: UtcMillis::new(9) }
    }

    #[test]
    fn only_what_ends_well_is_nobodys_decision() {
        let ended = plain(&call(exited(0))).unwrap();
        assert!(ended.whatever_the_policy);
        assert_eq!(ended.change.run.unwrap().state, RunState::Succeeded);
        assert_eq!(ended.change.attempt.unwrap().ended_at, Some(UtcMillis::new(9)));
        assert_eq!(ended.change.lease.unwrap().state, LeaseState::Ended);
        let failed = plain(&call(exited(3))).unwrap();
        assert!(!failed.whatever_the_policy);
        assert_eq!(failed.change.run.unwrap().state, RunState::Failed);
    }

    #[test]
    fn what_depends_on_more_is_not_plain() {
        let status = ExitStatus::Code(0);
        let stopped = Ending::Stopped { reason: StopReason::Cancel, status, at: UtcMillis::new(9) };
        for ending in [stopped, Ending::NeverSpawned] {
            assert_eq!(plain(&call(ending)), None);
        }
        assert_eq!(plain(&EndCall { callback: None, ..call(exited(0)) }), None);
        let left = Some(Left { count: 1, pids: vec![7] });
        assert_eq!(plain(&EndCall { left, ..call(exited(0)) }), None);
    }
}
