//! What a person does to schedules beside editing them: a pause, its end, a backfill.

use leasehold_core::schedule::{Happened, Line};
use leasehold_core::trigger::{KeptTrigger, Pause, Wish};

use super::{Transaction, chains, tasks, triggers};
use crate::call::{BackfillTrigger, PauseTriggers};
use crate::outcome::{Outcome, StoreError, Stored};
use crate::port::Unmet;
use crate::view::{Backfilled, Fired};

pub(super) fn pause(tx: &mut Transaction<'_>, call: &PauseTriggers) -> Stored<(), Unmet> {
    let pause = Pause { by: call.actor.to_string(), why: call.why.clone(), at: tx.now.utc };
    set(tx, call, Some(&pause))
}

pub(super) fn resume(tx: &mut Transaction<'_>, call: &PauseTriggers) -> Stored<(), Unmet> {
    set(tx, call, None)
}

fn set(tx: &mut Transaction<'_>, call: &PauseTriggers, pause: Option<&Pause>) -> Stored<(), Unmet> {
    let Some(task) = tasks::living(tx, &call.project, &call.task).cloned() else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    let kept = triggers::of_task(tx, &task);
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
        let key = (call.project.clone(), call.task.clone());
        if let Some(task) = tx.state.tasks.get_mut(&key) {
            task.pause = pause.cloned();
        }
        chains::look_again(tx, &call.project, &call.task);
        format!("task/{}/{}", call.project, call.task)
    };
    let action = if pause.is_some() { "pause_schedule" } else { "resume_schedule" };
    tx.record(&call.actor, action, subject, call.why.clone().map(|why| ("why", why)));
    Ok(Outcome::Applied(()))
}

/// The trigger, from now on paused or not.
fn turn(
    tx: &mut Transaction<'_>,
    task: &leasehold_core::task::Task,
    kept: KeptTrigger,
    paused: bool,
) -> Result<(), StoreError> {
    let revision = tasks::stored(tx, task.revision)?;
    match triggers::timed(&kept, &revision).filter(|_| kept.progress.paused != paused) {
        Some(timed) if paused => triggers::carry_out(tx, &revision, &timed, &Wish::Pause, kept, &mut Fired::default()),
        Some(timed) => {
            let moved = timed.resume(&kept, tx.now.utc);
            triggers::write(tx, &revision, moved, &mut Fired::default())
        }
        None => {
            let kept = kept.turned(paused);
            tx.state.triggers.insert(kept.key.clone(), kept);
            Ok(())
        }
    }
}

pub(super) fn backfill(tx: &mut Transaction<'_>, call: &BackfillTrigger) -> Stored<Backfilled, Unmet> {
    let key = &call.trigger;
    let task = tasks::living(tx, &key.project, &key.task).cloned();
    let Some((task, kept)) = task.zip(tx.state.triggers.get(key).cloned()) else {
        return Ok(Outcome::Refused(Unmet::NotFound("trigger")));
    };
    let revision = tasks::stored(tx, task.revision)?;
    let Some(timed) = triggers::timed(&kept, &revision) else {
        return Ok(Outcome::Refused(Unmet::NotFound("schedule")));
    };
    let page = match timed.backfill(call.first, call.last, tx.now.utc) {
        Ok(page) => page,
        Err(why) => return Ok(Outcome::Refused(why.into())),
    };
    let lines: Vec<_> = page.instants.iter().map(|at| Line::At(*at, Happened::Backfilled)).collect();
    let mut fired = Fired::default();
    triggers::write_lines(tx, key, &revision, &lines, &mut fired)?;
    let backfilled = Backfilled { runs: fired.runs, rest: page.rest };
    if backfilled.runs.is_empty() {
        return Ok(Outcome::Replayed(backfilled));
    }
    let subject = format_args!("trigger/{}/{}/{}", key.project, key.task, key.name);
    tx.record(&call.actor, "backfill_schedule", subject, [("runs", backfilled.runs.len().to_string())]);
    Ok(Outcome::Applied(backfilled))
}
