//! What a person says of tasks, and how they are shown.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use leasehold_core::actor::Actor;
use leasehold_core::cancel;
use leasehold_core::chain::Broken;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::revision::Revision;
use leasehold_core::run::{Run, RunState};
use leasehold_core::task::{self, Open, Plan, PlanMoved, Step, Task};
use leasehold_store::call::{ApplyTasks, DeleteTask};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::{PlanView, TaskRevision, TaskView};

use super::apply::{Loaded, apply as write_change};
use super::column::{Bound, Column as _, list, values};
use super::lock::Locks;
use super::rows::{self, Columns, run_columns, task_columns};
use super::transaction::{Decided, Fault, Tx, Unlocked};
use super::triggers::Edit;
use super::{audit, chains, load, projects, triggers};

/// Tasks that one statement writes.
const BATCH: usize = 256;

/// What applying would do, or why the tasks cannot follow each other so.
pub(super) async fn plan(
    tx: &Tx,
    project: &ProjectName,
    wanted: &BTreeMap<TaskName, Revision>,
    prune: bool,
    cascade: bool,
) -> Result<Result<PlanView, Broken>, Fault> {
    let known = known(tx, project).await?;
    let plan = Plan::of(&known, &digests(wanted), prune);
    if let Err(broken) = chains::edges(tx, project, &known).await?.planned(&plan, wanted) {
        return Ok(Err(broken));
    }
    let mut refused = BTreeMap::new();
    for task in leaving(&plan, &known) {
        if let Err(why) = task::deleted(task, open(&open_runs(tx, task).await?), cascade, tx.now.utc) {
            refused.insert(task.name.clone(), why);
        }
    }
    Ok(Ok(PlanView { plan, refused }))
}

/// The tasks that go by this plan.
fn leaving<'k>(plan: &Plan, known: &'k BTreeMap<TaskName, Task>) -> impl Iterator<Item = &'k Task> {
    plan.0.iter().filter(|line| line.step == Step::Remove).filter_map(|line| known.get(&line.name))
}

fn digests(tasks: &BTreeMap<TaskName, Revision>) -> BTreeMap<TaskName, Digest> {
    tasks.iter().map(|(name, revision)| (name.clone(), revision.digest())).collect()
}

/// Makes the tasks of a project what was said.
pub(super) async fn apply(db: Unlocked, call: &ApplyTasks) -> Decided<(), Unmet> {
    let kept: Vec<TaskName> = call.tasks.keys().cloned().collect();
    let tx = &db.lock(Locks::Tasks { project: &call.project, leaving: &[], kept: &kept, pruned: call.prune }).await?;
    let known = known(tx, &call.project).await?;
    let plan = Plan::of(&known, &digests(&call.tasks), call.prune);
    if plan.is_settled() {
        return Ok(Outcome::Replayed(()));
    }
    if call.plan.is_some_and(|shown| shown != plan.digest()) {
        return Ok(Outcome::Refused(PlanMoved.into()));
    }
    let edges = chains::edges(tx, &call.project, &known).await?;
    if let Err(broken) = edges.clone().planned(&plan, &call.tasks) {
        return Ok(Outcome::Refused(broken.into()));
    }
    let mut gone = Vec::new();
    for task in leaving(&plan, &known) {
        let runs = open_runs(tx, task).await?;
        match task::deleted(task, open(&runs), call.cascade, tx.now.utc) {
            Ok(Some(next)) => gone.push((next, runs)),
            Ok(None) => {}
            Err(why) => return Ok(Outcome::Refused(Unmet::Task(task.name.clone(), why))),
        }
    }
    projects::ensure(tx, &call.project).await?;
    let mut changed = Vec::new();
    for line in plan.0.iter().filter(|line| line.step != Step::Keep) {
        if let Some(revision) = call.tasks.get(&line.name) {
            let digest = revision.digest();
            let next = task::applied(known.get(&line.name), &call.project, &line.name, digest, tx.now.utc);
            changed.extend(next.map(|next| Changed { next, revision, before: line.before }));
        }
    }
    write(tx, &call.actor, changed).await?;
    let none = BTreeSet::new();
    let mut follow = Vec::new();
    for line in plan.0.iter().filter(|line| line.step != Step::Keep) {
        let after = call.tasks.get(&line.name).map_or(&none, Revision::after);
        if edges.follows(&line.name) || !after.is_empty() {
            follow.push((&line.name, after));
        }
    }
    for (task, runs) in &gone {
        remove(tx, &call.actor, task, runs).await?;
    }
    chains::follow(tx, &call.project, &follow).await?;
    Ok(Outcome::Applied(()))
}

/// Deletes a task.
pub(super) async fn delete(db: Unlocked, call: &DeleteTask) -> Decided<(), Unmet> {
    let leaving = std::slice::from_ref(&call.name);
    let tx = &db.lock(Locks::Tasks { project: &call.project, leaving, kept: &[], pruned: false }).await?;
    let Some(known) = one(tx, &call.project, &call.name).await? else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    if known.deleted_at.is_none() && call.seen.is_some_and(|seen| seen != known.revision) {
        return Ok(Outcome::Refused(Unmet::Moved("task")));
    }
    let runs = open_runs(tx, &known).await?;
    match task::deleted(&known, open(&runs), call.cascade, tx.now.utc) {
        Ok(Some(task)) => {
            let followers = chains::followers(tx, &task).await?;
            if !followers.is_empty() {
                return Ok(Outcome::Refused(Broken::Followed { task: task.name, followers }.into()));
            }
            remove(tx, &call.actor, &task, &runs).await?;
            chains::follow(tx, &task.project, &[(&task.name, &BTreeSet::new())]).await?;
            Ok(Outcome::Applied(()))
        }
        Ok(None) => Ok(Outcome::Replayed(())),
        Err(why) => Ok(Outcome::Refused(Unmet::Task(call.name.clone(), why))),
    }
}

/// One task.
pub(super) async fn task(tx: &Tx, project: &ProjectName, name: &TaskName) -> Result<Option<TaskView>, Fault> {
    match one(tx, project, name).await?.and_then(Task::living) {
        Some(task) => view(tx, task).await.map(Some),
        None => Ok(None),
    }
}

/// The revision that a task has now; none of one that is not there.
pub(super) async fn number(tx: &Tx, project: &ProjectName, name: &TaskName) -> Result<Option<RevisionNumber>, Fault> {
    Ok(one(tx, project, name).await?.and_then(Task::living).map(|task| task.number))
}

/// A page of tasks, in the order of their names.
pub(super) async fn tasks(
    tx: &Tx,
    project: &ProjectName,
    after: Option<&TaskName>,
    limit: usize,
) -> Result<Vec<TaskView>, Fault> {
    let after = after.map_or_else(String::new, ToString::to_string);
    let sql = concat!(
        "SELECT ",
        task_columns!(),
        " FROM task \
               WHERE project = $1 AND name > $2 AND deleted_at IS NULL ORDER BY name LIMIT $3"
    );
    let page = tx.all(sql, values![*project, after, limit], rows::task).await?;
    try_join_all(page.into_iter().map(|task| view(tx, task))).await
}

/// A page of a task's revisions, the newest first.
pub(super) async fn history(
    tx: &Tx,
    project: &ProjectName,
    name: &TaskName,
    before: Option<RevisionNumber>,
    limit: usize,
) -> Result<Vec<TaskRevision>, Fault> {
    let before = before.map_or(i64::MAX, RevisionNumber::to_stored);
    let sql = "SELECT number, revision, applied_at, applied_by FROM task_revision \
               WHERE project = $1 AND task = $2 AND number < $3 ORDER BY number DESC LIMIT $4";
    tx.all(sql, values![*project, *name, before, limit], rows::task_revision).await
}

/// One of a task's revisions.
pub(super) async fn revision(
    tx: &Tx,
    project: &ProjectName,
    name: &TaskName,
    number: RevisionNumber,
) -> Result<Option<(TaskRevision, Revision)>, Fault> {
    let sql = "SELECT t.number, t.revision, t.applied_at, t.applied_by, r.canonical FROM task_revision t \
               JOIN revision r ON r.digest = t.revision WHERE t.project = $1 AND t.task = $2 AND t.number = $3";
    let read = |columns: &mut Columns<'_>| Ok((rows::task_revision(columns)?, columns.next()?));
    tx.first(sql, values![*project, *name, number], read).await
}

/// A task as it is from now on.
struct Changed<'a> {
    next: Task,
    revision: &'a Revision,
    before: Option<Digest>,
}

/// A few statements for all of them, however many they are.
async fn write(tx: &Tx, actor: &Actor, mut changed: Vec<Changed<'_>>) -> Result<(), Fault> {
    // In the order of their digests, and all of them before anything else: of two that write the same ones, one waits.
    changed.sort_by(|one, other| one.next.revision.as_bytes().cmp(other.next.revision.as_bytes()));
    for batch in changed.chunks(BATCH) {
        let canonical = batch.iter().map(|one| Bound::Bytes(one.revision.to_canonical_bytes().into())).collect();
        let digests = list(batch.iter().map(|one| &one.next.revision));
        let sql = "INSERT INTO revision (digest, canonical) SELECT * FROM unnest($1::bytea[], $2::bytea[]) \
                   ON CONFLICT DO NOTHING";
        tx.execute(sql, [digests, Bound::List(canonical)]).await?;
    }
    for batch in changed.chunks(BATCH) {
        let Some(first) = batch.first() else { continue };
        let names = || list(batch.iter().map(|one| &one.next.name));
        let numbers = || list(batch.iter().map(|one| &one.next.number));
        let revisions = || list(batch.iter().map(|one| &one.next.revision));
        let created = list(batch.iter().map(|one| &one.next.created_at));
        let sql = "INSERT INTO task (project, name, revision, number, created_at, changed_at) \
                   SELECT $1, n.name, n.revision, n.number, n.created_at, $6 FROM \
                   unnest($2::text[], $3::bytea[], $4::bigint[], $5::bigint[]) AS n (name, revision, number, created_at) \
                   ON CONFLICT (project, name) DO UPDATE SET revision = excluded.revision, number = excluded.number, \
                   created_at = excluded.created_at, changed_at = excluded.changed_at, deleted_at = NULL, \
                   pause_by = CASE WHEN task.deleted_at IS NULL THEN task.pause_by END, \
                   pause_why = CASE WHEN task.deleted_at IS NULL THEN task.pause_why END, \
                   pause_at = CASE WHEN task.deleted_at IS NULL THEN task.pause_at END";
        let project = &first.next.project;
        tx.execute(sql, [project.bind(), names(), revisions(), numbers(), created, tx.now.utc.bind()]).await?;
        let by = actor.to_string();
        let sql = "INSERT INTO task_revision (project, task, number, revision, applied_at, applied_by) \
                   SELECT $1, n.name, n.number, n.revision, $5, $6 \
                   FROM unnest($2::text[], $3::bigint[], $4::bytea[]) AS n (name, number, revision)";
        tx.execute(sql, [project.bind(), names(), numbers(), revisions(), tx.now.utc.bind(), by.bind()]).await?;
        let audited = batch.iter().map(|one| async move {
            let before = one.before.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
            let subject = format!("task/{}/{}", one.next.project, one.next.name);
            audit::write(tx, actor, "apply_task", subject, &[("before", &before), ("after", &one.next.revision)]).await
        });
        try_join_all(audited).await?;
        let edits =
            batch.iter().map(|one| Edit { task: &one.next, before: one.before, revision: one.revision }).collect();
        triggers::edit(tx, edits).await?;
    }
    Ok(())
}

/// Deletes a task of which [`task::deleted`] said so, and cancels its runs.
async fn remove(tx: &Tx, actor: &Actor, task: &Task, runs: &[Run]) -> Result<(), Fault> {
    triggers::end(tx, task).await?;
    let cancelled = runs.len();
    for run in runs {
        let attempt = load::latest_attempt(tx, run).await?;
        let (_, change) = cancel::cancel(run, &attempt, actor, Some(task::CASCADE), tx.now)
            .map_err(|refused| Fault::Damaged(format!("run {}: {refused}", run.id)))?;
        write_change(tx, &Loaded::of(run, &[&attempt]), &change).await?;
    }
    let sql = "UPDATE task SET deleted_at = $3 WHERE project = $1 AND name = $2";
    tx.execute_one("task", sql, values![task.project, task.name, task.deleted_at]).await?;
    let subject = format!("task/{}/{}", task.project, task.name);
    audit::write(tx, actor, "delete_task", subject, &[("before", &task.revision), ("cancelled", &cancelled)]).await
}

fn open(runs: &[Run]) -> Open {
    let lost = runs.iter().filter(|run| run.state == RunState::Lost).count();
    Open { stoppable: runs.len().saturating_sub(lost), lost }
}

/// The runs of a task that have not ended; one more than a deletion may take is enough to know that it may not.
async fn open_runs(tx: &Tx, task: &Task) -> Result<Vec<Run>, Fault> {
    let sql = concat!(
        "SELECT ",
        run_columns!("r."),
        " FROM run r WHERE r.state IN ('pending', 'dispatching', 'running', 'retry_wait', 'lost') \
          AND r.project = $1 AND r.task = $2 ORDER BY r.id LIMIT $3"
    );
    tx.all(sql, values![task.project, task.name, task::OPEN_RUNS], rows::run).await
}

async fn known(tx: &Tx, project: &ProjectName) -> Result<BTreeMap<TaskName, Task>, Fault> {
    let sql = concat!("SELECT ", task_columns!(), " FROM task WHERE project = $1");
    let tasks = tx.all(sql, values![*project], rows::task).await?;
    Ok(tasks.into_iter().map(|task| (task.name.clone(), task)).collect())
}

pub(super) async fn one(tx: &Tx, project: &ProjectName, name: &TaskName) -> Result<Option<Task>, Fault> {
    let sql = concat!(
        "SELECT ",
        task_columns!(),
        " FROM task \
               WHERE project = $1 AND name = $2"
    );
    tx.first(sql, values![*project, *name], rows::task).await
}

async fn view(tx: &Tx, task: Task) -> Result<TaskView, Fault> {
    let sql = "SELECT canonical FROM revision WHERE digest = $1";
    Ok(TaskView { revision: tx.only(sql, values![task.revision], rows::column).await?, task })
}
