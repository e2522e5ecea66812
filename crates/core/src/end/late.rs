//! An `end` that comes after its attempt ended: always answered, and sometimes news.
//!
//! It settles the worker's record. It closes the run only if the question is open and the evidence answers it; a repeat
//! changes nothing, a variant is one event. (Protocol, *`end`*.)

use super::{EndCall, EndFacts, EndProjection, Ended, Ending, Meaning, described, meaning, rejected};
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
    let authentic = attempt.callback.is_none_or(|known| call.callback.is_none_or(|said| said == known));
    let Some(session) = session.filter(|_| authentic && !repeats(attempt, call)) else {
        return (Ok(answer(attempt, run)), Change::default());
    };
    let event = NewEvent::by_worker(EventKind::EvidenceLate, run.id, Some(attempt.id), session);
    let mut change = Change { events: vec![described(event, call).once(call.body)], ..Change::default() };
    let mut next = attempt.clone();
    // The launcher's own word on its log replaces what was found of it.
    if attempt.state == AttemptState::Lost && next.log.is_none_or(|known| !known.finished) {
        next.log = call.log.or(next.log);
    }
    if nothing_lives(&call.ending, attempt, session) {
        next.may_live = false;
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

/// Whether late evidence proves that nothing of the attempt lives any more.
fn nothing_lives(ending: &Ending, attempt: &Attempt, session: &Session) -> bool {
    match ending {
        Ending::Exited { .. } | Ending::Stopped { .. } | Ending::Rejected { .. } => true,
        Ending::Lost { evidence } => match evidence {
            EvidenceKind::MachineRebooted => attempt.boot.as_ref().is_some_and(|boot| *boot != session.boot),
            EvidenceKind::LauncherKilledAllGone | EvidenceKind::StoppedForLease => true,
            _ => false,
        },
        Ending::NeverSpawned => false,
    }
}

/// The run that late evidence closes, if the question is open and the evidence answers it.
///
/// Open is a run that is lost, or that waits for an attempt that nobody holds. How a process ended closes it whichever
/// attempt says so; that nothing ran is news of the latest attempt only, and by inference only within its boot.
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
    let meaning = meaning(&call.ending, run, now);
    let state = match &call.ending {
        Ending::Exited { status, .. } if status.is_success() => RunState::Succeeded,
        Ending::Exited { .. } => RunState::Failed,
        Ending::Stopped { reason: StopReason::Cancel | StopReason::Shutdown, .. } => RunState::Cancelled,
        Ending::Stopped { reason: StopReason::Timeout, .. } => RunState::TimedOut,
        Ending::NeverSpawned | Ending::Rejected { .. } => {
            let known = call.callback.is_some() || check_boot(attempt, session).is_ok();
            let news = is_latest && run.state == RunState::Lost && known;
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
