//! A person's wish that a run stop: stored first, a directive second, and the truth about the end last.
//!
//! A cancel of a pending attempt ends it at once; of a claimed one, it never starts; of a started one, the intent is
//! stored and repeated to the worker until the end is known. (Protocol, *Cancellation and deadlines*.)

use crate::actor::Actor;
use crate::attempt::{Attempt, AttemptState, stop_unstarted};
use crate::change::Change;
use crate::event::{EventKind, NewEvent};
use crate::id::AttemptId;
use crate::run::{Run, RunState, StopIntent, StopIntentReason};
use crate::time::Now;

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancel {
    /// Nothing had started: the run is cancelled.
    Ended,
    /// The intent is stored; the worker is told.
    Requested,
    /// The intent had been stored before.
    AlreadyRequested,
    /// The run was cancelled before.
    AlreadyCancelled,
}

/// Why a run is cancelled that the next instant of its task's schedule takes the place of.
pub const OVERLAP: &str = "the next run of its schedule takes its place (overlap: cancel-other)";

/// Why a cancel is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CancelRefused {
    /// The run ended otherwise.
    #[error("the run has already ended as {0}")]
    AlreadyEnded(RunState),
    /// Contact is lost: there is nothing to cancel, only a question to close.
    #[error("the run is lost: there is nothing to cancel, only a question to close")]
    Lost,
}

/// Decides a cancel by `actor`. `attempt` is the run's latest.
pub fn cancel(
    run: &Run,
    attempt: &Attempt,
    actor: &Actor,
    why: Option<&str>,
    now: Now,
) -> Result<(Cancel, Change), CancelRefused> {
    match run.state {
        RunState::Cancelled => return Ok((Cancel::AlreadyCancelled, Change::default())),
        RunState::Lost => return Err(CancelRefused::Lost),
        state if state.is_terminal() => return Err(CancelRefused::AlreadyEnded(state)),
        _ => {}
    }
    if run.intent.as_ref().is_some_and(|intent| intent.reason == StopIntentReason::Cancel) {
        return Ok((Cancel::AlreadyRequested, Change::default()));
    }
    // A timeout on its way ends the attempt, and its policy may want another: a person's wish ends the run.
    let intent = StopIntent {
        reason: StopIntentReason::Cancel,
        by: actor.to_string(),
        why: why.map(str::to_owned),
        at: now.utc,
    };
    let mut requested = NewEvent::new(EventKind::CancelRequested, run.id, None, actor.clone());
    if let Some(why) = why {
        requested = requested.with("why", why);
    }
    let run = Run { intent: Some(intent), ..run.clone() };
    if attempt.state == AttemptState::Pending || run.state == RunState::RetryWait {
        let mut change = Change { events: vec![requested], ..Change::default() };
        let ended = if attempt.state == AttemptState::Pending {
            let (attempt, run) = stop_unstarted(&run, attempt, StopIntentReason::Cancel, now);
            change.attempt = Some(attempt);
            run
        } else {
            let outcome = crate::attempt::Outcome::NotStarted(StopIntentReason::Cancel);
            run.closed(RunState::Cancelled, outcome, false, now.utc)
        };
        change.events.push(NewEvent::new(EventKind::RunEnded, run.id, None, actor.clone()).with("state", ended.state));
        change.run = Some(ended);
        return Ok((Cancel::Ended, change));
    }
    let change = Change { run: Some(run.moved(run.state)), events: vec![requested], ..Change::default() };
    Ok((Cancel::Requested, change))
}

/// A stop that a worker is told, in every answer until the end is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StopDirective {
    /// Which attempt.
    pub attempt: AttemptId,
    /// Why.
    pub reason: StopIntentReason,
}

/// What the holder of `attempt`'s lease is told about it.
pub fn directive(run: &Run, attempt: &Attempt) -> Option<StopDirective> {
    let intent = run.intent.as_ref()?;
    attempt.state.is_live().then_some(StopDirective { attempt: attempt.id, reason: intent.reason })
}

/// The control plane's backstop: the attempt's time is up, so its run is to stop. The launcher keeps the limit itself.
pub fn overdue(run: &Run, attempt: &Attempt, now: Now) -> Option<Change> {
    let due = attempt.deadline.is_some_and(|deadline| now.lease >= deadline);
    if !attempt.state.is_started() || !due || run.intent.is_some() {
        return None;
    }
    let intent =
        StopIntent { reason: StopIntentReason::Timeout, by: Actor::System.to_string(), why: None, at: now.utc };
    let event = NewEvent::new(EventKind::TimeoutReached, run.id, Some(attempt.id), Actor::System);
    let run = Run { intent: Some(intent), ..run.clone() };
    Some(Change { run: Some(run.moved(run.state)), events: vec![event], ..Change::default() })
}
