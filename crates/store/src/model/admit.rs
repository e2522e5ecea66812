//! A run is submitted.

use leasehold_core::admission::{self, Submission};
use leasehold_core::id::ProjectName;

use super::{Transaction, projects, tasks};
use crate::call::{AdmitRun, Keyed};
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::{KeyedRun, RunView};

/// The run that a key made.
pub(super) fn of_key(tx: &Transaction<'_>, project: &ProjectName, key: &str) -> Option<KeyedRun> {
    tx.state.idempotency_keys.get(&(project.clone(), key.to_owned())).copied()
}

pub(super) fn admit(tx: &mut Transaction<'_>, call: &AdmitRun) -> Stored<RunView, Unmet> {
    let submission =
        Submission { project: &call.project, task: call.task.as_ref(), scheduled: None, revision: &call.revision };
    let before = call.idempotency_key.as_ref().and_then(|keyed| of_key(tx, &call.project, &keyed.key));
    if let Some(run) = tx.state.runs.get(&before.map_or(call.run, |before| before.run)) {
        let asked = call.idempotency_key.as_ref().map(|keyed| keyed.asked);
        if !admission::repeats(run, submission, before.and_then(|before| before.asked), asked) {
            return Ok(Outcome::Refused(Unmet::KeyReused));
        }
        return tx.written(run.id).map(Outcome::Replayed);
    }
    let held = call.task.as_ref().and_then(|name| tasks::living(tx, &call.project, name)).map(|task| task.number);
    if let Some(of) = call.of
        && held != Some(of)
    {
        return Ok(Outcome::Refused(held.map_or(Unmet::NotFound("task"), |_| Unmet::TaskMoved)));
    }
    let change = admission::admit(submission, call.run, call.attempt, &call.actor, tx.now);
    let digest = call.revision.digest();
    tx.apply(change)?;
    projects::ensure(tx, &call.project);
    tx.state.revisions.insert(*digest.as_bytes(), call.revision.clone());
    if let Some(Keyed { key, asked }) = call.idempotency_key.clone() {
        let made = KeyedRun { run: call.run, asked: Some(asked) };
        tx.state.idempotency_keys.insert((call.project.clone(), key), made);
    }
    let facts = [("project", call.project.to_string()), ("revision", digest.to_string())];
    tx.record(&call.actor, "admit_run", format_args!("run/{}", call.run), facts);
    tx.written(call.run).map(Outcome::Applied)
}
