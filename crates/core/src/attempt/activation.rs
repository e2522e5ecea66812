//! May this attempt start, and does it run: the acknowledgements of a worker that holds its lease.
//!
//! *Claimed*, *starting* and *running* are three facts, none inferred from another. A repeat by the same holder gets the
//! same answer; a stored wish to stop ends an attempt that has not started. (Protocol, *Attempts*; ADR-0012 §3.)

use super::{Attempt, AttemptState, Callback, Handle, Outcome};
use crate::change::Change;
use crate::event::{EventKind, NewEvent};
use crate::lease::{
    Lease, LeaseFence, LeaseProjection, LeaseState, check_active, check_boot, check_holder, rebound_event,
};
use crate::refusal::{Refusal, RefusalCode};
use crate::run::{Policy, Run, RunState, StopIntentReason};
use crate::session::Session;
use crate::time::{Millis, Now, UtcMillis};

/// The records that a fenced call is about, as a store loaded them: the worker's current and live session, and the
/// latest lease of the named attempt, where there is one.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The live session of the caller.
    pub session: &'a Session,
    /// The run.
    pub run: &'a Run,
    /// The attempt.
    pub attempt: &'a Attempt,
    /// Its latest lease.
    pub lease: Option<&'a Lease>,
}

/// What `starting` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Starting {
    /// The attempt is starting by this call.
    Accepted(StartingAnswer),
    /// It was starting already, by the same holder.
    AlreadyStarting(StartingAnswer),
    /// It runs already, by the same holder.
    AlreadyRunning(StartingAnswer),
    /// It was to stop before it started: attempt and lease have ended, nothing may run.
    Stopped(LeaseProjection),
}

/// The lease and the time limit of an attempt that may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartingAnswer {
    /// The lease now.
    pub lease: LeaseProjection,
    /// How long the process may still run, where the revision limits it.
    pub timeout: Option<Millis>,
}

/// May this attempt start now: `claimed → starting`, or the end of a run that was to stop before.
pub fn starting(held: Held<'_>, fence: &LeaseFence, policy: &Policy, now: Now) -> Result<(Starting, Change), Refusal> {
    let Held { session, run, attempt, lease } = held;
    let lease = check_holder(lease, fence, &session.worker)?;
    if lease.state == LeaseState::Ended && matches!(attempt.outcome, Some(Outcome::NotStarted(_))) {
        // Its own lost answer.
        return Ok((Starting::Stopped(lease.projection(attempt, now.lease)), Change::default()));
    }
    check_active(lease, attempt, now.lease)?;
    check_boot(attempt, session)?;
    let (mut next_lease, rebound) = lease.rebound_to(session);
    let mut change = Change::default();
    if rebound {
        change.events.push(rebound_event(&next_lease, session));
    }
    let answer = |lease: &Lease, attempt: &Attempt| StartingAnswer {
        lease: lease.projection(attempt, now.lease),
        timeout: attempt.deadline.map(|deadline| deadline.since(now.lease)),
    };
    match attempt.state {
        AttemptState::Starting | AttemptState::Running => {
            let answer = answer(&next_lease, attempt);
            if rebound {
                change.lease = Some(next_lease);
            }
            let verdict = if attempt.state == AttemptState::Running {
                Starting::AlreadyRunning(answer)
            } else {
                Starting::AlreadyStarting(answer)
            };
            Ok((verdict, change))
        }
        AttemptState::Claimed => {
            if let Some(intent) = &run.intent {
                let (ended, run) = stop_unstarted(run, attempt, intent.reason, now);
                next_lease.state = LeaseState::Ended;
                let projection = next_lease.projection(&ended, now.lease);
                change.events.push(
                    NewEvent::by_worker(EventKind::AttemptEnded, run.id, Some(ended.id), session)
                        .with("state", ended.state),
                );
                change
                    .events
                    .push(NewEvent::by_worker(EventKind::RunEnded, run.id, None, session).with("state", run.state));
                change.run = Some(run);
                change.attempt = Some(ended);
                change.lease = Some(next_lease);
                return Ok((Starting::Stopped(projection), change));
            }
            let mut next = attempt.moved(AttemptState::Starting);
            next.boot = Some(session.boot.clone());
            next.starting_at = Some(now.utc);
            next.start_by = Some(now.lease.plus(policy.start));
            next.deadline = policy.timeout.map(|timeout| now.lease.plus(timeout));
            next_lease.expires = now.lease.plus(next_lease.length);
            if !rebound {
                next_lease.version = next_lease.version.next();
            }
            let answer = answer(&next_lease, &next);
            change.events.push(NewEvent::by_worker(EventKind::AttemptStarting, run.id, Some(next.id), session));
            change.attempt = Some(next);
            change.lease = Some(next_lease);
            Ok((Starting::Accepted(answer), change))
        }
        _ => Err(Refusal::new(RefusalCode::LeaseFenced, "the attempt is not claimed by this lease")
            .showing_lease(lease.projection(attempt, now.lease))),
    }
}

/// An attempt that was to stop before anything of it ran, and its run.
pub fn stop_unstarted(run: &Run, attempt: &Attempt, reason: StopIntentReason, now: Now) -> (Attempt, Run) {
    let state = match reason {
        StopIntentReason::Cancel => AttemptState::Cancelled,
        StopIntentReason::Timeout => AttemptState::TimedOut,
    };
    let outcome = Outcome::NotStarted(reason);
    (attempt.ended(state, outcome.clone(), now.utc), run.closed(reason.outcome(), outcome, false, now.utc))
}

/// What the worker says when its process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCall {
    /// What the launcher started.
    pub handle: Handle,
    /// Which launch may end it.
    pub callback: Callback,
    /// When it started by the worker's wall clock, for people.
    pub started_at: UtcMillis,
}

/// `starting → running`, attempt and run together. A replay must match in every field.
pub fn running(
    held: Held<'_>,
    fence: &LeaseFence,
    call: &RunningCall,
    now: Now,
) -> Result<(LeaseProjection, Change), Refusal> {
    let Held { session, run, attempt, lease } = held;
    let lease = check_holder(lease, fence, &session.worker)?;
    check_active(lease, attempt, now.lease)?;
    check_boot(attempt, session)?;
    let (next_lease, rebound) = lease.rebound_to(session);
    let mut change = Change::default();
    if rebound {
        change.events.push(rebound_event(&next_lease, session));
    }
    match attempt.state {
        AttemptState::Running => {
            if attempt.handle.as_ref() != Some(&call.handle) || attempt.callback != Some(call.callback) {
                return Err(Refusal::new(
                    RefusalCode::ConflictReplay,
                    "this attempt was reported running with another handle or callback",
                ));
            }
            let projection = next_lease.projection(attempt, now.lease);
            if rebound {
                change.lease = Some(next_lease);
            }
            Ok((projection, change))
        }
        AttemptState::Starting => {
            let next = started(attempt, call);
            let projection = next_lease.projection(&next, now.lease);
            change.events.push(
                NewEvent::by_worker(EventKind::AttemptRunning, run.id, Some(next.id), session)
                    .with("pid", call.handle.pid),
            );
            change.run = Some(run_started(run, call));
            change.attempt = Some(next);
            if rebound {
                change.lease = Some(next_lease);
            }
            Ok((projection, change))
        }
        _ => Err(Refusal::new(RefusalCode::LeaseFenced, "the attempt has not been acknowledged as starting")
            .showing_lease(lease.projection(attempt, now.lease))),
    }
}

/// The attempt once its process is known to run.
pub(crate) fn started(attempt: &Attempt, call: &RunningCall) -> Attempt {
    let mut next = attempt.moved(AttemptState::Running);
    next.start_by = None;
    next.running_at = Some(call.started_at);
    next.handle = Some(call.handle.clone());
    next.callback = Some(call.callback);
    next
}

/// The run once a process of it is known to run.
pub(crate) fn run_started(run: &Run, call: &RunningCall) -> Run {
    let mut next = run.moved(RunState::Running);
    next.started_at = next.started_at.or(Some(call.started_at));
    next
}
