//! Triggers: what an edit of their task does to them, and what they fire.
//!
//! A trigger whose rows are damaged is logged, passed over and looked at later: it must not keep every other from firing.

use std::collections::BTreeSet;

use leasehold_core::actor::Actor;
use leasehold_core::cancel;
use leasehold_core::crypto::Digest;
use leasehold_core::id::RunId;
use leasehold_core::limits::{DAMAGED_LOOK, OWING_LOOK, PAGE};
use leasehold_core::revision::Revision;
use leasehold_core::schedule::{Blocking, Line};
use leasehold_core::task::Task;
use leasehold_core::time::UtcMillis;
use leasehold_core::trigger::{KeptTrigger, Moved, Timed, TriggerKey, Wish, edited};
use leasehold_store::call::TriggersAfter;
use leasehold_store::view::{Fired, TriggerView};

use super::apply::{self, apply};
use super::column::values;
use super::rows::{self, trigger_columns};
use super::transaction::{Fault, Tx};
use super::{ledger, load};

/// Runs of a task that stand in the way of its next by where they stand: see [`leasehold_core::schedule::stands_in_the_way`].
macro_rules! standing {
    ($project:literal, $task:literal) => {
        concat!(
            "run.project = ",
            $project,
            " AND run.task = ",
            $task,
            " AND run.task IS NOT NULL AND (run.state IN ('pending', 'dispatching', 'running', 'retry_wait') \
             OR (run.state = 'lost' AND run.mutex = 1))"
        )
    };
}

/// The triggers of a task that gets another revision.
pub(super) fn edit(tx: &Tx<'_>, task: &Task, before: Option<Digest>, revision: &Revision) -> Result<(), Fault> {
    let kept = of_task(tx, task)?;
    if kept.is_empty() && revision.triggers().is_empty() {
        return Ok(());
    }
    let old = before.map(|digest| load::revision(tx, digest)).transpose()?;
    let (paused, now) = (task.pause.is_some(), tx.now.utc);
    let edited = edited(&task.project, &task.name, kept, old.as_ref(), revision, paused, now)
        .map_err(|error| Fault::Damaged(format!("task {}: {error}", task.name)))?;
    if let Some(old) = old {
        for (kept, timed, wish) in edited.moved {
            let key = kept.key.clone();
            carry_out(tx, &old, &timed, &wish, kept)?;
            if matches!(wish, Wish::Leave) {
                remove(tx, &key)?;
            }
        }
    }
    edited.gone.iter().try_for_each(|key| remove(tx, key))?;
    edited.begun.iter().try_for_each(|kept| save(tx, kept))
}

/// The triggers of a task that is deleted.
pub(super) fn end(tx: &Tx<'_>, task: &Task) -> Result<(), Fault> {
    let kept = of_task(tx, task)?;
    if kept.is_empty() {
        return Ok(());
    }
    let revision = load::revision(tx, task.revision)?;
    for kept in kept {
        if let Some(gap) = timed(&kept, &revision)?.and_then(|timed| timed.end(kept.progress, tx.now.utc)) {
            ledger::write(tx, &kept.key, &revision, &[Line::Gap(gap)], &mut Fired::default())?;
        }
        remove(tx, &kept.key)?;
    }
    Ok(())
}

/// Settles what is due.
pub(super) fn fire(tx: &Tx<'_>, limit: usize) -> Result<Fired, Fault> {
    let due = due(tx, tx.now.utc, limit)?;
    let mut fired = Fired { more: due.len() > limit, ..Fired::default() };
    for key in due.into_iter().take(limit) {
        if fired.runs.len() >= PAGE {
            fired.more = true;
            break;
        }
        let loaded = trigger_with_revision(tx, &key);
        let Some(Loaded { kept, revision, timed }) = load::readable("trigger", loaded)? else {
            let later = tx.now.utc.plus(DAMAGED_LOOK);
            let sql = "UPDATE task_trigger SET look_at = ?4 WHERE project = ?1 AND task = ?2 AND name = ?3";
            tx.execute(sql, values![key.project, key.task, key.name, later])?;
            continue;
        };
        let blocking = blocking(tx, &key)?;
        let moved = timed.settle(&kept, &blocking, tx.now.utc);
        if moved.changes(&kept) {
            write(tx, &revision, moved, &mut fired)?;
        }
    }
    fired.next = next(tx)?.map(|at| at.since(tx.now.utc));
    if owing(tx)? {
        fired.next = Some(fired.next.map_or(OWING_LOOK, |next| next.min(OWING_LOOK)));
    }
    Ok(fired)
}

/// When the next one is to be looked at.
fn next(tx: &Tx<'_>) -> Result<Option<UtcMillis>, Fault> {
    let sql = "SELECT look_at FROM task_trigger INDEXED BY task_trigger_look WHERE look_at IS NOT NULL \
               ORDER BY look_at LIMIT 1";
    tx.first(sql, values![], rows::column)
}

/// Whether anything waits for its turn.
fn owing(tx: &Tx<'_>) -> Result<bool, Fault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM task_trigger INDEXED BY task_trigger_owing WHERE owes = 1)";
    tx.only(sql, values![], rows::column)
}

/// The triggers to look at, one more than `limit` where there are more: those whose time has come, and those that wait for
/// their turn and have nothing in their way any more.
fn due(tx: &Tx<'_>, now: UtcMillis, limit: usize) -> Result<Vec<TriggerKey>, Fault> {
    let most = limit.saturating_add(1);
    let sql = "SELECT project, task, name FROM task_trigger INDEXED BY task_trigger_look WHERE look_at <= ?1 \
               ORDER BY look_at, project, task, name LIMIT ?2";
    let mut due = tx.all(sql, values![now, most], rows::trigger_key)?;
    let sql = concat!(
        "SELECT project, task, name FROM task_trigger t INDEXED BY task_trigger_owing WHERE owes = 1 \
         AND NOT EXISTS (SELECT 1 FROM run INDEXED BY run_in_the_way WHERE ",
        standing!("t.project", "t.task"),
        ") AND NOT EXISTS (SELECT 1 FROM attempt INDEXED BY attempt_may_live CROSS JOIN run ON run.id = attempt.run \
         WHERE attempt.may_live = 1 AND run.project = t.project AND run.task = t.task) LIMIT ?1"
    );
    let known: BTreeSet<TriggerKey> = due.iter().cloned().collect();
    let free = tx.all(sql, values![most], rows::trigger_key)?;
    due.extend(free.into_iter().filter(|key| !known.contains(key)));
    due.truncate(most);
    Ok(due)
}

/// Carries out a wish, however many evaluations it takes: a page of what is due each.
pub(super) fn carry_out(
    tx: &Tx<'_>,
    revision: &Revision,
    timed: &Timed,
    wish: &Wish,
    mut kept: KeptTrigger,
) -> Result<(), Fault> {
    loop {
        let blocking = if timed.asks(&kept.progress, tx.now.utc) { blocking(tx, &kept.key)? } else { Vec::new() };
        let moved = timed.carry_out(wish, &kept, &blocking, tx.now.utc);
        kept = moved.kept.clone();
        let again = moved.again;
        write(tx, revision, moved, &mut Fired::default())?;
        if !again {
            return Ok(());
        }
    }
}

/// Writes what an evaluation made of a trigger.
pub(super) fn write(tx: &Tx<'_>, revision: &Revision, moved: Moved, fired: &mut Fired) -> Result<(), Fault> {
    let Moved { kept, lines, cancel, again } = moved;
    for id in cancel {
        let Some(run) = load::run(tx, id)? else { continue };
        let attempt = load::latest_attempt(tx, &run)?;
        // What has ended and may live still is not cancelled: it is waited for.
        if let Ok((_, change)) = cancel::cancel(&run, &attempt, &Actor::System, Some(cancel::OVERLAP), tx.now) {
            apply(tx, &apply::Loaded::of(&run, &[&attempt]), &change)?;
            fired.runs.push(id);
            fired.workers.extend(attempt.worker);
        }
    }
    ledger::write(tx, &kept.key, revision, &lines, fired)?;
    fired.more |= again;
    save(tx, &kept)
}

pub(super) fn save(tx: &Tx<'_>, kept: &KeptTrigger) -> Result<(), Fault> {
    let KeptTrigger { key, kind, progress, look_at, pause } = kept;
    tx.execute_one(
        "trigger",
        "INSERT INTO task_trigger (project, task, name, kind, next_at, backlog_next, backlog_last, waiting_at, paused, \
         owes, look_at, pause_by, pause_why, pause_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
         ON CONFLICT (project, task, name) DO UPDATE SET kind = excluded.kind, next_at = excluded.next_at, \
         backlog_next = excluded.backlog_next, backlog_last = excluded.backlog_last, waiting_at = excluded.waiting_at, \
         paused = excluded.paused, owes = excluded.owes, look_at = excluded.look_at, pause_by = excluded.pause_by, \
         pause_why = excluded.pause_why, pause_at = excluded.pause_at",
        values![
            key.project,
            key.task,
            key.name,
            *kind,
            progress.next,
            progress.backlog.map(|backlog| backlog.next),
            progress.backlog.map(|backlog| backlog.last),
            progress.waiting,
            progress.paused,
            progress.owes() && !progress.paused,
            *look_at,
            pause.as_ref().map(|pause| pause.by.clone()),
            pause.as_ref().and_then(|pause| pause.why.clone()),
            pause.as_ref().map(|pause| pause.at),
        ],
    )
}

fn remove(tx: &Tx<'_>, key: &TriggerKey) -> Result<(), Fault> {
    let sql = "DELETE FROM task_trigger WHERE project = ?1 AND task = ?2 AND name = ?3";
    tx.execute_one("trigger", sql, values![key.project, key.task, key.name])
}

pub(super) fn of_task(tx: &Tx<'_>, task: &Task) -> Result<Vec<KeptTrigger>, Fault> {
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        " FROM task_trigger t WHERE t.project = ?1 AND t.task = ?2 ORDER BY t.name"
    );
    tx.all(sql, values![task.project, task.name], rows::trigger)
}

/// A trigger with what its task says of it.
struct Loaded {
    kept: KeptTrigger,
    revision: Revision,
    timed: Timed,
}

fn trigger_with_revision(tx: &Tx<'_>, key: &TriggerKey) -> Result<Loaded, Fault> {
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        ", r.canonical FROM task_trigger t JOIN task k ON k.project = t.project AND k.name = t.task \
         JOIN revision r ON r.digest = k.revision WHERE t.project = ?1 AND t.task = ?2 AND t.name = ?3"
    );
    let read = |columns: &mut rows::Columns<'_>| Ok((rows::trigger(columns)?, columns.next()?));
    let found: Option<(KeptTrigger, Revision)> = tx.first(sql, values![key.project, key.task, key.name], read)?;
    let (kept, revision) = found.ok_or_else(|| Fault::Damaged("a scanned trigger is not there".to_owned()))?;
    match timed(&kept, &revision)? {
        Some(timed) => Ok(Loaded { kept, revision, timed }),
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
pub(super) fn blocking(tx: &Tx<'_>, key: &TriggerKey) -> Result<Vec<Blocking>, Fault> {
    let read = |columns: &mut rows::Columns<'_>| Ok((columns.next()?, columns.next()?));
    let sql = concat!(
        "SELECT run.id, run.intent_reason IS NOT NULL FROM run INDEXED BY run_in_the_way WHERE ",
        standing!("?1", "?2"),
        " ORDER BY run.id LIMIT ?3"
    );
    let mut blocking: std::collections::BTreeMap<RunId, bool> =
        tx.all(sql, values![key.project, key.task, PAGE], read)?.into_iter().collect();
    let sql = "SELECT run.id, run.intent_reason IS NOT NULL FROM attempt INDEXED BY attempt_may_live \
               CROSS JOIN run ON run.id = attempt.run WHERE attempt.may_live = 1 AND run.project = ?1 AND run.task = ?2 \
               ORDER BY attempt.run LIMIT ?3";
    blocking.extend(tx.all(sql, values![key.project, key.task, PAGE], read)?);
    Ok(blocking.into_iter().take(PAGE).map(|(run, stopping)| Blocking { run, stopping }).collect())
}

/// A page of triggers, in the order of their tasks and names.
pub(super) fn triggers(tx: &Tx<'_>, page: &TriggersAfter, limit: usize) -> Result<Vec<TriggerView>, Fault> {
    let (task, name) =
        page.after.as_ref().map_or_else(Default::default, |(task, name)| (task.to_string(), name.to_string()));
    let sql = concat!(
        "SELECT ",
        trigger_columns!(),
        ", k.pause_by, k.pause_why, k.pause_at, r.canonical, w.made_by, w.made_at FROM task_trigger t \
         CROSS JOIN task k ON k.project = t.project AND k.name = t.task CROSS JOIN revision r ON r.digest = k.revision \
         LEFT JOIN webhook_token w ON w.project = t.project AND w.task = t.task AND w.name = t.name \
         WHERE t.project = ?1 AND (t.task, t.name) > (?2, ?3) AND (?4 IS NULL OR t.task = ?4) \
         ORDER BY t.task, t.name LIMIT ?5"
    );
    tx.all(sql, values![page.project, task, name, page.task, limit], rows::trigger_view)
}
