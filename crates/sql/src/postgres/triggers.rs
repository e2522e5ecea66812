//! Triggers: what an edit of their task does to them, and what they fire.
//!
//! The task's row is the lock of its triggers: of two replicas that find one due, the second passes it over and waits for
//! nobody. A trigger whose rows are damaged is logged, passed over and looked at later: it must not keep every other from
//! firing.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::actor::Actor;
use leasehold_core::cancel;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{RunId, TaskName};
use leasehold_core::limits::{DAMAGED_LOOK, OWING_LOOK, PAGE};
use leasehold_core::revision::Revision;
use leasehold_core::schedule::{Blocking, Line};
use leasehold_core::task::Task;
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_core::trigger::{KeptTrigger, Moved, Timed, TriggerKey, Wish, edited};
use leasehold_store::call::TriggersAfter;
use leasehold_store::view::{Fired, TriggerView};

use super::apply::{self, apply};
use super::column::{Column as _, list, values};
use super::rows::{self, trigger_columns};
use super::transaction::{Connection, Fault, Tx, Unlocked};
use super::{ledger, load, lock};

/// How soon a scan looks again at what another call had in its hands.
const SKIPPED: Millis = Millis::new(100);

/// Runs of a task that stand in the way of its next by where they stand: see [`leasehold_core::schedule::stands_in_the_way`].
macro_rules! standing {
    ($project:literal, $task:literal) => {
        concat!(
            "r.project = ",
            $project,
            " AND r.task = ",
            $task,
            " AND r.task IS NOT NULL AND (r.state IN ('pending', 'dispatching', 'running', 'retry_wait') \
             OR (r.state = 'lost' AND r.mutex))"
        )
    };
}

/// A task that gets another revision.
pub(super) struct Edit<'a> {
    /// As it is from now on.
    pub(super) task: &'a Task,
    /// What it had.
    pub(super) before: Option<Digest>,
    /// What it gets.
    pub(super) revision: &'a Revision,
}

/// The triggers of tasks of one project that get other revisions.
pub(super) async fn edit(tx: &Tx, edits: Vec<Edit<'_>>) -> Result<(), Fault> {
    let mut kept = of_tasks(tx, &edits).await?;
    let mut begun = Vec::new();
    for Edit { task, before, revision } in edits {
        let kept = kept.remove(&task.name).unwrap_or_default();
        if kept.is_empty() && revision.triggers().is_empty() {
            continue;
        }
        let old = match before.filter(|_| !kept.is_empty()) {
            Some(digest) => Some(revision_of(tx, digest).await?),
            None => None,
        };
        let (paused, now) = (task.pause.is_some(), tx.now.utc);
        let edited = edited(&task.project, &task.name, kept, old.as_ref(), revision, paused, now)
            .map_err(|error| Fault::Damaged(format!("task {}: {error}", task.name)))?;
        if let Some(old) = old {
            for (kept, timed, wish) in edited.moved {
                let key = kept.key.clone();
                carry_out(tx, &old, &timed, &wish, kept).await?;
                if matches!(wish, Wish::Leave) {
                    remove(tx, &key).await?;
                }
            }
        }
        for key in &edited.gone {
            remove(tx, key).await?;
        }
        begun.extend(edited.begun);
    }
    save(tx, &begun).await
}

/// The triggers of a task that is deleted.
pub(super) async fn end(tx: &Tx, task: &Task) -> Result<(), Fault> {
    let kept = of_task(tx, task).await?;
    if kept.is_empty() {
        return Ok(());
    }
    let revision = revision_of(tx, task.revision).await?;
    for kept in kept {
        if let Some(gap) = timed(&kept, &revision)?.and_then(|timed| timed.end(kept.progress, tx.now.utc)) {
            ledger::write(tx, &kept.key, &revision, &[Line::Gap(gap)], &mut Fired::default()).await?;
        }
        remove(tx, &kept.key).await?;
    }
    Ok(())
}

/// Settles what is due.
pub(super) async fn fire(db: Unlocked, limit: usize) -> Result<Fired, Fault> {
    let now = db.peek_clock().await?;
    let mut due = due(&db, now.utc, limit).await?;
    let mut fired = Fired { more: due.len() > limit, ..Fired::default() };
    due.truncate(limit);
    let tasks: BTreeSet<_> = due.iter().map(|key| (key.project.clone(), key.task.clone())).collect();
    let tasks: Vec<_> = tasks.into_iter().collect();
    let (tx, free) = &db.lock_free_tasks(&tasks).await?;
    let mut skipped = false;
    for key in due {
        if !free.iter().any(|(project, task)| (project, task) == (&key.project, &key.task)) {
            skipped = true;
            continue;
        }
        if fired.runs.len() >= PAGE {
            fired.more = true;
            break;
        }
        settle(tx, &key, &mut fired).await?;
    }
    let next = next(tx).await?.map(|at| at.since(tx.now.utc));
    let soon = [(owing(tx).await?, OWING_LOOK), (skipped, SKIPPED)];
    fired.next = next.into_iter().chain(soon.into_iter().filter_map(|(does, soon)| does.then_some(soon))).min();
    // Where another has all that is left, the next page would be the same one: it is looked at again soon enough.
    fired.more &= !(skipped && fired.runs.is_empty());
    if skipped {
        fired.next = Some(SKIPPED);
    }
    Ok(fired)
}

async fn settle(tx: &Tx, key: &TriggerKey, fired: &mut Fired) -> Result<(), Fault> {
    let loaded = trigger_with_revision(tx, key).await;
    let Some(loaded) = load::readable("trigger", loaded)? else {
        let later = tx.now.utc.plus(DAMAGED_LOOK);
        let sql = "UPDATE task_trigger SET look_at = $4 WHERE project = $1 AND task = $2 AND name = $3";
        tx.execute(sql, values![key.project, key.task, key.name, later]).await?;
        return Ok(());
    };
    // It may be gone since its key was read.
    let Some(Loaded { kept, revision, timed }) = loaded else { return Ok(()) };
    let blocking = blocking(tx, key).await?;
    let moved = timed.settle(&kept, &blocking, tx.now.utc);
    if moved.changes(&kept) {
        write(tx, &revision, moved, fired).await?;
    }
    Ok(())
}

/// When the next one is to be looked at.
async fn next(db: &Connection) -> Result<Option<UtcMillis>, Fault> {
    let sql = "SELECT look_at FROM task_trigger WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1";
    db.first(sql, values![], rows::column).await
}

/// Whether anything waits for its turn.
async fn owing(db: &Connection) -> Result<bool, Fault> {
    db.only("SELECT EXISTS (SELECT FROM task_trigger WHERE owes)", values![], rows::column).await
}

/// The triggers to look at, one more than `limit` where there are more: those whose time has come, and those that wait for
/// their turn and have nothing in their way any more.
async fn due(db: &Connection, now: UtcMillis, limit: usize) -> Result<Vec<TriggerKey>, Fault> {
    let most = limit.saturating_add(1);
    let sql = "SELECT project, task, name FROM task_trigger WHERE look_at <= $1 \
               ORDER BY look_at, project, task, name LIMIT $2";
    let mut due = db.all(sql, values![now, most], rows::trigger_key).await?;
    let sql = concat!(
        "SELECT project, task, name FROM task_trigger t WHERE owes AND NOT EXISTS (SELECT FROM run r WHERE ",
        standing!("t.project", "t.task"),
        ") AND NOT EXISTS (SELECT FROM attempt a JOIN run r ON r.id = a.run WHERE a.may_live \
         AND r.project = t.project AND r.task = t.task) LIMIT $1"
    );
    let known: BTreeSet<TriggerKey> = due.iter().cloned().collect();
    let free = db.all(sql, values![most], rows::trigger_key).await?;
    due.extend(free.into_iter().filter(|key| !known.contains(key)));
    due.truncate(most);
    Ok(due)
}

/// Carries out a wish, however many evaluations it takes: a page of what is due each.
pub(super) async fn carry_out(
    tx: &Tx,
    revision: &Revision,
    timed: &Timed,
    wish: &Wish,
    mut kept: KeptTrigger,
) -> Result<(), Fault> {
    loop {
        let asks = timed.asks(&kept.progress, tx.now.utc);
        let blocking = if asks { blocking(tx, &kept.key).await? } else { Vec::new() };
        let moved = timed.carry_out(wish, &kept, &blocking, tx.now.utc);
        kept = moved.kept.clone();
        let again = moved.again;
        write(tx, revision, moved, &mut Fired::default()).await?;
        if !again {
            return Ok(());
        }
    }
}

/// Writes what an evaluation made of a trigger.
pub(super) async fn write(tx: &Tx, revision: &Revision, moved: Moved, fired: &mut Fired) -> Result<(), Fault> {
    let Moved { kept, lines, cancel, again } = moved;
    // A run in the hands of another call is left to the next look: whoever has it may want what this call has.
    let cancel = if cancel.is_empty() { cancel } else { lock::free_runs(tx, &cancel).await? };
    for id in cancel {
        let Some(run) = load::run(tx, id).await? else { continue };
        let attempt = load::latest_attempt(tx, &run).await?;
        // What has ended and may live still is not cancelled: it is waited for.
        if let Ok((_, change)) = cancel::cancel(&run, &attempt, &Actor::System, Some(cancel::OVERLAP), tx.now) {
            apply(tx, &apply::Loaded::of(&run, &[&attempt]), &change).await?;
            fired.runs.push(id);
            fired.workers.extend(attempt.worker);
        }
    }
    ledger::write(tx, &kept.key, revision, &lines, fired).await?;
    fired.more |= again;
    save(tx, std::slice::from_ref(&kept)).await
}

/// Writes triggers of one project; a statement for as many as there are.
pub(super) async fn save(tx: &Tx, kept: &[KeptTrigger]) -> Result<(), Fault> {
    let Some(first) = kept.first() else { return Ok(()) };
    let times = |of: fn(&KeptTrigger) -> Option<UtcMillis>| kept.iter().map(of).collect::<Vec<_>>();
    let (next, look) = (times(|kept| kept.progress.next), times(|kept| kept.look_at));
    let backlog_next = times(|kept| kept.progress.backlog.map(|backlog| backlog.next));
    let backlog_last = times(|kept| kept.progress.backlog.map(|backlog| backlog.last));
    let (waiting, paused_at) = (times(|kept| kept.progress.waiting), times(|kept| kept.pause.as_ref().map(|p| p.at)));
    let paused: Vec<bool> = kept.iter().map(|kept| kept.progress.paused).collect();
    let owes: Vec<bool> = kept.iter().map(|kept| kept.progress.owes() && !kept.progress.paused).collect();
    let by: Vec<_> = kept.iter().map(|kept| kept.pause.as_ref().map(|pause| pause.by.clone())).collect();
    let why: Vec<_> = kept.iter().map(|kept| kept.pause.as_ref().and_then(|pause| pause.why.clone())).collect();
    let sql = "INSERT INTO task_trigger (project, task, name, kind, next_at, backlog_next, backlog_last, waiting_at, paused, \
               owes, look_at, pause_by, pause_why, pause_at) \
               SELECT $1, n.* FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], \
               $8::bigint[], $9::boolean[], $10::boolean[], $11::bigint[], $12::text[], $13::text[], $14::bigint[]) AS n \
               ON CONFLICT (project, task, name) DO UPDATE SET kind = excluded.kind, next_at = excluded.next_at, \
               backlog_next = excluded.backlog_next, backlog_last = excluded.backlog_last, \
               waiting_at = excluded.waiting_at, paused = excluded.paused, owes = excluded.owes, \
               look_at = excluded.look_at, pause_by = excluded.pause_by, pause_why = excluded.pause_why, \
               pause_at = excluded.pause_at";
    let values = [
        first.key.project.bind(),
        list(kept.iter().map(|kept| &kept.key.task)),
        list(kept.iter().map(|kept| &kept.key.name)),
        list(kept.iter().map(|kept| &kept.kind)),
        list(&next),
        list(&backlog_next),
        list(&backlog_last),
        list(&waiting),
        list(&paused),
        list(&owes),
        list(&look),
        list(&by),
        list(&why),
        list(&paused_at),
    ];
    tx.execute(sql, values).await?;
    Ok(())
}

async fn remove(tx: &Tx, key: &TriggerKey) -> Result<(), Fault> {
    let sql = "DELETE FROM task_trigger WHERE project = $1 AND task = $2 AND name = $3";
    tx.execute_one("trigger", sql, values![key.project, key.task, key.name]).await
}

pub(super) async fn of_task(tx: &Tx, task: &Task) -> Result<Vec<KeptTrigger>, Fault> {
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        " FROM task_trigger t WHERE t.project = $1 AND t.task = $2 ORDER BY t.name"
    );
    tx.all(sql, values![task.project, task.name], rows::trigger).await
}

async fn of_tasks(tx: &Tx, edits: &[Edit<'_>]) -> Result<BTreeMap<TaskName, Vec<KeptTrigger>>, Fault> {
    let mut of: BTreeMap<TaskName, Vec<KeptTrigger>> = BTreeMap::new();
    let Some(first) = edits.first() else { return Ok(of) };
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        " FROM task_trigger t WHERE t.project = $1 AND t.task = ANY ($2) ORDER BY t.task, t.name"
    );
    let values = [first.task.project.bind(), list(edits.iter().map(|edit| &edit.task.name))];
    for kept in tx.all(sql, values, rows::trigger).await? {
        of.entry(kept.key.task.clone()).or_default().push(kept);
    }
    Ok(of)
}

/// What a task has or had.
pub(super) async fn revision_of(tx: &Tx, digest: Digest) -> Result<Revision, Fault> {
    let sql = "SELECT canonical FROM revision WHERE digest = $1";
    let revision = tx.first(sql, values![digest], rows::column).await?;
    revision.ok_or_else(|| Fault::Damaged(format!("there is no revision {digest}")))
}

/// A trigger with what its task says of it.
struct Loaded {
    kept: KeptTrigger,
    revision: Revision,
    timed: Timed,
}

async fn trigger_with_revision(tx: &Tx, key: &TriggerKey) -> Result<Option<Loaded>, Fault> {
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        ", v.canonical FROM task_trigger t JOIN task k ON k.project = t.project AND k.name = t.task \
         JOIN revision v ON v.digest = k.revision WHERE t.project = $1 AND t.task = $2 AND t.name = $3"
    );
    let read = |columns: &mut rows::Columns<'_>| Ok((rows::trigger(columns)?, columns.next()?));
    let found: Option<(KeptTrigger, Revision)> = tx.first(sql, values![key.project, key.task, key.name], read).await?;
    let Some((kept, revision)) = found else { return Ok(None) };
    match timed(&kept, &revision)? {
        Some(timed) => Ok(Some(Loaded { kept, revision, timed })),
        None => Err(Fault::Damaged(format!("task {} has no schedule {}", key.task, key.name))),
    }
}

/// The trigger's times and rules, by the revision of its task; none of one that waits for calls.
pub(super) fn timed(kept: &KeptTrigger, revision: &Revision) -> Result<Option<Timed>, Fault> {
    let Some(trigger) = revision.triggers().iter().find(|trigger| trigger.name == kept.key.name) else {
        return Ok(None);
    };
    Timed::of(&kept.key, trigger).map_err(|error| Fault::Damaged(format!("trigger {}: {error}", kept.key.name)))
}

/// What stands in the way of a run of the trigger's task, the oldest first.
pub(super) async fn blocking(tx: &Tx, key: &TriggerKey) -> Result<Vec<Blocking>, Fault> {
    let read = |columns: &mut rows::Columns<'_>| Ok((columns.next()?, columns.next()?));
    let sql = concat!(
        "SELECT r.id, r.intent_reason IS NOT NULL FROM run r WHERE ",
        standing!("$1", "$2"),
        " ORDER BY r.id LIMIT $3"
    );
    let mut blocking: BTreeMap<RunId, bool> =
        tx.all(sql, values![key.project, key.task, PAGE], read).await?.into_iter().collect();
    let sql = "SELECT r.id, r.intent_reason IS NOT NULL FROM attempt a JOIN run r ON r.id = a.run \
               WHERE a.may_live AND r.project = $1 AND r.task = $2 ORDER BY a.run LIMIT $3";
    blocking.extend(tx.all(sql, values![key.project, key.task, PAGE], read).await?);
    Ok(blocking.into_iter().take(PAGE).map(|(run, stopping)| Blocking { run, stopping }).collect())
}

/// A page of triggers, in the order of their tasks and names.
pub(super) async fn triggers(tx: &Tx, page: &TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, Fault> {
    let (task, name) =
        page.after.as_ref().map_or_else(Default::default, |(task, name)| (task.to_string(), name.to_string()));
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        ", k.pause_by, k.pause_why, k.pause_at, v.canonical, w.made_by, w.made_at FROM task_trigger t \
         JOIN task k ON k.project = t.project AND k.name = t.task JOIN revision v ON v.digest = k.revision \
         LEFT JOIN webhook_token w ON w.project = t.project AND w.task = t.task AND w.name = t.name \
         WHERE t.project = $1 AND (t.task, t.name) > ($2, $3) AND ($4::text IS NULL OR t.task = $4) \
         ORDER BY t.task, t.name LIMIT $5"
    );
    tx.all(sql, values![page.project, task, name, page.task, limit], rows::trigger_view).await
}
