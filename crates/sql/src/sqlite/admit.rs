//! Admission: a run is pending, with attempt 1.

use leasehold_core::admission::{self, Submission};
use leasehold_core::change::Change;
use leasehold_core::id::{ProjectName, RunId};
use leasehold_core::revision::Revision;
use leasehold_core::run::Run;
use leasehold_store::call::{AdmitRun, Keyed};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::{KeyedRun, RunSummary, RunView};

use super::apply::{insert_attempt, write_events};
use super::column::values;
use super::rows;
use super::transaction::{Decided, Fault, Tx};
use super::{audit, load, projects, queries, tasks};

/// The run that a key made.
pub(super) fn of_key(tx: &Tx<'_>, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, Fault> {
    let sql = "SELECT run, asked FROM idempotency_key WHERE project = ?1 AND key = ?2";
    tx.first(sql, values![*project, key.to_owned()], rows::keyed_run)
}

/// Stores a submission; the same again, by key or id, is the same run.
pub(super) fn admit(tx: &Tx<'_>, call: &AdmitRun) -> Decided<RunView, Unmet> {
    let submission =
        Submission { project: &call.project, task: call.task.as_ref(), scheduled: None, revision: &call.revision };
    let before = match &call.idempotency_key {
        Some(keyed) => of_key(tx, &call.project, &keyed.key)?,
        None => None,
    };
    if let Some(run) = load::run(tx, before.map_or(call.run, |before| before.run))? {
        let asked = call.idempotency_key.as_ref().map(|keyed| keyed.asked);
        if !admission::repeats(&run, submission, before.and_then(|before| before.asked), asked) {
            return Ok(Outcome::Refused(Unmet::KeyReused));
        }
        return Ok(Outcome::Replayed(queries::view(tx, run.id)?));
    }
    if let (Some(of), Some(name)) = (call.of, &call.task) {
        match tasks::number(tx, &call.project, name)? {
            Some(number) if number == of => {}
            Some(_) => return Ok(Outcome::Refused(Unmet::TaskMoved)),
            None => return Ok(Outcome::Refused(Unmet::NotFound("task"))),
        }
    }
    let change = admission::admit(submission, call.run, call.attempt, &call.actor, tx.now);
    projects::ensure(tx, &call.project)?;
    insert(tx, &change, &call.revision)?;
    if let Some(keyed) = &call.idempotency_key {
        insert_key(tx, &call.project, keyed, call.run)?;
    }
    audit::write(
        tx,
        &call.actor,
        "admit_run",
        format_args!("run/{}", call.run),
        &[("project", &call.project), ("revision", &call.revision.digest())],
    )?;
    Ok(Outcome::Applied(queries::view(tx, call.run)?))
}

/// Keeps what a key made.
pub(super) fn insert_key(tx: &Tx<'_>, project: &ProjectName, keyed: &Keyed, run: RunId) -> Result<(), Fault> {
    let sql = "INSERT INTO idempotency_key (project, key, run, asked) VALUES (?1, ?2, ?3, ?4)";
    tx.execute_one("idempotency key", sql, values![*project, keyed.key, run, keyed.asked])
}

/// Writes the run of an admission, its attempt and its events.
pub(super) fn insert(tx: &Tx<'_>, change: &Change, revision: &Revision) -> Result<(), Fault> {
    let (Some(run), Some(attempt)) = (&change.run, &change.attempt) else {
        return Err(Fault::Damaged("a run was admitted without an attempt".to_owned()));
    };
    insert_run(tx, run, revision)?;
    insert_attempt(tx, attempt)?;
    write_events(tx, change)
}

fn insert_run(tx: &Tx<'_>, run: &Run, revision: &Revision) -> Result<(), Fault> {
    tx.execute(
        "INSERT INTO revision (digest, canonical) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        values![run.revision, *revision],
    )?;
    tx.execute(
        "INSERT INTO placement (digest, canonical) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        values![run.placement, *revision.placement()],
    )?;
    // Only a task with a limit has lanes of its own; the empty text sorts before every name.
    let limits = revision.limits();
    let lane_task = run.task.as_ref().filter(|_| limits.concurrency.is_some());
    tx.execute_one(
        "run",
        "INSERT INTO run (id, project, task, revision, placement, lane_task, name, priority, state, version, latest, \
         failures, machinery_failures, created_at, mutex, concurrency, trigger_name, scheduled_at, after_runs) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19)",
        values![
            run.id,
            run.project,
            run.task,
            run.revision,
            run.placement,
            lane_task.map_or_else(String::new, ToString::to_string),
            RunSummary::name_of(revision),
            run.priority,
            run.state,
            run.version,
            run.latest,
            run.failures,
            run.machinery_failures,
            run.created_at,
            limits.mutex,
            lane_task.and(limits.concurrency),
            run.scheduled.as_ref().map(|scheduled| &scheduled.trigger).or(run.webhook.as_ref()).cloned(),
            run.scheduled.as_ref().map(|scheduled| scheduled.at),
            run.after,
        ],
    )
}
