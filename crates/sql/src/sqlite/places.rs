//! Places: how many runs hold one of their task or project, and which; and which devices of a worker are held. Counted each
//! time from the rows themselves.
//!
//! The statements repeat [`leasehold_core::occupancy::hold`], so that a count reads one narrow index instead of every
//! record that it counts; a case of the contract suite holds them to it.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::device::{DeviceId, Devices};
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::limits::HOLDERS;
use leasehold_core::occupancy::{Holder, LimitFact, LimitOf, Limited, Places, hold};
use leasehold_core::run::{Policy, Run};
use leasehold_core::session::Session;
use leasehold_core::time::UtcMillis;
use leasehold_store::view::RunSummary;

use super::column::values;
use super::transaction::{Fault, Tx};
use super::{queries, rows};

/// Runs that hold a place by where they stand.
macro_rules! held {
    () => {
        "(run.state IN ('dispatching', 'running') OR (run.state = 'lost' AND run.mutex = 1))"
    };
}

/// Such runs of a project (?1), of one task of it where one is said (?2), without one run (?3).
macro_rules! standing {
    ($task:literal) => {
        concat!(
            "FROM run INDEXED BY run_held WHERE run.project = ?1 AND ",
            $task,
            " AND run.id IS NOT ?3 AND ",
            held!()
        )
    };
}

/// Others of them, by the first of their attempts of which something may still live.
macro_rules! alive {
    ($task:literal) => {
        concat!(
            "FROM attempt INDEXED BY attempt_may_live CROSS JOIN run ON run.id = attempt.run WHERE attempt.may_live = 1 \
             AND run.project = ?1 AND ",
            $task,
            " AND run.id IS NOT ?3 AND NOT ",
            held!(),
            " AND NOT EXISTS (SELECT 1 FROM attempt earlier WHERE earlier.may_live = 1 AND earlier.run = attempt.run \
             AND earlier.number < attempt.number)"
        )
    };
}

/// The claim of the first attempt that holds the place of a standing run.
macro_rules! since {
    () => {
        "SELECT run.id, coalesce((SELECT claimed_at FROM attempt INDEXED BY attempt_may_live WHERE may_live = 1 \
         AND attempt.run = run.id ORDER BY number LIMIT 1), \
         (SELECT claimed_at FROM attempt WHERE attempt.run = run.id AND number = run.latest), run.created_at) "
    };
}

/// How many runs of a project, or of one task of it, hold a place; without `but`.
pub(super) fn occupied(
    tx: &Tx<'_>,
    project: &ProjectName,
    task: Option<&TaskName>,
    but: Option<RunId>,
) -> Result<u32, Fault> {
    let [standing, alive] = match task {
        Some(_) => [
            concat!("SELECT count(*) ", standing!("run.task = ?2")),
            concat!("SELECT count(*) ", alive!("run.task = ?2")),
        ],
        None => {
            [concat!("SELECT count(*) ", standing!("?2 IS NULL")), concat!("SELECT count(*) ", alive!("?2 IS NULL"))]
        }
    };
    let count = |sql: &'static str| tx.only(sql, values![*project, task.cloned(), but], rows::column::<u32, _>);
    Ok(count(standing)?.saturating_add(count(alive)?))
}

/// The project's limit, if it has one.
pub(super) fn of_project(tx: &Tx<'_>, project: &ProjectName, but: Option<RunId>) -> Result<Option<Places>, Fault> {
    let sql = "SELECT concurrency FROM project WHERE name = ?1";
    match tx.first(sql, values![*project], rows::column::<Option<u32>, _>)?.flatten() {
        Some(limit) => Ok(Some(Places { limit, occupied: occupied(tx, project, None, but)? })),
        None => Ok(None),
    }
}

/// The limits that a waiting run is under.
pub(super) fn limits(tx: &Tx<'_>, run: &Run, policy: &Policy) -> Result<Limited, Fault> {
    let task = match run.task.as_ref().zip(policy.concurrency) {
        Some((task, limit)) => Some(Places { limit, occupied: occupied(tx, &run.project, Some(task), Some(run.id))? }),
        None => None,
    };
    Ok(Limited { task, project: of_project(tx, &run.project, Some(run.id))? })
}

/// The limits that a waiting run is under, with what holds their places.
pub(super) fn facts(tx: &Tx<'_>, run: &Run, policy: &Policy) -> Result<Vec<LimitFact>, Fault> {
    let Limited { task, project } = limits(tx, run, policy)?;
    let mut facts = Vec::new();
    if let Some((places, name)) = task.zip(run.task.as_ref()) {
        let holders = holders(tx, run, Some(name))?;
        facts.push(LimitFact { of: LimitOf::Task, name: name.to_string(), places, holders });
    }
    if let Some(places) = project {
        let holders = holders(tx, run, None)?;
        facts.push(LimitFact { of: LimitOf::Project, name: run.project.to_string(), places, holders });
    }
    Ok(facts)
}

/// The first of those that hold the places which `run` waits for, by how long they have held them.
fn holders(tx: &Tx<'_>, run: &Run, task: Option<&TaskName>) -> Result<Vec<Holder>, Fault> {
    let [standing, alive] = match task {
        Some(_) => [
            concat!(since!(), standing!("run.task = ?2")),
            concat!("SELECT run.id, attempt.claimed_at ", alive!("run.task = ?2")),
        ],
        None => [
            concat!(since!(), standing!("?2 IS NULL")),
            concat!("SELECT run.id, attempt.claimed_at ", alive!("?2 IS NULL")),
        ],
    };
    let mut longest: BTreeSet<(UtcMillis, RunId)> = BTreeSet::new();
    for sql in [standing, alive] {
        tx.each(sql, values![run.project, task.cloned(), run.id], |columns| {
            let (id, since) = (columns.next()?, columns.next()?);
            longest.insert((since, id));
            if longest.len() > HOLDERS {
                longest.pop_last();
            }
            Ok(true)
        })?;
    }
    let mut holders = Vec::new();
    for (since, id) in longest {
        let view = queries::view(tx, id)?;
        let policy = view.revision.policy();
        let held = view.attempts.iter().find_map(|attempt| Some((attempt, hold(&view.run, attempt, &policy)?)));
        holders.extend(held.map(|(attempt, hold)| Holder {
            run: id,
            name: RunSummary::name_of(&view.revision),
            attempt: attempt.number,
            hold,
            worker: attempt.worker.clone(),
            since,
        }));
    }
    Ok(holders)
}

/// Whether a run that waits holds a place itself: something of an earlier attempt may still live.
pub(super) fn holds(tx: &Tx<'_>, run: RunId) -> Result<bool, Fault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM attempt INDEXED BY attempt_may_live WHERE may_live = 1 AND run = ?1)";
    tx.only(sql, values![run], rows::column)
}

/// The devices of a session's worker that something is, or may be, using.
pub(super) fn busy_devices(tx: &Tx<'_>, session: &Session) -> Result<BTreeSet<DeviceId>, Fault> {
    Ok(device_holders(tx, session)?.into_keys().collect())
}

/// The same, and of which run that is. A worker without any is not asked for.
pub(super) fn device_holders(tx: &Tx<'_>, session: &Session) -> Result<BTreeMap<DeviceId, RunId>, Fault> {
    if session.capabilities.gpus.is_empty() {
        return Ok(BTreeMap::new());
    }
    held_devices(tx, &session.worker)
}

fn held_devices(tx: &Tx<'_>, worker: &WorkerId) -> Result<BTreeMap<DeviceId, RunId>, Fault> {
    // Of live attempts, by their active leases; of others, by what keeps their places held.
    let sql = "SELECT lease.devices, attempt.run FROM lease INDEXED BY lease_active_worker \
               CROSS JOIN attempt ON attempt.id = lease.attempt \
               WHERE lease.worker = ?1 AND lease.state = 'active' AND lease.devices <> '' \
               UNION ALL \
               SELECT lease.devices, attempt.run FROM attempt INDEXED BY attempt_open CROSS JOIN run ON run.id = attempt.run \
               JOIN lease ON lease.attempt = attempt.id AND lease.generation = attempt.lease_generation \
               WHERE attempt.worker = ?1 \
               AND (attempt.may_live = 1 OR (attempt.state = 'lost' AND attempt.resolution = 'none')) \
               AND (attempt.may_live = 1 OR (run.state = 'lost' AND run.mutex = 1 AND attempt.number = run.latest)) \
               AND lease.devices <> ''";
    let held: Vec<(Devices, RunId)> = tx.all(sql, values![*worker], |row| Ok((row.next()?, row.next()?)))?;
    Ok(held.iter().flat_map(|(devices, run)| devices.iter().map(|device| (device.clone(), *run))).collect())
}
