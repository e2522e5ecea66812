//! Places: how many runs hold one of their task or project, and which; and which devices of a worker are held. Counted each
//! time from the rows themselves, under the lock of what has them, in statements that come after it.
//!
//! The statements repeat [`leasehold_core::occupancy::hold`], so that a count reads one narrow index instead of every
//! record that it counts; a case of the contract suite holds them to it. The count itself stands in the schema
//! (`places_of_task` and its like): the plain case of a claim counts there too.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{try_join, try_join_all};
use leasehold_core::device::{DeviceId, Devices};
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::limits::HOLDERS;
use leasehold_core::occupancy::{Holder, LimitFact, LimitOf, Limited, Places, hold};
use leasehold_core::run::{Policy, Run};
use leasehold_core::session::Session;
use leasehold_core::time::UtcMillis;
use leasehold_store::view::RunSummary;

use super::column::values;
use super::transaction::{Connection, Fault, Tx};
use super::{queries, rows};

/// Runs that hold a place by where they stand.
macro_rules! held {
    () => {
        "(r.state IN ('dispatching', 'running') OR (r.state = 'lost' AND r.mutex))"
    };
}

/// Such runs of a project ($1), of one task of it where one is said ($2), without one run ($3).
macro_rules! standing {
    ($task:literal) => {
        concat!("FROM run r WHERE r.project = $1 AND ", $task, " AND r.id IS DISTINCT FROM $3::uuid AND ", held!())
    };
}

/// Others of them, by the first of their attempts of which something may still live.
macro_rules! alive {
    ($task:literal) => {
        concat!(
            "FROM attempt a JOIN run r ON r.id = a.run WHERE a.may_live AND r.project = $1 AND ",
            $task,
            " AND r.id IS DISTINCT FROM $3::uuid AND NOT ",
            held!(),
            " AND NOT EXISTS (SELECT 1 FROM attempt earlier WHERE earlier.may_live AND earlier.run = a.run \
             AND earlier.number < a.number)"
        )
    };
}

/// Those that have held a place longest: since the claim of the first attempt that holds it.
macro_rules! longest {
    ($task:literal) => {
        concat!(
            "SELECT r.id, coalesce((SELECT claimed_at FROM attempt WHERE may_live AND run = r.id ORDER BY number LIMIT 1), \
             (SELECT claimed_at FROM attempt WHERE run = r.id AND number = r.latest), r.created_at) AS since ",
            standing!($task),
            " UNION ALL SELECT r.id, a.claimed_at AS since ",
            alive!($task),
            " ORDER BY since, id LIMIT $4"
        )
    };
}

/// How many runs of a project, or of one task of it, hold a place; without `but`.
pub(super) async fn occupied(
    db: &Connection,
    project: &ProjectName,
    task: Option<&TaskName>,
    but: Option<RunId>,
) -> Result<u32, Fault> {
    match task {
        Some(task) => db.only("SELECT places_of_task($1, $2, $3)", values![*project, *task, but], rows::column).await,
        None => db.only("SELECT places_of_project($1, $2)", values![*project, but], rows::column).await,
    }
}

/// The project's limit, if it has one.
pub(super) async fn of_project(
    db: &Connection,
    project: &ProjectName,
    but: Option<RunId>,
) -> Result<Option<Places>, Fault> {
    let sql = "SELECT concurrency FROM project WHERE name = $1";
    match db.first(sql, values![*project], rows::column::<Option<u32>, _>).await?.flatten() {
        Some(limit) => Ok(Some(Places { limit, occupied: occupied(db, project, None, but).await? })),
        None => Ok(None),
    }
}

/// The limits that a waiting run is under.
pub(super) async fn limits(db: &Connection, run: &Run, policy: &Policy) -> Result<Limited, Fault> {
    let task = async {
        match run.task.as_ref().zip(policy.concurrency) {
            Some((task, limit)) => {
                let occupied = occupied(db, &run.project, Some(task), Some(run.id)).await?;
                Ok(Some(Places { limit, occupied }))
            }
            None => Ok(None),
        }
    };
    let (task, project) = try_join(task, of_project(db, &run.project, Some(run.id))).await?;
    Ok(Limited { task, project })
}

/// The limits that a waiting run is under, with what holds their places.
pub(super) async fn facts(tx: &Tx, run: &Run, policy: &Policy) -> Result<Vec<LimitFact>, Fault> {
    let Limited { task, project } = limits(tx, run, policy).await?;
    let mut facts = Vec::new();
    if let Some((places, name)) = task.zip(run.task.as_ref()) {
        let holders = holders(tx, run, Some(name)).await?;
        facts.push(LimitFact { of: LimitOf::Task, name: name.to_string(), places, holders });
    }
    if let Some(places) = project {
        let holders = holders(tx, run, None).await?;
        facts.push(LimitFact { of: LimitOf::Project, name: run.project.to_string(), places, holders });
    }
    Ok(facts)
}

/// The first of those that hold the places which `run` waits for, by how long they have held them.
async fn holders(tx: &Tx, run: &Run, task: Option<&TaskName>) -> Result<Vec<Holder>, Fault> {
    let sql = if task.is_some() { longest!("r.task = $2") } else { longest!("$2::text IS NULL") };
    let longest: Vec<(RunId, UtcMillis)> = tx
        .all(sql, values![run.project, task.cloned(), run.id, HOLDERS], |columns| {
            Ok((columns.next()?, columns.next()?))
        })
        .await?;
    let holder = |(id, since): (RunId, UtcMillis)| async move {
        let view = queries::view(tx, id).await?;
        let policy = view.revision.policy();
        let held = view.attempts.iter().find_map(|attempt| Some((attempt, hold(&view.run, attempt, &policy)?)));
        Ok::<_, Fault>(held.map(|(attempt, hold)| Holder {
            run: id,
            name: RunSummary::name_of(&view.revision),
            attempt: attempt.number,
            hold,
            worker: attempt.worker.clone(),
            since,
        }))
    };
    Ok(try_join_all(longest.into_iter().map(holder)).await?.into_iter().flatten().collect())
}

/// The devices of a session's worker that something is, or may be, using.
pub(super) async fn busy_devices(db: &Connection, session: &Session) -> Result<BTreeSet<DeviceId>, Fault> {
    Ok(device_holders(db, session).await?.into_keys().collect())
}

/// The same, and of which run that is. A worker without any is not asked for.
pub(super) async fn device_holders(db: &Connection, session: &Session) -> Result<BTreeMap<DeviceId, RunId>, Fault> {
    if session.capabilities.gpus.is_empty() {
        return Ok(BTreeMap::new());
    }
    held_devices(db, &session.worker).await
}

async fn held_devices(db: &Connection, worker: &WorkerId) -> Result<BTreeMap<DeviceId, RunId>, Fault> {
    // Of live attempts, by their active leases; of others, by what keeps their places held.
    let sql = "SELECT l.devices, a.run FROM lease l JOIN attempt a ON a.id = l.attempt \
               WHERE l.worker = $1 AND l.state = 'active' AND l.devices <> '' \
               UNION ALL \
               SELECT l.devices, a.run FROM attempt a JOIN run r ON r.id = a.run \
               JOIN lease l ON l.attempt = a.id AND l.generation = a.lease_generation \
               WHERE a.worker = $1 AND a.unsettled \
               AND (a.may_live OR (r.state = 'lost' AND r.mutex AND a.number = r.latest)) AND l.devices <> ''";
    let held: Vec<(Devices, RunId)> = db.all(sql, values![*worker], |row| Ok((row.next()?, row.next()?))).await?;
    Ok(held.iter().flat_map(|(devices, run)| devices.iter().map(|device| (device.clone(), *run))).collect())
}
