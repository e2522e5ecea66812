//! Writes a [`Change`]: records by compare-and-swap on the version that was loaded, events with the run's next sequence.
//!
//! All of it happens in the caller's transaction, so attempt, run, lease and events change together or not at all.

use std::collections::BTreeMap;

use leasehold_core::attempt::Attempt;
use leasehold_core::change::Change;
use leasehold_core::counter::{AttemptVersion, LeaseVersion, RunVersion};
use leasehold_core::event::NewEvent;
use leasehold_core::id::AttemptId;
use leasehold_core::lease::Lease;
use leasehold_core::limits::DEDUPLICATED_EVENTS_PER_ATTEMPT;
use leasehold_core::run::Run;
use leasehold_store::observe;

use super::column::values;
use super::load::Named;
use super::rows::lease_columns;
use super::transaction::{Fault, Tx};

/// The versions that a decision was made on.
#[derive(Default)]
pub(super) struct Loaded {
    run: Option<RunVersion>,
    attempts: Vec<(AttemptId, AttemptVersion)>,
    lease: Option<(AttemptId, LeaseVersion)>,
}

impl Loaded {
    /// The decision was made on this run and these attempts.
    pub(super) fn of(run: &Run, attempts: &[&Attempt]) -> Self {
        let attempts = attempts.iter().map(|attempt| (attempt.id, attempt.version)).collect();
        Self { run: Some(run.version), attempts, lease: None }
    }

    /// And on this lease.
    pub(super) fn and_lease(mut self, lease: Option<&Lease>) -> Self {
        self.lease = lease.map(|lease| (lease.attempt, lease.version));
        self
    }

    /// The decision was made on what a fence named.
    pub(super) fn named(named: &Named) -> Self {
        Self::of(&named.run, &[&named.attempt]).and_lease(named.lease.as_ref())
    }
}

/// Writes `change`, which was decided on `loaded`.
pub(super) fn apply(tx: &Tx<'_>, loaded: &Loaded, change: &Change) -> Result<(), Fault> {
    if let Some(run) = &change.run {
        let expected = loaded.run.ok_or_else(|| Fault::Damaged(format!("run {} was not loaded", run.id)))?;
        update_run(tx, run, expected)?;
    }
    for attempt in change.attempt.iter().chain(&change.other_attempt) {
        match loaded.attempts.iter().find(|(id, _)| *id == attempt.id) {
            Some((_, expected)) => update_attempt(tx, attempt, *expected)?,
            None => insert_attempt(tx, attempt)?,
        }
    }
    if let Some(lease) = &change.lease {
        match loaded.lease {
            Some((attempt, expected)) if attempt == lease.attempt => update_lease(tx, lease, expected)?,
            _ => insert_lease(tx, lease)?,
        }
    }
    write_events(tx, change)
}

/// Writes the events of `change`, and notes what it makes true.
pub(super) fn write_events(tx: &Tx<'_>, change: &Change) -> Result<(), Fault> {
    for event in &change.events {
        if write_event(tx, event)?
            && let Some(fact) = observe::of_event(change, event)
        {
            tx.note(fact);
        }
    }
    for fact in observe::of_records(change) {
        tx.note(fact);
    }
    Ok(())
}

fn update_run(tx: &Tx<'_>, run: &Run, expected: RunVersion) -> Result<(), Fault> {
    let intent = run.intent.as_ref();
    let closing = run.closing.as_ref();
    tx.execute_one(
        "run",
        "UPDATE run SET state = ?3, version = ?4, latest = ?5, fence = ?6, intent_reason = ?7, intent_by = ?8, \
         intent_why = ?9, intent_at = ?10, failures = ?11, machinery_failures = ?12, due_lease = ?13, started_at = ?14, \
         closing_outcome = ?15, closing_unobserved = ?16, closed_at = ?17 WHERE id = ?1 AND version = ?2",
        values![
            run.id,
            expected,
            run.state,
            run.version,
            run.latest,
            run.fence,
            intent.map(|intent| intent.reason),
            intent.map(|intent| intent.by.clone()),
            intent.and_then(|intent| intent.why.clone()),
            intent.map(|intent| intent.at),
            run.failures,
            run.machinery_failures,
            run.due,
            run.started_at,
            closing.map(|closing| closing.outcome.clone()),
            closing.map(|closing| closing.unobserved),
            closing.map(|closing| closing.at),
        ],
    )
}

/// Writes a new attempt.
pub(super) fn insert_attempt(tx: &Tx<'_>, attempt: &Attempt) -> Result<(), Fault> {
    // A new attempt inherits nothing: every other column has the value of one that waits.
    debug_assert_eq!(*attempt, Attempt::pending(attempt.id, attempt.run, attempt.number));
    tx.execute_one(
        "attempt",
        "INSERT INTO attempt (id, run, number, state, version, resolution, may_live) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        values![
            attempt.id,
            attempt.run,
            attempt.number,
            attempt.state,
            attempt.version,
            attempt.resolution,
            attempt.may_live,
        ],
    )
}

fn update_attempt(tx: &Tx<'_>, attempt: &Attempt, expected: AttemptVersion) -> Result<(), Fault> {
    let Attempt { handle, callback, log, usage, word, left, .. } = attempt;
    let cut = log.and_then(|log| log.cut);
    tx.execute_one(
        "attempt",
        "UPDATE attempt SET state = ?3, version = ?4, lease_generation = ?5, worker = ?6, boot = ?7, start_by_lease = ?8, \
         deadline_lease = ?9, handle_boot = ?10, handle_pid = ?11, handle_start_time = ?12, callback_sequence = ?13, \
         callback_token = ?14, claimed_at = ?15, starting_at = ?16, running_at = ?17, ended_at = ?18, outcome = ?19, \
         resolution = ?20, may_live = ?21, log_length = ?22, log_digest = ?23, log_finished = ?24, \
         log_cut = ?25, log_cut_stdout = ?26, log_cut_stderr = ?27, usage_user_millis = ?28, usage_system_millis = ?29, \
         usage_max_rss_kib = ?30, usage_oom_killed = ?31, usage_memory_kept = ?32, usage_cpu_kept = ?33, \
         usage_pids_kept = ?34, word_verb = ?35, word_by = ?36, word_why = ?37, word_at = ?38, \
         evidence = ?39, left_count = ?40, left_pids = ?41 WHERE id = ?1 AND version = ?2",
        values![
            attempt.id,
            expected,
            attempt.state,
            attempt.version,
            attempt.lease_generation,
            attempt.worker,
            attempt.boot,
            attempt.start_by,
            attempt.deadline,
            handle.as_ref().map(|handle| handle.boot.clone()),
            handle.as_ref().map(|handle| handle.pid),
            handle.as_ref().map(|handle| handle.start_time),
            callback.map(|callback| callback.sequence),
            callback.map(|callback| callback.token),
            attempt.claimed_at,
            attempt.starting_at,
            attempt.running_at,
            attempt.ended_at,
            attempt.outcome,
            attempt.resolution,
            attempt.may_live,
            log.map(|log| log.length),
            log.map(|log| log.digest),
            log.map(|log| log.finished),
            cut.map(|cut| cut.reason),
            cut.map(|cut| cut.stdout),
            cut.map(|cut| cut.stderr),
            usage.map(|usage| usage.user),
            usage.map(|usage| usage.system),
            usage.map(|usage| usage.max_rss_kib),
            usage.map(|usage| usage.oom_killed),
            usage.and_then(|usage| usage.limits.memory),
            usage.and_then(|usage| usage.limits.cpu),
            usage.and_then(|usage| usage.limits.pids),
            word.as_ref().map(|word| word.verb),
            word.as_ref().map(|word| word.by.clone()),
            word.as_ref().and_then(|word| word.why.clone()),
            word.as_ref().map(|word| word.at),
            attempt.evidence,
            left.as_ref().map(|left| left.count),
            left.as_ref().map(|left| left.pids.clone()),
        ],
    )
}

fn insert_lease(tx: &Tx<'_>, lease: &Lease) -> Result<(), Fault> {
    tx.execute_one(
        "lease",
        concat!(
            "INSERT INTO lease (",
            lease_columns!(""),
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
        ),
        values![
            lease.attempt,
            lease.run,
            lease.offer,
            lease.token,
            lease.generation,
            lease.version,
            lease.worker,
            lease.session,
            lease.session_generation,
            lease.fence,
            lease.length,
            lease.expires,
            lease.state,
            lease.score,
            lease.claimed_at,
            lease.devices,
        ],
    )
}

/// The fence stands in the statement: only the active lease of this generation at this version changes.
fn update_lease(tx: &Tx<'_>, lease: &Lease, expected: LeaseVersion) -> Result<(), Fault> {
    tx.execute_one(
        "lease",
        "UPDATE lease SET version = ?4, session = ?5, session_generation = ?6, expires_lease = ?7, state = ?8 \
         WHERE attempt = ?1 AND generation = ?2 AND version = ?3 AND token = ?9 AND state = 'active'",
        values![
            lease.attempt,
            lease.generation,
            expected,
            lease.version,
            lease.session,
            lease.session_generation,
            lease.expires,
            lease.state,
            lease.token,
        ],
    )
}

/// Writes an event with the run's next sequence, unless a repeat of its call has written it. Whether it did.
fn write_event(tx: &Tx<'_>, event: &NewEvent) -> Result<bool, Fault> {
    if let (Some(attempt), Some(digest)) = (event.attempt, event.once) {
        let (kept, repeated): (usize, bool) = tx.only(
            "SELECT count(*), coalesce(max(digest = ?2), 0) FROM event_digest WHERE attempt = ?1",
            values![attempt, digest],
            |columns| Ok((columns.next()?, columns.next()?)),
        )?;
        if repeated || kept >= DEDUPLICATED_EVENTS_PER_ATTEMPT {
            return Ok(false);
        }
        tx.execute_one(
            "event digest",
            "INSERT INTO event_digest (attempt, digest) VALUES (?1, ?2)",
            values![attempt, digest],
        )?;
    }
    let facts: BTreeMap<String, String> =
        event.facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())).collect();
    tx.execute_one(
        "event",
        "INSERT INTO event (run, sequence, at, kind, attempt, actor, facts) \
         SELECT ?1, coalesce(max(sequence), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM event WHERE run = ?1",
        values![event.run, tx.now.utc, event.kind, event.attempt, event.actor.to_string(), facts],
    )?;
    Ok(true)
}
