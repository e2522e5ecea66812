//! Admission: a run is pending, with attempt 1.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use leasehold_core::admission::{self, Submission};
use leasehold_core::change::Change;
use leasehold_core::id::{ProjectName, RunId};
use leasehold_core::revision::Revision;
use leasehold_core::run::Run;
use leasehold_store::call::{AdmitRun, Keyed};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::{KeyedRun, RunSummary, RunView};

use super::apply::{Write, insert_attempt, write_events};
use super::column::values;
use super::lock::Locks;
use super::rows;
use super::transaction::{Decided, Fault, Tx, Unlocked};
use super::{audit, load, projects, queries, tasks};

const OF_KEY: &str = "SELECT run, asked FROM idempotency_key WHERE project = $1 AND key = $2";

/// The run that a key made.
pub(super) async fn of_key(tx: &Tx, project: &ProjectName, key: &str) -> Result<Option<KeyedRun>, Fault> {
    tx.first(OF_KEY, values![*project, key.to_owned()], rows::keyed_run).await
}

/// Stores a submission; the same again, by key or id, is the same run.
pub(super) async fn admit(db: Unlocked, call: &AdmitRun) -> Decided<RunView, Unmet> {
    let submission =
        Submission { project: &call.project, task: call.task.as_ref(), scheduled: None, revision: &call.revision };
    let before = match &call.idempotency_key {
        Some(keyed) => db.first(OF_KEY, values![call.project, keyed.key], rows::keyed_run).await?,
        None => None,
    };
    // Of two with one key or id at the same instant, the second meets a unique value and decides again.
    let known = before.map_or(call.run, |before| before.run);
    let tx = &db.lock(Locks::Submission(&call.project, known)).await?;
    if let Some(run) = load::run(tx, known).await? {
        let asked = call.idempotency_key.as_ref().map(|keyed| keyed.asked);
        if !admission::repeats(&run, submission, before.and_then(|before| before.asked), asked) {
            return Ok(Outcome::Refused(Unmet::KeyReused));
        }
        return Ok(Outcome::Replayed(queries::view(tx, run.id).await?));
    }
    if let (Some(of), Some(name)) = (call.of, &call.task) {
        match tasks::number(tx, &call.project, name).await? {
            Some(number) if number == of => {}
            Some(_) => return Ok(Outcome::Refused(Unmet::TaskMoved)),
            None => return Ok(Outcome::Refused(Unmet::NotFound("task"))),
        }
    }
    let change = admission::admit(submission, call.run, call.attempt, &call.actor, tx.now);
    let (Some(run), Some(attempt)) = (&change.run, &change.attempt) else {
        return Err(Fault::Damaged(format!("run {} was admitted without an attempt", call.run)));
    };
    projects::ensure(tx, &call.project).await?;
    insert_run(tx, run, &call.revision).await?;
    let audited: [(&str, &(dyn std::fmt::Display + Sync)); 2] =
        [("project", &call.project), ("revision", &run.revision)];
    let writes: Vec<Write<'_>> = vec![
        Box::pin(insert_attempt(tx, attempt)),
        Box::pin(write_events(tx, &change)),
        Box::pin(insert_key(tx, &call.project, call.idempotency_key.as_ref(), call.run)),
        Box::pin(audit::write(tx, &call.actor, "admit_run", format!("run/{}", call.run), &audited)),
    ];
    try_join_all(writes).await?;
    let (run, attempts, revision) = (run.clone(), vec![attempt.clone()], call.revision.clone());
    Ok(Outcome::Applied(RunView { run, attempts, revision, logs: BTreeMap::new() }))
}

/// Keeps what a key made, where there is one.
pub(super) async fn insert_key(tx: &Tx, project: &ProjectName, keyed: Option<&Keyed>, run: RunId) -> Result<(), Fault> {
    let Some(Keyed { key, asked }) = keyed else { return Ok(()) };
    let sql = "INSERT INTO idempotency_key (project, key, run, asked) VALUES ($1, $2, $3, $4)";
    tx.execute_one("idempotency key", sql, values![*project, *key, run, *asked]).await
}

/// Writes the run of an admission, its attempt and its events.
pub(super) async fn insert(tx: &Tx, change: &Change, revision: &Revision) -> Result<(), Fault> {
    let (Some(run), Some(attempt)) = (&change.run, &change.attempt) else {
        return Err(Fault::Damaged("a run was admitted without an attempt".to_owned()));
    };
    insert_run(tx, run, revision).await?;
    let writes: Vec<Write<'_>> = vec![Box::pin(insert_attempt(tx, attempt)), Box::pin(write_events(tx, change))];
    try_join_all(writes).await?;
    Ok(())
}

async fn insert_run(tx: &Tx, run: &Run, revision: &Revision) -> Result<(), Fault> {
    // The revision first, then the placement, in every transaction: who waits for one has not the other.
    let sql = "INSERT INTO revision (digest, canonical) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    tx.execute(sql, values![run.revision, *revision]).await?;
    let sql = "INSERT INTO placement (digest, canonical) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    tx.execute(sql, values![run.placement, *revision.placement()]).await?;
    // Only a task with a limit has lanes of its own; the empty text sorts before every name.
    let (limits, policy) = (revision.limits(), revision.policy());
    let lane_task = run.task.as_ref().filter(|_| limits.concurrency.is_some());
    // The claim of a run that wants devices is never plain: which they are is for the rule to pick.
    let plain_lease = Some(policy.lease).filter(|_| revision.placement().require().gpu.is_none());
    tx.execute_one(
        "run",
        "INSERT INTO run (id, project, task, revision, placement, lane_task, name, priority, state, version, latest, \
         failures, machinery_failures, created_at, mutex, concurrency, lease_millis, max_attempts, start_millis, \
         timeout_millis, trigger_name, scheduled_at, after_runs) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, \
         $22, $23)",
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
            plain_lease,
            policy.max_attempts,
            policy.start,
            policy.timeout,
            run.scheduled.as_ref().map(|scheduled| &scheduled.trigger).or(run.webhook.as_ref()).cloned(),
            run.scheduled.as_ref().map(|scheduled| scheduled.at),
            run.after,
        ],
    )
    .await
}
