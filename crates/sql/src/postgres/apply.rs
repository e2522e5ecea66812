//! Writes a [`Change`]: records by compare-and-swap on the version that was loaded, events with the run's next sequence.
//!
//! All of it happens in the caller's transaction, so attempt, run, lease and events change together or not at all.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::future::try_join_all;
use leasehold_core::attempt::Attempt;
use leasehold_core::change::Change;
use leasehold_core::counter::{AttemptVersion, LeaseVersion, RunVersion};
use leasehold_core::event::NewEvent;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::lease::Lease;
use leasehold_core::limits::DEDUPLICATED_EVENTS_PER_ATTEMPT;
use leasehold_core::run::Run;
use leasehold_store::observe;

use super::column::{Column as _, list, values};
use super::load::Named;
use super::transaction::{Connection, Fault, Tx};

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

/// Writes `change`, which was decided on `loaded`. Everything is sent at once and then looked at: a row that is not as it was
/// loaded undoes the whole transaction.
pub(super) async fn apply(tx: &Tx, loaded: &Loaded, change: &Change) -> Result<(), Fault> {
    let mut writes: Vec<Write<'_>> = Vec::new();
    if let Some(run) = &change.run {
        let expected = loaded.run.ok_or_else(|| Fault::Damaged(format!("run {} was not loaded", run.id)))?;
        writes.push(Box::pin(update_run(tx, run, expected)));
    }
    for attempt in change.attempt.iter().chain(&change.other_attempt) {
        writes.push(match loaded.attempts.iter().find(|(id, _)| *id == attempt.id) {
            Some((_, expected)) => Box::pin(update_attempt(tx, attempt, *expected)),
            None => Box::pin(insert_attempt(tx, attempt)),
        });
    }
    if let Some(lease) = &change.lease {
        writes.push(match loaded.lease {
            Some((attempt, expected)) if attempt == lease.attempt => Box::pin(update_lease(tx, lease, expected)),
            _ => Box::pin(insert_lease(tx, lease)),
        });
    }
    writes.push(Box::pin(write_events(tx, change)));
    try_join_all(writes).await?;
    Ok(())
}

/// One of the statements that are sent together.
pub(super) type Write<'a> = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'a>>;

/// Writes the events of `change` with the run's next sequences, but for those that a repeat of their call has written; and
/// notes what it makes true. The run is locked, or new.
pub(super) async fn write_events(tx: &Tx, change: &Change) -> Result<(), Fault> {
    let mut news = Vec::with_capacity(change.events.len());
    for event in &change.events {
        if is_news(tx, event).await? {
            news.push(event);
        }
    }
    if let Some(first) = news.first() {
        insert_events(tx, first.run, &news).await?;
    }
    note(tx, change, news);
    Ok(())
}

/// Notes what a change and those of its events that are news make true.
pub(super) fn note<'a>(db: &Connection, change: &Change, news: impl IntoIterator<Item = &'a NewEvent>) {
    let told = news.into_iter().filter_map(|event| observe::of_event(change, event));
    told.chain(observe::of_records(change)).for_each(|fact| db.note(fact));
}

/// An event's facts as they are stored.
pub(super) fn texts(event: &NewEvent) -> BTreeMap<String, String> {
    event.facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())).collect()
}

async fn update_run(tx: &Tx, run: &Run, expected: RunVersion) -> Result<(), Fault> {
    let intent = run.intent.as_ref();
    let closing = run.closing.as_ref();
    tx.execute_one(
        "run",
        "UPDATE run SET state = $3, version = $4, latest = $5, fence = $6, intent_reason = $7, intent_by = $8, \
         intent_why = $9, intent_at = $10, failures = $11, machinery_failures = $12, due_lease = $13, started_at = $14, \
         closing_outcome = $15, closing_unobserved = $16, closed_at = $17 WHERE id = $1 AND version = $2",
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
    ).await
}

/// Writes a new attempt.
pub(super) async fn insert_attempt(tx: &Tx, attempt: &Attempt) -> Result<(), Fault> {
    // A new attempt inherits nothing: every other column has the value of one that waits.
    debug_assert_eq!(*attempt, Attempt::pending(attempt.id, attempt.run, attempt.number));
    tx.execute_one(
        "attempt",
        "INSERT INTO attempt (id, run, number, state, version, resolution, may_live) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        values![
            attempt.id,
            attempt.run,
            attempt.number,
            attempt.state,
            attempt.version,
            attempt.resolution,
            attempt.may_live,
        ],
    ).await
}

/// Writes an attempt as it is now, if it is still as it was.
pub(super) async fn update_attempt(tx: &Tx, attempt: &Attempt, expected: AttemptVersion) -> Result<(), Fault> {
    let Attempt { handle, callback, log, usage, word, left, .. } = attempt;
    let cut = log.and_then(|log| log.cut);
    tx.execute_one(
        "attempt",
        "UPDATE attempt SET state = $3, version = $4, lease_generation = $5, worker = $6, boot = $7, start_by_lease = $8, \
         deadline_lease = $9, handle_boot = $10, handle_pid = $11, handle_start_time = $12, callback_sequence = $13, \
         callback_token = $14, claimed_at = $15, starting_at = $16, running_at = $17, ended_at = $18, outcome = $19, \
         resolution = $20, may_live = $21, log_length = $22, log_digest = $23, log_finished = $24, \
         log_cut = $25, log_cut_stdout = $26, log_cut_stderr = $27, usage_user_millis = $28, usage_system_millis = $29, \
         usage_max_rss_kib = $30, usage_oom_killed = $31, usage_memory_kept = $32, usage_cpu_kept = $33, \
         usage_pids_kept = $34, word_verb = $35, word_by = $36, word_why = $37, word_at = $38, \
         evidence = $39, left_count = $40, left_pids = $41 WHERE id = $1 AND version = $2",
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
    ).await
}

async fn insert_lease(tx: &Tx, lease: &Lease) -> Result<(), Fault> {
    tx.execute_one(
        "lease",
        "INSERT INTO lease (attempt, run, offer, token, generation, version, worker, session, session_generation, fence, \
         length_millis, expires_lease, state, score, claimed_at, devices) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
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
    .await
}

/// The fence stands in the statement: only the active lease of this generation at this version changes.
async fn update_lease(tx: &Tx, lease: &Lease, expected: LeaseVersion) -> Result<(), Fault> {
    tx.execute_one(
        "lease",
        "UPDATE lease SET version = $4, session = $5, session_generation = $6, expires_lease = $7, state = $8 \
         WHERE attempt = $1 AND generation = $2 AND version = $3 AND token = $9 AND state = 'active'",
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
    .await
}

/// Whether no repeat of its call has written the event; remembers that it is written now.
async fn is_news(tx: &Tx, event: &NewEvent) -> Result<bool, Fault> {
    let (Some(attempt), Some(digest)) = (event.attempt, event.once) else { return Ok(true) };
    let (kept, repeated): (usize, bool) = tx
        .only(
            "SELECT count(*), coalesce(bool_or(digest = $2), false) FROM event_digest WHERE attempt = $1",
            values![attempt, digest],
            |columns| Ok((columns.next()?, columns.next()?)),
        )
        .await?;
    if repeated || kept >= DEDUPLICATED_EVENTS_PER_ATTEMPT {
        return Ok(false);
    }
    let sql = "INSERT INTO event_digest (attempt, digest) VALUES ($1, $2)";
    tx.execute_one("event digest", sql, values![attempt, digest]).await?;
    Ok(true)
}

async fn insert_events(tx: &Tx, run: RunId, events: &[&NewEvent]) -> Result<(), Fault> {
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    let attempts: Vec<_> = events.iter().map(|event| event.attempt).collect();
    let actors: Vec<_> = events.iter().map(|event| event.actor.to_string()).collect();
    let facts: Vec<_> = events.iter().map(|event| texts(event)).collect();
    let rows = tx
        .execute(
            "INSERT INTO event (run, sequence, at, kind, attempt, actor, facts) \
             SELECT $1, (SELECT coalesce(max(sequence), 0) FROM event WHERE run = $1) + told.place, $2, told.kind, \
             told.attempt, told.actor, told.facts \
             FROM unnest($3::text[], $4::uuid[], $5::text[], $6::text[]) WITH ORDINALITY \
             AS told (kind, attempt, actor, facts, place)",
            [run.bind(), tx.now.utc.bind(), list(&kinds), list(&attempts), list(&actors), list(&facts)],
        )
        .await?;
    if usize::try_from(rows).is_ok_and(|rows| rows == events.len()) {
        return Ok(());
    }
    Err(Fault::Damaged(format!("run {run}: {rows} of {} events were written", events.len())))
}
