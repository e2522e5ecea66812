//! Places: which runs hold one of their task and project, and which devices of a worker are held. Counted anew each time, by
//! core's own predicate.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::device::DeviceId;
use leasehold_core::id::{ProjectName, RunId, TaskName};
use leasehold_core::limits::HOLDERS;
use leasehold_core::occupancy::{Holder, LimitFact, LimitOf, Limited, Places, hold, occupies};
use leasehold_core::run::{Policy, Run};
use leasehold_core::session::Session;

use super::Transaction;
use crate::outcome::StoreError;
use crate::view::RunSummary;

/// The runs of a project, or of one task of it, that hold a place; without `but`.
fn holders(
    tx: &Transaction<'_>,
    project: &ProjectName,
    task: Option<&TaskName>,
    but: Option<RunId>,
) -> Result<Vec<Holder>, StoreError> {
    let runs =
        tx.state.runs.values().filter(|run| {
            run.project == *project && (task.is_none() || run.task.as_ref() == task) && Some(run.id) != but
        });
    let mut holders = Vec::new();
    for run in runs {
        holders.extend(holder(tx, run)?);
    }
    holders.sort_by_key(|holder| (holder.since, holder.run));
    Ok(holders)
}

fn holder(tx: &Transaction<'_>, run: &Run) -> Result<Option<Holder>, StoreError> {
    let revision = tx.revision(run)?;
    let policy = revision.policy();
    let held = tx.attempts(run.id).find_map(|attempt| Some((attempt, hold(run, attempt, &policy)?)));
    Ok(held.map(|(attempt, hold)| Holder {
        run: run.id,
        name: RunSummary::name_of(revision),
        attempt: attempt.number,
        hold,
        worker: attempt.worker.clone(),
        since: attempt.claimed_at.unwrap_or(run.created_at),
    }))
}

/// How many runs of a project, or of one task of it, hold a place; without `but`.
pub(super) fn occupied(
    tx: &Transaction<'_>,
    project: &ProjectName,
    task: Option<&TaskName>,
    but: Option<RunId>,
) -> Result<u32, StoreError> {
    Ok(u32::try_from(holders(tx, project, task, but)?.len()).unwrap_or(u32::MAX))
}

/// The project's limit, if it has one.
pub(super) fn of_project(
    tx: &Transaction<'_>,
    project: &ProjectName,
    but: Option<RunId>,
) -> Result<Option<Places>, StoreError> {
    match tx.state.projects.get(project).and_then(|project| project.concurrency) {
        Some(limit) => Ok(Some(Places { limit, occupied: occupied(tx, project, None, but)? })),
        None => Ok(None),
    }
}

/// The limits that a waiting run is under.
pub(super) fn limits(tx: &Transaction<'_>, run: &Run, policy: &Policy) -> Result<Limited, StoreError> {
    let task = match run.task.as_ref().zip(policy.concurrency) {
        Some((task, limit)) => Some(Places { limit, occupied: occupied(tx, &run.project, Some(task), Some(run.id))? }),
        None => None,
    };
    Ok(Limited { task, project: of_project(tx, &run.project, Some(run.id))? })
}

/// The limits that a waiting run is under, with what holds their places.
pub(super) fn facts(tx: &Transaction<'_>, run: &Run) -> Result<Vec<LimitFact>, StoreError> {
    let Limited { task, project } = limits(tx, run, &tx.revision(run)?.policy())?;
    let mut facts = Vec::new();
    if let Some((places, name)) = task.zip(run.task.as_ref()) {
        let holders = holders(tx, &run.project, Some(name), Some(run.id))?;
        facts.push(LimitFact { of: LimitOf::Task, name: name.to_string(), places, holders });
    }
    if let Some(places) = project {
        let holders = holders(tx, &run.project, None, Some(run.id))?;
        facts.push(LimitFact { of: LimitOf::Project, name: run.project.to_string(), places, holders });
    }
    for fact in &mut facts {
        fact.holders.truncate(HOLDERS);
    }
    Ok(facts)
}

/// The devices of a session's worker that something is, or may be, using.
pub(super) fn busy_devices(tx: &Transaction<'_>, session: &Session) -> Result<BTreeSet<DeviceId>, StoreError> {
    Ok(device_holders(tx, session)?.into_keys().collect())
}

/// The same, and of which run that is.
pub(super) fn device_holders(tx: &Transaction<'_>, session: &Session) -> Result<BTreeMap<DeviceId, RunId>, StoreError> {
    let mut busy = BTreeMap::new();
    if session.capabilities.gpus.is_empty() {
        return Ok(busy);
    }
    for lease in tx.state.leases.values().filter(|lease| lease.worker == session.worker && !lease.devices.is_empty()) {
        let Some(loaded) = tx.load(lease.attempt)? else { continue };
        // An earlier claim of the attempt holds nothing.
        if loaded.attempt.lease_generation == Some(lease.generation)
            && occupies(&loaded.run, &loaded.attempt, &loaded.revision.policy())
        {
            busy.extend(lease.devices.iter().map(|device| (device.clone(), loaded.run.id)));
        }
    }
    Ok(busy)
}
