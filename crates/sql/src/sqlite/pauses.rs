//! What a person does to schedules beside editing them: a pause, its end, a backfill.

use leasehold_core::schedule::{Happened, Line};
use leasehold_core::task::Task;
use leasehold_core::trigger::{KeptTrigger, Pause, Wish};
use leasehold_store::call::{BackfillTrigger, PauseTriggers};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::{Backfilled, Fired};

use super::column::values;
use super::transaction::{Decided, Fault, Tx};
use super::{audit, chains, ledger, load, tasks, triggers};

/// A trigger or a task starts nothing by itself from now on.
pub(super) fn pause(tx: &Tx<'_>, call: &PauseTriggers) -> Decided<(), Unmet> {
    let pause = Pause { by: call.actor.to_string(), why: call.why.clone(), at: tx.now.utc };
    set(tx, call, Some(&pause))
}

/// It goes on.
pub(super) fn resume(tx: &Tx<'_>, call: &PauseTriggers) -> Decided<(), Unmet> {
    set(tx, call, None)
}

fn set(tx: &Tx<'_>, call: &PauseTriggers, pause: Option<&Pause>) -> Decided<(), Unmet> {
    let Some(task) = tasks::one(tx, &call.project, &call.task)?.and_then(Task::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    let kept = triggers::of_task(tx, &task)?;
    let subject = if let Some(name) = &call.trigger {
        let Some(one) = kept.into_iter().find(|one| one.key.name == *name) else {
            return Ok(Outcome::Refused(Unmet::NotFound("trigger")));
        };
        if one.pause.is_some() == pause.is_some() {
            return Ok(Outcome::Replayed(()));
        }
        let one = KeptTrigger { pause: pause.cloned(), ..one };
        turn(tx, &task, one, pause.is_some() || task.pause.is_some())?;
        format!("trigger/{}/{}/{name}", call.project, call.task)
    } else {
        if task.pause.is_some() == pause.is_some() {
            return Ok(Outcome::Replayed(()));
        }
        for one in kept {
            let paused = pause.is_some() || one.pause.is_some();
            turn(tx, &task, one, paused)?;
        }
        let (by, why) = (pause.map(|pause| pause.by.clone()), pause.and_then(|pause| pause.why.clone()));
        let sql = "UPDATE task SET pause_by = ?3, pause_why = ?4, pause_at = ?5 WHERE project = ?1 AND name = ?2";
        tx.execute_one("task", sql, values![task.project, task.name, by, why, pause.map(|pause| pause.at)])?;
        chains::look_again(tx, &call.project, &call.task)?;
        format!("task/{}/{}", call.project, call.task)
    };
    let action = if pause.is_some() { "pause_schedule" } else { "resume_schedule" };
    let mut facts: Vec<(&str, &dyn std::fmt::Display)> = Vec::new();
    if let Some(why) = &call.why {
        facts.push(("why", why));
    }
    audit::write(tx, &call.actor, action, subject, &facts)?;
    Ok(Outcome::Applied(()))
}

/// The trigger, from now on paused or not.
fn turn(tx: &Tx<'_>, task: &Task, kept: KeptTrigger, paused: bool) -> Result<(), Fault> {
    let revision = load::revision(tx, task.revision)?;
    match triggers::timed(&kept, &revision)?.filter(|_| kept.progress.paused != paused) {
        Some(timed) if paused => triggers::carry_out(tx, &revision, &timed, &Wish::Pause, kept),
        Some(timed) => {
            let moved = timed.resume(&kept, tx.now.utc);
            triggers::write(tx, &revision, moved, &mut Fired::default())
        }
        None => triggers::save(tx, &kept.turned(paused)),
    }
}

/// The runs of a page of instants that have passed.
pub(super) fn backfill(tx: &Tx<'_>, call: &BackfillTrigger) -> Decided<Backfilled, Unmet> {
    let key = &call.trigger;
    let Some(task) = tasks::one(tx, &key.project, &key.task)?.and_then(Task::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("trigger")));
    };
    let Some(kept) = triggers::of_task(tx, &task)?.into_iter().find(|one| one.key == *key) else {
        return Ok(Outcome::Refused(Unmet::NotFound("trigger")));
    };
    let revision = load::revision(tx, task.revision)?;
    let Some(timed) = triggers::timed(&kept, &revision)? else {
        return Ok(Outcome::Refused(Unmet::NotFound("schedule")));
    };
    let page = match timed.backfill(call.first, call.last, tx.now.utc) {
        Ok(page) => page,
        Err(why) => return Ok(Outcome::Refused(why.into())),
    };
    let lines: Vec<_> = page.instants.iter().map(|at| Line::At(*at, Happened::Backfilled)).collect();
    let mut fired = Fired::default();
    ledger::write(tx, key, &revision, &lines, &mut fired)?;
    let backfilled = Backfilled { runs: fired.runs, rest: page.rest };
    if backfilled.runs.is_empty() {
        return Ok(Outcome::Replayed(backfilled));
    }
    let subject = format!("trigger/{}/{}/{}", key.project, key.task, key.name);
    audit::write(tx, &call.actor, "backfill_schedule", subject, &[("runs", &backfilled.runs.len())])?;
    Ok(Outcome::Applied(backfilled))
}
