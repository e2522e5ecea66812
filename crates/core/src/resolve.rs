//! A person's word on a lost run: wait, try again, or say how it ended.
//!
//! A question is closed once, by whichever comes first: evidence, the pinned policy, or a person. The store's
//! compare-and-swap decides who that was; a word that comes second is refused and says who was first. A word is always
//! its author's, with their reason, in the run's story and in the audit. (Protocol, *What the states mean*.)

use crate::actor::Actor;
use crate::attempt::{Attempt, Outcome, Resolution};
use crate::change::Change;
use crate::counter::AttemptNumber;
use crate::event::{EventKind, NewEvent};
use crate::run::{Run, RunState};
use crate::time::{Now, UtcMillis};

names! {
    /// What a person may say about a lost run.
    pub enum Verb as "resolve verb" {
        /// Nothing changes; that somebody looked and decided to wait is noted.
        Wait = "wait",
        /// Attempt N+1 starts, whatever attempt N may have done.
        Retry = "retry",
        /// The run failed.
        MarkFailed = "mark-failed",
        /// The run's work is done.
        MarkSucceeded = "mark-succeeded",
    }
}

/// The word that closed a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What was said: never `wait`, which closes nothing.
    pub verb: Verb,
    /// Who said it, as [`Actor`] prints.
    pub by: String,
    /// Their reason.
    pub why: Option<String>,
    /// When, for people.
    pub at: UtcMillis,
}

/// What became of a person's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// It is noted; the question stays open.
    Noted,
    /// It closed the question.
    Closed,
    /// The same word had closed it before.
    AlreadyClosed,
}

/// Why a person's word changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveRefused {
    /// The run has ended; nobody can change how.
    #[error("the run has already ended as {0}: there is no question to close")]
    AlreadyEnded(RunState),
    /// The run goes on.
    #[error("the run is {0}, not lost: there is no question to close")]
    NotLost(RunState),
    /// The word is about another attempt than the one in question.
    #[error("attempt {named} is not the one in question: that is attempt {latest}")]
    OtherAttempt {
        /// The attempt that the word names.
        named: AttemptNumber,
        /// The run's latest.
        latest: AttemptNumber,
    },
}

/// Decides a person's word about a run. `named` is the attempt that it is about, where it names one, else the latest: a
/// repeat whose first answer was lost must not speak about the attempt that came since.
pub fn resolve(
    run: &Run,
    named: &Attempt,
    actor: &Actor,
    verb: Verb,
    why: Option<&str>,
    now: Now,
) -> Result<(Resolve, Change), ResolveRefused> {
    if named.resolution == Resolution::Person && named.word.as_ref().is_some_and(|word| word.verb == verb) {
        return Ok((Resolve::AlreadyClosed, Change::default()));
    }
    if run.state.is_terminal() {
        return Err(ResolveRefused::AlreadyEnded(run.state));
    }
    if named.number != run.latest {
        return Err(ResolveRefused::OtherAttempt { named: named.number, latest: run.latest });
    }
    if run.state != RunState::Lost {
        return Err(ResolveRefused::NotLost(run.state));
    }
    let mut said = NewEvent::new(EventKind::ResolveRequested, run.id, Some(named.id), actor.clone()).with("verb", verb);
    if let Some(why) = why {
        said = said.with("why", why);
    }
    let mut change = Change { events: vec![said], ..Change::default() };
    let (kind, next) = match verb {
        Verb::Wait => return Ok((Resolve::Noted, change)),
        Verb::Retry => {
            let mut next = run.moved(RunState::RetryWait);
            // A person decides, so nothing backs off and no bound of the machinery counts.
            next.due = Some(now.lease);
            (EventKind::RunRetryWait, next)
        }
        Verb::MarkFailed => (EventKind::RunEnded, closed(run, named, RunState::Failed, now)),
        Verb::MarkSucceeded => (EventKind::RunEnded, closed(run, named, RunState::Succeeded, now)),
    };
    change.events.push(
        NewEvent::new(kind, run.id, None, actor.clone())
            .with("state", next.state)
            .with("resolution", Resolution::Person),
    );
    change.attempt = Some(Attempt {
        version: named.version.next(),
        resolution: Resolution::Person,
        word: Some(Word { verb, by: actor.to_string(), why: why.map(str::to_owned), at: now.utc }),
        ..named.clone()
    });
    change.run = Some(next);
    Ok((Resolve::Closed, change))
}

/// The run as a person says that it ended: their word stands on its attempt, what was observed stands here.
fn closed(run: &Run, attempt: &Attempt, state: RunState, now: Now) -> Run {
    let outcome = attempt.outcome.clone().unwrap_or(Outcome::NeverSpawned);
    let unobserved = matches!(outcome, Outcome::Lost(_));
    run.closed(state, outcome, unobserved, now.utc)
}
