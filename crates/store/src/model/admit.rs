//! A run is submitted.

use leasehold_core::admission::{self, Submission};

use super::{Transaction, projects, tasks};
use crate::call::AdmitRun;
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::RunView;

pub(super) fn admit(tx: &mut Transaction<'_>, call: &AdmitRun) -> Stored<RunView, Unmet> {
    let submission =
        Submission { project: &call.project, task: call.task.as_ref(), scheduled: None, revision: &call.revision };
    let key = call.idempotency_key.clone().map(|key| (call.project.clone(), key));
    let before = key.as_ref().and_then(|key| tx.state.idempotency_keys.get(key)).copied();
    if let Some(run) = tx.state.runs.get(&before.unwrap_or(call.run)) {
        if !admission::repeats(run, submission) {
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
    if let Some(key) = key {
        tx.state.idempotency_keys.insert(key, call.run);
    }
    let facts = [("project", call.project.to_string()), ("revision", digest.to_string())];
    tx.record(&call.actor, "admit_run", format_args!("run/{}", call.run), facts);
    tx.written(call.run).map(Outcome::Applied)
}
