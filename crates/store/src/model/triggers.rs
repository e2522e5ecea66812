//! Triggers: what an edit of their task does to them, what they fire, and their ledger.

use std::collections::BTreeSet;

use leasehold_core::actor::Actor;
use leasehold_core::admission::{self, Submission};
use leasehold_core::cancel;
use leasehold_core::crypto::Digest;
use leasehold_core::limits::{LEDGER_LINES, OWING_LOOK, PAGE};
use leasehold_core::revision::Revision;
use leasehold_core::schedule::{Blocking, Happened, Line, kept_from, stands_in_the_way};
use leasehold_core::task::Task;
use leasehold_core::time::UtcMillis;
use leasehold_core::trigger::{KeptTrigger, Moved, Scheduled, Timed, TriggerKey, Wish, edited};

use super::{Transaction, tasks};
use crate::call::{LedgerPage, TriggersAfter};
use crate::outcome::StoreError;
use crate::view::{Fired, LedgerEntry, LedgerKey, Pruned, TriggerView};

/// The triggers of a task that gets another revision.
pub(super) fn edit(
    tx: &mut Transaction<'_>,
    task: &Task,
    before: Option<Digest>,
    revision: &Revision,
) -> Result<(), StoreError> {
    let kept = of_task(tx, task);
    let old = before.map(|digest| tasks::stored(tx, digest)).transpose()?;
    let (paused, now) = (task.pause.is_some(), tx.now.utc);
    let edited = edited(&task.project, &task.name, kept, old.as_ref(), revision, paused, now)
        .map_err(|error| StoreError::Damaged { reason: format!("task {}: {error}", task.name) })?;
    let mut fired = Fired::default();
    if let Some(old) = old {
        for (kept, timed, wish) in edited.moved {
            let key = kept.key.clone();
            carry_out(tx, &old, &timed, &wish, kept, &mut fired)?;
            if matches!(wish, Wish::Leave) {
                remove(tx, &key);
            }
        }
    }
    for key in edited.gone {
        remove(tx, &key);
    }
    for kept in edited.begun {
        tx.state.triggers.insert(kept.key.clone(), kept);
    }
    Ok(())
}

/// The triggers of a task that is deleted.
pub(super) fn end(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    let revision = tasks::stored(tx, task.revision)?;
    for kept in of_task(tx, task) {
        if let Some(gap) = timed(&kept, &revision).and_then(|timed| timed.end(kept.progress, tx.now.utc)) {
            write_lines(tx, &kept.key, &revision, &[Line::Gap(gap)], &mut Fired::default())?;
        }
        remove(tx, &kept.key);
    }
    Ok(())
}

fn remove(tx: &mut Transaction<'_>, key: &TriggerKey) {
    tx.state.triggers.remove(key);
    tx.state.webhook_tokens.remove(key);
}

pub(super) fn fire(tx: &mut Transaction<'_>, limit: usize) -> Result<Fired, StoreError> {
    let mut fired = Fired::default();
    let mut due: Vec<_> = tx.state.triggers.values().filter(|kept| kept.look_at <= Some(tx.now.utc)).cloned().collect();
    due.retain(|kept| kept.look_at.is_some());
    let owing: Vec<_> = tx.state.triggers.values().filter(|kept| owes(kept)).cloned().collect();
    for kept in owing {
        if !due.iter().any(|one| one.key == kept.key) && blocking(tx, &kept.key)?.is_empty() {
            due.push(kept);
        }
    }
    due.sort_by(|one, other| (one.look_at, &one.key).cmp(&(other.look_at, &other.key)));
    fired.more = due.len() > limit;
    for kept in due.into_iter().take(limit) {
        if fired.runs.len() >= PAGE {
            fired.more = true;
            break;
        }
        let Some(task) = tasks::living(tx, &kept.key.project, &kept.key.task) else { continue };
        let revision = tasks::stored(tx, task.revision)?;
        let Some(timed) = timed(&kept, &revision) else { continue };
        let blocking = blocking(tx, &kept.key)?;
        let moved = timed.settle(&kept, &blocking, tx.now.utc);
        if moved.changes(&kept) {
            write(tx, &revision, moved, &mut fired)?;
        }
    }
    let next = tx.state.triggers.values().filter_map(|kept| kept.look_at).min().map(|at| at.since(tx.now.utc));
    let owing = tx.state.triggers.values().any(owes).then_some(OWING_LOOK);
    fired.next = next.into_iter().chain(owing).min();
    Ok(fired)
}

fn owes(kept: &KeptTrigger) -> bool {
    kept.progress.owes() && !kept.progress.paused
}

/// Carries out a wish, however many evaluations it takes.
pub(super) fn carry_out(
    tx: &mut Transaction<'_>,
    revision: &Revision,
    timed: &Timed,
    wish: &Wish,
    mut kept: KeptTrigger,
    fired: &mut Fired,
) -> Result<(), StoreError> {
    loop {
        let blocking = blocking(tx, &kept.key)?;
        let moved = timed.carry_out(wish, &kept, &blocking, tx.now.utc);
        kept = moved.kept.clone();
        let again = moved.again;
        write(tx, revision, moved, fired)?;
        if !again {
            return Ok(());
        }
    }
}

/// Writes what an evaluation made of a trigger.
pub(super) fn write(
    tx: &mut Transaction<'_>,
    revision: &Revision,
    moved: Moved,
    fired: &mut Fired,
) -> Result<(), StoreError> {
    let Moved { kept, lines, cancel, again } = moved;
    for id in cancel {
        let Some(run) = tx.state.runs.get(&id) else { continue };
        let attempt = tx.latest(run)?.clone();
        // What has ended and may live still is not cancelled: it is waited for.
        if let Ok((_, change)) = cancel::cancel(run, &attempt, &Actor::System, Some(cancel::OVERLAP), tx.now) {
            tx.apply(change)?;
            fired.runs.push(id);
            fired.workers.extend(attempt.worker);
        }
    }
    write_lines(tx, &kept.key, revision, &lines, fired)?;
    fired.more |= again;
    tx.state.triggers.insert(kept.key.clone(), kept);
    Ok(())
}

/// Writes lines of a ledger, with their runs. An instant that has a run keeps its line and gets no second.
pub(super) fn write_lines(
    tx: &mut Transaction<'_>,
    key: &TriggerKey,
    revision: &Revision,
    lines: &[Line],
    fired: &mut Fired,
) -> Result<(), StoreError> {
    let of = (key.project.clone(), key.task.clone());
    for line in lines {
        let has_run = matches!(*line, Line::At(nominal, _) if has_run(tx, key, nominal));
        let mut entry = LedgerEntry { trigger: key.name.clone(), line: *line, run: None, written_at: tx.now.utc };
        let ledger = tx.state.ledgers.entry(of.clone()).or_default();
        match *line {
            Line::At(nominal, happened) => {
                if has_run {
                    continue;
                }
                if happened.admits() {
                    let (run, attempt) = key.ids(nominal, tx.now.utc);
                    let scheduled = Scheduled { trigger: key.name.clone(), at: nominal };
                    let submission = Submission {
                        project: &key.project,
                        task: Some(&key.task),
                        scheduled: Some(&scheduled),
                        revision,
                    };
                    let change = admission::admit(submission, run, attempt, &Actor::System, tx.now);
                    tx.apply(change)?;
                    entry.run = Some(run);
                    fired.runs.push(run);
                }
            }
            Line::Gap(gap) => ledger.retain(|at, there| {
                let waited = matches!(there.line, Line::At(_, Happened::Waits));
                !(waited && at.trigger == key.name && (gap.first..=gap.last).contains(&at.at))
            }),
        }
        tx.state.ledgers.entry(of.clone()).or_default().insert(entry.key(), entry);
    }
    Ok(())
}

/// Whether a run was admitted for an instant: its line may be forgotten, the run is not.
fn has_run(tx: &Transaction<'_>, key: &TriggerKey, nominal: UtcMillis) -> bool {
    let scheduled = Scheduled { trigger: key.name.clone(), at: nominal };
    tx.state.runs.values().any(|run| {
        (&run.project, run.task.as_ref(), run.scheduled.as_ref()) == (&key.project, Some(&key.task), Some(&scheduled))
    })
}

/// Takes what is kept no longer from a page of ledgers.
pub(super) fn prune(tx: &mut Transaction<'_>, from: Option<&TriggerKey>, limit: usize) -> Pruned {
    let mut all = BTreeSet::new();
    for ((project, task), lines) in &tx.state.ledgers {
        let names = lines.keys().map(|at| at.trigger.clone());
        all.extend(names.map(|name| TriggerKey { project: project.clone(), task: task.clone(), name }));
    }
    let mut pruned = Pruned::default();
    for (place, key) in all.into_iter().filter(|key| from.is_none_or(|from| key >= from)).enumerate() {
        if place == limit {
            pruned.rest = Some(key);
            return pruned;
        }
        let Some(lines) = tx.state.ledgers.get_mut(&(key.project.clone(), key.task.clone())) else { continue };
        let newest = lines.keys().rev().filter(|at| at.trigger == key.name).nth(LEDGER_LINES - 1).map(|at| at.at);
        let Some(kept_from) = kept_from(newest, tx.now.utc) else { continue };
        let goes = |at: &LedgerKey, line: &LedgerEntry| {
            let over = match line.line {
                Line::At(_, Happened::Waits) => return false,
                Line::At(nominal, _) => nominal,
                Line::Gap(gap) => gap.last,
            };
            at.trigger == key.name && over < kept_from
        };
        let left = limit - pruned.lines;
        let gone: Vec<_> =
            lines.iter().filter(|(at, line)| goes(at, line)).map(|(at, _)| at.clone()).take(left).collect();
        lines.retain(|at, _| !gone.contains(at));
        pruned.lines += gone.len();
        if pruned.lines == limit {
            pruned.rest = Some(key);
            return pruned;
        }
    }
    pruned
}

pub(super) fn of_task(tx: &Transaction<'_>, task: &Task) -> Vec<KeptTrigger> {
    let all = tx.state.triggers.values();
    all.filter(|kept| kept.key.project == task.project && kept.key.task == task.name).cloned().collect()
}

/// The trigger's times and rules, by the revision of its task; none of one that waits for calls.
pub(super) fn timed(kept: &KeptTrigger, revision: &Revision) -> Option<Timed> {
    let trigger = revision.triggers().iter().find(|trigger| trigger.name == kept.key.name)?;
    Timed::of(&kept.key, trigger).ok().flatten()
}

/// What stands in the way of a run of the trigger's task, the oldest first.
pub(super) fn blocking(tx: &Transaction<'_>, key: &TriggerKey) -> Result<Vec<Blocking>, StoreError> {
    let mut blocking = Vec::new();
    for run in tx.state.runs.values().filter(|run| run.project == key.project && run.task.as_ref() == Some(&key.task)) {
        let attempts = tx.state.attempts.values().filter(|attempt| attempt.run == run.id);
        if stands_in_the_way(run, attempts, &tx.revision(run)?.policy()) {
            blocking.push(Blocking { run: run.id, stopping: run.intent.is_some() });
        }
    }
    blocking.truncate(PAGE);
    Ok(blocking)
}

pub(super) fn triggers(
    tx: &Transaction<'_>,
    page: &TriggersAfter,
    limit: usize,
) -> Result<Vec<TriggerView>, StoreError> {
    let of = |kept: &&KeptTrigger| {
        let key = &kept.key;
        key.project == page.project
            && page.task.as_ref().is_none_or(|task| *task == key.task)
            && page.after.as_ref().is_none_or(|(task, name)| (&key.task, &key.name) > (task, name))
    };
    let mut views = Vec::new();
    for kept in tx.state.triggers.values().filter(of).take(limit) {
        let Some(task) = tasks::living(tx, &kept.key.project, &kept.key.task) else { continue };
        let revision = tasks::stored(tx, task.revision)?;
        let trigger = revision.triggers().iter().find(|trigger| trigger.name == kept.key.name);
        let Some(trigger) = trigger.cloned() else {
            return Err(StoreError::Damaged { reason: format!("no revision of trigger {}", kept.key.name) });
        };
        let token = tx.state.webhook_tokens.get(&kept.key).map(|token| token.made.clone());
        views.push(TriggerView { kept: kept.clone(), trigger, task_pause: task.pause.clone(), token });
    }
    Ok(views)
}

pub(super) fn ledger(tx: &Transaction<'_>, page: &LedgerPage, limit: usize) -> Vec<LedgerEntry> {
    let ledger = tx.state.ledgers.get(&(page.project.clone(), page.task.clone()));
    let newest = ledger.into_iter().flatten().rev();
    let before = newest.filter(|(key, _)| page.before.as_ref().is_none_or(|before| *key < before));
    let wanted = before.filter(|(key, _)| page.trigger.as_ref().is_none_or(|name| *name == key.trigger));
    wanted.take(limit).map(|(_, entry)| entry.clone()).collect()
}
