//! Writes what a decision changes: the one place where run, attempt, lease and event rows come from.
//!
//! Everything is checked before anything is written. A change that breaks a table of transitions or does not grow a
//! version is a defect of a decision: it is refused whole.

use std::collections::BTreeMap;
use std::fmt::Display;

use leasehold_core::actor::Actor;
use leasehold_core::attempt::Attempt;
use leasehold_core::change::Change;
use leasehold_core::counter::EventSequence;
use leasehold_core::event::{Event, NewEvent};
use leasehold_core::lease::Lease;
use leasehold_core::limits;
use leasehold_core::run::Run;

use super::{StoredEvent, Transaction, chains};
use crate::outcome::{Outcome, StoreError};
use crate::view::AuditEntry;

impl Transaction<'_> {
    /// Writes `change`; says whether any row came or changed.
    pub(super) fn apply(&mut self, change: Change) -> Result<bool, StoreError> {
        let attempts = [change.attempt, change.other_attempt].into_iter().flatten();
        let attempts: Vec<_> = attempts.collect();
        change.run.as_ref().map_or(Ok(()), |run| self.check_run(run))?;
        attempts.iter().try_for_each(|attempt| self.check_attempt(attempt))?;
        change.lease.as_ref().map_or(Ok(()), |lease| self.check_lease(lease))?;

        let mut wrote = change.run.is_some() || !attempts.is_empty() || change.lease.is_some();
        if let Some(run) = change.run {
            chains::arrive(self, &run);
            self.state.runs.insert(run.id, run);
        }
        for attempt in attempts {
            self.state.attempts_of.insert((attempt.run, attempt.number), attempt.id);
            self.state.attempts.insert(attempt.id, attempt);
        }
        if let Some(lease) = change.lease {
            self.state.leases.insert((lease.attempt, lease.generation), lease);
        }
        for event in change.events {
            wrote |= self.tell(event);
        }
        Ok(wrote)
    }

    fn check_run(&self, run: &Run) -> Result<(), StoreError> {
        let Some(stored) = self.state.runs.get(&run.id) else { return Ok(()) };
        let moves = stored.state == run.state || stored.state.may_become(run.state);
        let kept = (&stored.project, &stored.task, stored.revision) == (&run.project, &run.task, run.revision);
        if run.version > stored.version && moves && kept {
            return Ok(());
        }
        Err(defect(
            "run",
            run.id,
            format_args!("{} at {} to {} at {}", stored.state, stored.version, run.state, run.version),
        ))
    }

    fn check_attempt(&self, attempt: &Attempt) -> Result<(), StoreError> {
        let Some(stored) = self.state.attempts.get(&attempt.id) else {
            let taken = self.state.attempts_of.contains_key(&(attempt.run, attempt.number));
            return if taken { Err(defect("attempt", attempt.id, "a second one of its number")) } else { Ok(()) };
        };
        let moves = stored.state == attempt.state || stored.state.may_become(attempt.state);
        let kept = (stored.run, stored.number) == (attempt.run, attempt.number)
            && (!stored.state.is_terminal() || stored.outcome == attempt.outcome);
        if attempt.version > stored.version && moves && kept {
            return Ok(());
        }
        let step = format_args!("{} at {} to {} at {}", stored.state, stored.version, attempt.state, attempt.version);
        Err(defect("attempt", attempt.id, step))
    }

    fn check_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let Some(stored) = self.state.leases.get(&(lease.attempt, lease.generation)) else {
            let taken = self.state.leases.values().any(|old| old.offer == lease.offer || old.token == lease.token);
            return if taken { Err(defect("lease", lease.offer, "its offer or token a second time")) } else { Ok(()) };
        };
        let moves = stored.state == lease.state || stored.state.may_become(lease.state);
        let kept = (stored.offer, stored.token, &stored.worker) == (lease.offer, lease.token, &lease.worker);
        if lease.version >= stored.version && moves && kept {
            return Ok(());
        }
        Err(defect("lease", lease.offer, format_args!("{} to {}", stored.state, lease.state)))
    }

    /// Appends an event to its run's story, unless it is one that repeats must not multiply.
    fn tell(&mut self, event: NewEvent) -> bool {
        let story = self.state.events.entry(event.run).or_default();
        if let Some(once) = event.once {
            let kept = story.iter().filter(|old| old.event.attempt == event.attempt).filter_map(|old| old.once);
            let kept: Vec<_> = kept.collect();
            if kept.contains(&once) || kept.len() >= limits::DEDUPLICATED_EVENTS_PER_ATTEMPT {
                return false;
            }
        }
        let stored = Event {
            sequence: story.last().map_or(EventSequence::FIRST, |last| last.event.sequence.next()),
            at: self.now.utc,
            kind: event.kind,
            run: event.run,
            attempt: event.attempt,
            actor: event.actor.to_string(),
            facts: event.facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect(),
        };
        story.push(StoredEvent { event: stored, once: event.once });
        true
    }

    /// Writes an audit row.
    pub(super) fn record<'f>(
        &mut self,
        actor: &Actor,
        action: &str,
        subject: impl Display,
        facts: impl IntoIterator<Item = (&'f str, String)>,
    ) {
        let sequence = self.state.audit.last().map_or(1, |last| last.sequence.saturating_add(1));
        let facts: BTreeMap<_, _> = facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect();
        self.state.audit.push(AuditEntry {
            sequence,
            at: self.now.utc,
            actor: actor.to_string(),
            origin: actor.origin().map(|origin| origin.to_string()),
            action: action.to_owned(),
            subject: subject.to_string(),
            facts,
        });
    }
}

/// The outcome of a call that wrote something, or nothing because it had been applied before.
pub(super) fn outcome<T, R>(wrote: bool, answer: T) -> Outcome<T, R> {
    if wrote { Outcome::Applied(answer) } else { Outcome::Replayed(answer) }
}

fn defect(what: &str, key: impl Display, step: impl Display) -> StoreError {
    StoreError::Damaged { reason: format!("{what} {key}: {step}") }
}
