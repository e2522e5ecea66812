//! How an attempt ends: the worker's word, under its lease or after it, and what that makes of the run.
//!
//! Under a lease that nobody has expired, attempt, run, lease and events change together. For a terminal attempt every
//! `end` of the token's holder is answered and settles the worker's record; it closes the run only if the question is
//! open and the evidence says so. (Protocol, *`end`*; ADR-0012 §3.)

mod destroyed;
mod late;
mod plain;

pub use destroyed::destroyed;
use late::late;
pub use plain::{Plain, plain};

use crate::actor::Actor;
use crate::attempt::{
    Attempt, AttemptState, Callback, EvidenceKind, ExitStatus, Left, LogPin, Outcome, RejectReason, Resolution,
    RunningCall, StopReason, Usage, run_started, started,
};
use crate::change::Change;
use crate::crypto::Digest;
use crate::event::{EventKind, NewEvent};
use crate::lease::{Lease, LeaseFence, LeaseState, check_boot, check_holder};
use crate::refusal::{Refusal, RefusalCode};
use crate::retry::{self, Cause, Next};
use crate::run::{Policy, Run, RunState, StopIntentReason};
use crate::session::{Session, SessionFence, check_current};
use crate::time::{Now, UtcMillis};

/// What the worker says about the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The process ended by itself.
    Exited {
        /// How.
        status: ExitStatus,
        /// When, by the worker's wall clock.
        at: UtcMillis,
    },
    /// The launcher stopped it.
    Stopped {
        /// Why.
        reason: StopReason,
        /// How the process then ended.
        status: ExitStatus,
        /// When, by the worker's wall clock.
        at: UtcMillis,
    },
    /// The launcher is sure that nothing of the user's ran.
    Rejected {
        /// Which step refused.
        reason: RejectReason,
        /// In the launcher's words.
        detail: String,
    },
    /// Recovery is sure that nothing of the user's ran.
    NeverSpawned,
    /// Nobody saw the end.
    Lost {
        /// What is known.
        evidence: EvidenceKind,
    },
}

impl Ending {
    /// Whether it is inferred by a recovering agent, rather than said by the launcher's receipt.
    pub const fn is_inferred(&self) -> bool {
        matches!(self, Self::NeverSpawned | Self::Lost { .. })
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Stopped { .. } => "stopped",
            Self::Rejected { .. } => "rejected",
            Self::NeverSpawned => "never_spawned",
            Self::Lost { .. } => "lost",
        }
    }
}

/// An `end` as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndCall {
    /// The caller's session.
    pub session: SessionFence,
    /// The caller's lease.
    pub lease: LeaseFence,
    /// What it says.
    pub ending: Ending,
    /// Which launch says it: sequence, and the digest of the completion token that the call carried. `exited`, `stopped`
    /// and a receipt's `rejected` have one.
    pub callback: Option<Callback>,
    /// What `running` would have carried, when it was never acknowledged.
    pub running: Option<RunningCall>,
    /// The log's length and digest.
    pub log: Option<LogPin>,
    /// What it used up.
    pub usage: Option<Usage>,
    /// What the kernel would not let go when the launcher stopped it.
    pub left: Option<Left>,
    /// Digest of the body, to tell repeats apart.
    pub body: Digest,
}

/// The answer to an `end` that settles the worker's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The attempt ended by this call.
    Accepted(EndProjection),
    /// It had ended before; whether or not this call closed the run's open question.
    AlreadyTerminal(EndProjection),
}

/// Where attempt and run stand after an `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndProjection {
    /// The attempt.
    pub attempt: AttemptState,
    /// The run.
    pub run: RunState,
    /// What closed a lost attempt's question, if anything.
    pub resolution: Resolution,
}

/// The records an `end` is about. Unlike other calls, its session may have been replaced.
#[derive(Debug, Clone, Copy)]
pub struct EndFacts<'a> {
    /// The worker's current session.
    pub current: Option<&'a Session>,
    /// The run.
    pub run: &'a Run,
    /// The attempt.
    pub attempt: &'a Attempt,
    /// The run's latest attempt (the same one, or a later).
    pub latest: &'a Attempt,
    /// The attempt's latest lease.
    pub lease: Option<&'a Lease>,
}

/// Decides an `end`. A refusal may still carry evidence to keep, as the change beside it.
pub fn end(facts: EndFacts<'_>, call: &EndCall, policy: &Policy, now: Now) -> (Result<Ended, Refusal>, Change) {
    let lease = match check_holder(facts.lease, &call.lease, &call.session.worker) {
        Ok(lease) => lease,
        Err(refusal) => return (Err(refusal), Change::default()),
    };
    let session = check_current(facts.current, &call.session);
    if facts.attempt.state.is_terminal() {
        return late(facts, call, policy, session.ok(), now);
    }
    let session = match session {
        Ok(session) if session.is_expired(now.lease) => {
            let refusal =
                Refusal::new(RefusalCode::SessionExpired, "the session's lease has ended: register a new session");
            return (Err(refusal), Change::default());
        }
        Ok(session) => session,
        Err(refusal) => return (Err(refusal), Change::default()),
    };
    let projection = lease.projection(facts.attempt, now.lease);
    if lease.state != LeaseState::Active || !facts.attempt.state.is_started() {
        let refusal =
            Refusal::new(RefusalCode::LeaseFenced, "the attempt was not acknowledged as starting under this lease");
        return (Err(refusal.showing_lease(projection)), Change::default());
    }
    if let Err(why) = may_say(facts.attempt, session, call) {
        return (Err(why.showing_lease(projection)), kept(facts, call, session));
    }
    let (ended, change) = under_lease(facts.run, facts.attempt, lease, call, policy, now);
    (Ok(ended), change)
}

/// Whether this session, at this point, may say what it says about a live attempt.
fn may_say(attempt: &Attempt, session: &Session, call: &EndCall) -> Result<(), Refusal> {
    let fenced = |why: &str| Refusal::new(RefusalCode::LeaseFenced, why);
    if call.ending.is_inferred() {
        check_boot(attempt, session)?;
        if call.ending == Ending::NeverSpawned && attempt.state == AttemptState::Running {
            return Err(fenced("the attempt is known as running: that nothing was spawned cannot be a proof"));
        }
        return Ok(());
    }
    // The launcher's own word counts from any boot.
    if is_of_its_launch(attempt, call) {
        return Ok(());
    }
    Err(fenced("the completion token is not that of the attempt's launch"))
}

/// Whether a launcher's word is that of the launch that is known.
fn is_of_its_launch(attempt: &Attempt, call: &EndCall) -> bool {
    let known = attempt.callback.or_else(|| call.running.as_ref().map(|running| running.callback));
    match (&call.ending, known, call.callback) {
        (_, Some(known), Some(said)) => known == said,
        // Refused before a launcher held a token, and nothing is known to run.
        (Ending::Rejected { .. }, None, _) => true,
        _ => false,
    }
}

/// Evidence that could not be accepted as it came, kept once.
fn kept(facts: EndFacts<'_>, call: &EndCall, session: &Session) -> Change {
    let event = NewEvent::by_worker(EventKind::EvidenceKept, facts.run.id, Some(facts.attempt.id), session);
    Change { events: vec![described(event, call).once(call.body)], ..Change::default() }
}

fn described(event: NewEvent, call: &EndCall) -> NewEvent {
    let event = event.with("ending", call.ending.name());
    match &call.ending {
        Ending::Exited { status, .. } => event.with("status", status),
        Ending::Stopped { reason, status, .. } => event.with("reason", reason).with("status", status),
        Ending::Rejected { reason, detail } => event.with("reason", reason).with("detail", detail),
        Ending::NeverSpawned => event,
        Ending::Lost { evidence } => event.with("evidence", evidence),
    }
}

/// What an ending makes of an attempt: its state, its outcome, and the cause for which another might be due.
struct Meaning {
    state: AttemptState,
    outcome: Outcome,
    cause: Option<Cause>,
    at: UtcMillis,
}

fn meaning(ending: &Ending, run: &Run, attempt: &Attempt, now: Now) -> Meaning {
    let nothing_ran = |outcome: Outcome, cause| {
        // Where nothing ran: timeout before cancel before failure. Whether the scan that stores the timeout has come by yet,
        // or found a cancel there, makes no difference.
        let overdue = attempt.state.is_live() && attempt.deadline.is_some_and(|deadline| now.lease >= deadline);
        let (state, cause) = match run.intent.as_ref().map(|intent| intent.reason) {
            Some(StopIntentReason::Timeout) => (AttemptState::TimedOut, None),
            _ if overdue => (AttemptState::TimedOut, None),
            Some(StopIntentReason::Cancel) => (AttemptState::Cancelled, None),
            None => (AttemptState::Failed, cause),
        };
        Meaning { state, outcome, cause, at: now.utc }
    };
    match ending {
        Ending::Exited { status, at } if status.is_success() => {
            Meaning { state: AttemptState::Succeeded, outcome: Outcome::Exited(*status), cause: None, at: *at }
        }
        Ending::Exited { status, at } => Meaning {
            state: AttemptState::Failed,
            outcome: Outcome::Exited(*status),
            cause: Some(Cause::Failed),
            at: *at,
        },
        Ending::Stopped { reason, status, at } => {
            let (state, cause) = match reason {
                StopReason::Cancel | StopReason::Shutdown => (AttemptState::Cancelled, None),
                StopReason::Timeout => (AttemptState::TimedOut, Some(Cause::TimedOut)),
                StopReason::Lease => (AttemptState::Lost, Some(Cause::Lost)),
            };
            Meaning { state, outcome: Outcome::Stopped(*reason, *status), cause, at: *at }
        }
        // A program that cannot be executed stays so: never retried by the machinery.
        Ending::Rejected {
            reason: RejectReason::Tombstone | RejectReason::Deadline | RejectReason::Storage | RejectReason::Spawn,
            ..
        } => nothing_ran(rejected(ending), Some(Cause::NeverSpawned)),
        Ending::Rejected { .. } => nothing_ran(rejected(ending), None),
        Ending::NeverSpawned => nothing_ran(Outcome::NeverSpawned, Some(Cause::NeverSpawned)),
        Ending::Lost { evidence } => Meaning {
            state: AttemptState::Lost,
            outcome: Outcome::Lost(*evidence),
            cause: Some(Cause::Lost),
            at: now.utc,
        },
    }
}

fn rejected(ending: &Ending) -> Outcome {
    match ending {
        Ending::Rejected { reason, detail } => Outcome::Rejected { reason: *reason, detail: detail.clone() },
        _ => Outcome::NeverSpawned,
    }
}

/// What an ending adds to what is known of an end that nobody saw.
const fn evidence(ending: &Ending) -> Option<EvidenceKind> {
    match ending {
        Ending::Lost { evidence } => Some(*evidence),
        Ending::Stopped { reason: StopReason::Lease, .. } => Some(EvidenceKind::StoppedForLease),
        _ => None,
    }
}

/// The event of what the kernel would not let go, by the worker's word.
fn incomplete(left: &Left, attempt: &Attempt, session: &Session) -> NewEvent {
    naming(left, NewEvent::by_worker(EventKind::CancelIncomplete, attempt.run, Some(attempt.id), session))
}

/// The same of an attempt of which nothing is heard any more.
fn left_behind(left: &Left, attempt: &Attempt, actor: &Actor) -> NewEvent {
    naming(left, NewEvent::new(EventKind::CancelIncomplete, attempt.run, Some(attempt.id), actor.clone()))
}

fn naming(left: &Left, event: NewEvent) -> NewEvent {
    let pids: Vec<_> = left.pids.iter().map(ToString::to_string).collect();
    event.with("count", left.count).with("pids", pids.join(" "))
}

/// The end of a started attempt, by the word of the live session that holds its active lease.
fn under_lease(
    run: &Run,
    attempt: &Attempt,
    lease: &Lease,
    call: &EndCall,
    policy: &Policy,
    now: Now,
) -> (Ended, Change) {
    let (worker, session) = (call.session.worker.clone(), Some(call.session.session));
    let actor = Actor::Worker { worker, session, origin: None };
    let by_worker = |kind| NewEvent::new(kind, run.id, Some(attempt.id), actor.clone());
    let mut change = Change::default();
    let mut attempt = attempt.clone();
    let mut run = run.clone();
    let ran = matches!(call.ending, Ending::Exited { .. } | Ending::Stopped { .. });
    if let (AttemptState::Starting, true, Some(running)) = (attempt.state, ran, &call.running) {
        attempt = started(&attempt, running);
        run = run_started(&run, running);
        change.events.push(by_worker(EventKind::AttemptRunning).with("pid", running.handle.pid));
    }
    let meaning = meaning(&call.ending, &run, &attempt, now);
    let lost = meaning.state == AttemptState::Lost;
    attempt = attempt.ended(meaning.state, meaning.outcome.clone(), meaning.at);
    attempt.log = call.log;
    attempt.usage = call.usage;
    // The end's own word, below, replaces what the beats said.
    attempt.left = None;
    if let Some(evidence) = evidence(&call.ending) {
        attempt.learn(evidence);
    }
    let kind = if lost { EventKind::AttemptLost } else { EventKind::AttemptEnded };
    let event = by_worker(kind).with("state", attempt.state);
    change.events.push(described(event, call));
    if let Some(left) = &call.left {
        attempt.leaves(left);
        change.events.push(left_behind(left, &attempt, &actor));
    }
    if run.intent.is_some() && matches!(call.ending, Ending::Exited { .. }) {
        change.events.push(by_worker(EventKind::StopOvertaken));
    }
    run = conclude(&run, &mut attempt, &meaning, policy, now, &mut change);
    let projection = EndProjection { attempt: attempt.state, run: run.state, resolution: attempt.resolution };
    change.lease = Some(Lease { state: LeaseState::Ended, ..lease.clone() });
    change.attempt = Some(attempt);
    change.run = Some(run);
    (Ended::Accepted(projection), change)
}

/// What an attempt's end makes of its run.
fn conclude(
    run: &Run,
    attempt: &mut Attempt,
    meaning: &Meaning,
    policy: &Policy,
    now: Now,
    change: &mut Change,
) -> Run {
    let run_event = |kind, state: RunState| NewEvent::new(kind, run.id, None, Actor::System).with("state", state);
    if let Some(cause) = meaning.cause {
        if cause == Cause::Lost
            && let Some(intent) = &run.intent
        {
            attempt.resolution = Resolution::Policy;
            return ended(run, intent.reason.outcome(), meaning, now, change);
        }
        match retry::after(run, policy, cause) {
            Next::Retry(wait) => {
                if cause == Cause::Lost {
                    attempt.resolution = Resolution::Policy;
                }
                change.events.push(run_event(EventKind::RunRetryWait, RunState::RetryWait).with("wait", wait));
                let mut next = retry::counted(run.moved(RunState::RetryWait), cause);
                next.due = Some(now.lease.plus(wait));
                // What was to stop the attempt that ended does not stop the next one.
                next.intent = None;
                return next;
            }
            Next::Hold => {
                change.events.push(run_event(EventKind::RunLost, RunState::Lost));
                return retry::counted(run.moved(RunState::Lost), cause);
            }
            Next::End => {
                if cause == Cause::Lost {
                    attempt.resolution = Resolution::Policy;
                }
            }
        }
    }
    let state = match meaning.state {
        AttemptState::Succeeded => RunState::Succeeded,
        AttemptState::Cancelled => RunState::Cancelled,
        AttemptState::TimedOut => RunState::TimedOut,
        _ => RunState::Failed,
    };
    ended(run, state, meaning, now, change)
}

/// The run closed as `state`, with its event; whether somebody saw the end of its attempt shows in both.
fn ended(run: &Run, state: RunState, meaning: &Meaning, now: Now, change: &mut Change) -> Run {
    let unobserved = matches!(meaning.outcome, Outcome::Lost(_));
    let event = NewEvent::new(EventKind::RunEnded, run.id, None, Actor::System).with("state", state);
    change.events.push(if unobserved { event.with("end_not_observed", true) } else { event });
    run.closed(state, meaning.outcome.clone(), unobserved, now.utc)
}

/// Ends a started attempt of which nothing is heard any more, for what `actor` knows of it.
pub(crate) fn lose(
    run: &Run,
    attempt: &Attempt,
    policy: &Policy,
    evidence: EvidenceKind,
    actor: &Actor,
    now: Now,
) -> Change {
    let meaning =
        Meaning { state: AttemptState::Lost, outcome: Outcome::Lost(evidence), cause: Some(Cause::Lost), at: now.utc };
    let mut change = Change::default();
    let mut ended = attempt.ended(AttemptState::Lost, meaning.outcome.clone(), now.utc);
    ended.learn(evidence);
    change.events.push(
        NewEvent::new(EventKind::AttemptLost, run.id, Some(attempt.id), actor.clone()).with("evidence", evidence),
    );
    if let Some(left) = ended.left.clone() {
        // The last that was heard of it; nobody has said since that it went.
        ended.leaves(&left);
        change.events.push(left_behind(&left, &ended, actor));
    }
    let run = conclude(run, &mut ended, &meaning, policy, now, &mut change);
    change.attempt = Some(ended);
    change.run = Some(run);
    change
}
