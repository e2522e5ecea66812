//! An `end` that comes after its attempt ended: always answered, and sometimes news.
//!
//! It settles the worker's record. It closes the run only if the question is open and the evidence answers it; a repeat
//! changes nothing, a variant is one event. (Protocol, *`end`*.)

use super::{
    EndCall, EndFacts, EndProjection, Ended, Ending, Meaning, described, evidence, incomplete, is_of_its_launch,
    meaning, rejected,
};
use crate::actor::Actor;
use crate::attempt::{Attempt, AttemptState, EvidenceKind, Outcome, Resolution, StopReason};
use crate::change::Change;
use crate::event::{EventKind, NewEvent};
use crate::lease::check_boot;
use crate::refusal::Refusal;
use crate::retry::{self, Cause, Next};
use crate::run::{Policy, Run, RunState};
use crate::session::Session;
use crate::time::Now;

/// An `end` for an attempt that is terminal already. `session` is the caller's, if it is the worker's current one.
pub(super) fn late(
    facts: EndFacts<'_>,
    call: &EndCall,
    policy: &Policy,
    session: Option<&Session>,
    now: Now,
) -> (Result<Ended, Refusal>, Change) {
    let EndFacts { run, attempt, .. } = facts;
    let answer = |attempt: &Attempt, run: &Run| {
        Ended::AlreadyTerminal(EndProjection { attempt: attempt.state, run: run.state, resolution: attempt.resolution })
    };
    let authentic = call.ending.is_inferred() || is_of_its_launch(attempt, call);
    let (repeats, completed) = (repeats(attempt, call), completes(attempt, call));
    let Some(session) = session.filter(|_| authentic && (completed || !repeats)) else {
        return (Ok(answer(attempt, run)), Change::default());
    };
    let event = |kind| NewEvent::by_worker(kind, run.id, Some(attempt.id), session);
    let mut change = Change::default();
    let mut next = attempt.clone();
    if completed {
        (next.left, next.may_live) = (None, false);
        change.events.push(event(EventKind::CancelCompleted));
    }
    if repeats {
        let answered = answer(&next, run);
        change.attempt = Some(with_version(next));
        return (Ok(answered), change);
    }
    change.events.push(described(event(EventKind::EvidenceLate), call).once(call.body));
    if attempt.state == AttemptState::Lost {
        // The launcher's own word on its log replaces what was found of it.
        if next.log.is_none_or(|known| !known.finished) {
            next.log = call.log.or(next.log);
        }
        learn(&mut next, call, session, &mut change);
    }
    if attempt.state == AttemptState::Lost
        && attempt.resolution != Resolution::Receipt
        && let Some(closed) = closes(facts, call, session, policy, now, &mut change)
    {
        next.resolution = Resolution::Receipt;
        next.usage = next.usage.or(call.usage);
        let answered = answer(&next, &closed);
        change.attempt = Some(with_version(next));
        change.run = Some(closed);
        return (Ok(answered), change);
    }
    let answered = answer(&next, run);
    if next != *attempt {
        change.attempt = Some(with_version(next));
    }
    (Ok(answered), change)
}

fn with_version(attempt: Attempt) -> Attempt {
    Attempt { version: attempt.version.next(), ..attempt }
}

/// Whether the call only repeats what ended the attempt.
fn repeats(attempt: &Attempt, call: &EndCall) -> bool {
    let said = match &call.ending {
        Ending::Exited { status, .. } => Outcome::Exited(*status),
        Ending::Stopped { reason, status, .. } => Outcome::Stopped(*reason, *status),
        Ending::Rejected { .. } => rejected(&call.ending),
        Ending::NeverSpawned => Outcome::NeverSpawned,
        Ending::Lost { evidence } => Outcome::Lost(*evidence),
    };
    attempt.outcome.as_ref() == Some(&said)
}

/// Whether the launch says that what the kernel would not let go is gone after all.
fn completes(attempt: &Attempt, call: &EndCall) -> bool {
    attempt.left.is_some()
        && call.left.is_none()
        && matches!(call.ending, Ending::Exited { .. } | Ending::Stopped { .. })
}

/// What a lost attempt's late evidence makes known of it, whether or not it closes the run.
fn learn(attempt: &mut Attempt, call: &EndCall, session: &Session, change: &mut Change) {
    // A launch says once what it could not stop: a late duplicate must not bring back what has gone since.
    let said = attempt.resolution == Resolution::Receipt || attempt.evidence.contains(&EvidenceKind::StoppedForLease);
    let launchers = matches!(call.ending, Ending::Exited { .. } | Ending::Stopped { .. } | Ending::Rejected { .. });
    if launchers && attempt.left.is_none() {
        attempt.may_live = false;
    }
    // That the machine started anew is news only from another boot than the attempt's own.
    let same_boot = attempt.boot.as_ref().is_some_and(|boot| *boot == session.boot);
    match evidence(&call.ending) {
        Some(EvidenceKind::MachineRebooted) if same_boot => {}
        Some(kind) => attempt.learn(kind),
        None => {}
    }
    // Known already where the beats had told it.
    if let Some(left) = call.left.as_ref().filter(|left| !said && attempt.left.as_ref() != Some(left)) {
        change.events.push(incomplete(left, attempt, session));
        attempt.leaves(left);
    }
}

/// The run that late evidence closes, if the question is open and the evidence answers it.
///
/// Open is a run that is lost, or that waits for an attempt that nobody holds. How a process ended closes it whichever
/// attempt says so; that nothing ran is news of the latest attempt only.
fn closes(
    facts: EndFacts<'_>,
    call: &EndCall,
    session: &Session,
    policy: &Policy,
    now: Now,
    change: &mut Change,
) -> Option<Run> {
    let EndFacts { run, attempt, latest, .. } = facts;
    let is_latest = latest.id == attempt.id;
    let open = match run.state {
        RunState::Lost | RunState::RetryWait => true,
        RunState::Pending => !is_latest && latest.state == AttemptState::Pending,
        _ => false,
    };
    if !open {
        return None;
    }
    let meaning = meaning(&call.ending, run, attempt, now);
    let state = match &call.ending {
        Ending::Exited { status, .. } if status.is_success() => RunState::Succeeded,
        Ending::Exited { .. } => RunState::Failed,
        Ending::Stopped { reason: StopReason::Cancel | StopReason::Shutdown, .. } => RunState::Cancelled,
        Ending::Stopped { reason: StopReason::Timeout, .. } => RunState::TimedOut,
        Ending::NeverSpawned | Ending::Rejected { .. } => {
            // By inference only within its boot, and never against its own word that it ran.
            let inferred = attempt.handle.is_none() && check_boot(attempt, session).is_ok();
            let news = is_latest && run.state == RunState::Lost && (call.callback.is_some() || inferred);
            return news.then(|| reconclude(run, &meaning, policy, now, change));
        }
        _ => return None,
    };
    if latest.state == AttemptState::Pending {
        change.other_attempt = Some(latest.ended(AttemptState::Cancelled, Outcome::Superseded, now.utc));
    }
    change.events.push(
        NewEvent::new(EventKind::RunEnded, run.id, None, crate::actor::Actor::System)
            .with("state", state)
            .with("resolution", Resolution::Receipt),
    );
    Some(run.closed(state, meaning.outcome, false, meaning.at))
}

/// A lost run whose latest attempt provably never ran: tried again, or ended. A program that cannot be executed ends it.
fn reconclude(run: &Run, meaning: &Meaning, policy: &Policy, now: Now, change: &mut Change) -> Run {
    let event = |kind, state: RunState| NewEvent::new(kind, run.id, None, Actor::System).with("state", state);
    // The loss that was counted turns out to be a start that never was: one failure, not two.
    let run = &Run { machinery_failures: run.machinery_failures.saturating_sub(1), ..run.clone() };
    match meaning.cause.map_or(Next::End, |cause| retry::after(run, policy, cause)) {
        Next::Retry(wait) => {
            change.events.push(event(EventKind::RunRetryWait, RunState::RetryWait).with("wait", wait));
            let mut next = retry::counted(run.moved(RunState::RetryWait), Cause::NeverSpawned);
            next.due = Some(now.lease.plus(wait));
            next
        }
        Next::Hold | Next::End => {
            change.events.push(event(EventKind::RunEnded, RunState::Failed));
            run.closed(RunState::Failed, meaning.outcome.clone(), false, now.utc)
        }
    }
}
