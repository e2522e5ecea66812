//! What a new revision of a task does to its triggers: which stay and how, which come, which go.

use super::{KeptTrigger, Kind, NotTimed, Timed, TriggerKey, Wish};
use crate::id::{ProjectName, TaskName};
use crate::revision::{Revision, Source, Trigger};
use crate::schedule::Progress;
use crate::time::UtcMillis;

/// What becomes of the triggers of a task.
#[derive(Debug, Default)]
pub struct Edited {
    /// Those that a wish is carried out on first, by their old times. [`Wish::Leave`]: they go then.
    pub moved: Vec<(KeptTrigger, Timed, Wish)>,
    /// Those that go, with nothing to settle.
    pub gone: Vec<TriggerKey>,
    /// Those that come; one of a name that goes takes its place.
    pub begun: Vec<KeptTrigger>,
}

/// What the edit from `old` to `new` does to the triggers that are `kept`; `paused`: the task is. What is said just so is not
/// touched.
pub fn edited(
    project: &ProjectName,
    task: &TaskName,
    kept: Vec<KeptTrigger>,
    old: Option<&Revision>,
    new: &Revision,
    paused: bool,
    now: UtcMillis,
) -> Result<Edited, NotTimed> {
    let mut edited = Edited::default();
    let mut begins: Vec<&Trigger> = Vec::new();
    for trigger in new.triggers() {
        if !kept.iter().any(|kept| kept.key.name == trigger.name) {
            begins.push(trigger);
        }
    }
    for kept in kept {
        let before = old.and_then(|old| named(old, &kept));
        let after = named(new, &kept);
        if before.is_some() && before == after {
            continue;
        }
        // An old schedule that nobody can read any more has nothing that could be settled.
        let timed = before.and_then(|before| Timed::of(&kept.key, before).ok().flatten());
        let staying = after.filter(|after| Kind::of(&after.source) == kept.kind);
        if let Some(gone) = after.filter(|_| staying.is_none()) {
            begins.push(gone);
        }
        match (timed, staying) {
            (Some(timed), Some(after)) => {
                let Some(new) = Timed::of(&kept.key, after)? else { continue };
                let moved = !before.is_some_and(|before| have_same_times(before, after));
                edited.moved.push((kept, timed, Wish::Edit { new, moved }));
            }
            (Some(timed), None) => edited.moved.push((kept, timed, Wish::Leave)),
            (None, Some(after)) if kept.kind == Kind::Cron => begins.push(after),
            (None, Some(_)) => {}
            (None, None) => edited.gone.push(kept.key),
        }
    }
    for trigger in begins {
        let key = TriggerKey { project: project.clone(), task: task.clone(), name: trigger.name.clone() };
        let timed = Timed::of(&key, trigger)?;
        edited
            .begun
            .push(timed.map_or_else(|| webhook(key.clone(), paused), |timed| timed.begin(key.clone(), paused, now)));
    }
    Ok(edited)
}

fn webhook(key: TriggerKey, paused: bool) -> KeptTrigger {
    let progress = Progress { next: None, backlog: None, waiting: None, paused };
    KeptTrigger { key, kind: Kind::Webhook, progress, look_at: None, pause: None }
}

fn named<'a>(revision: &'a Revision, kept: &KeptTrigger) -> Option<&'a Trigger> {
    revision.triggers().iter().find(|trigger| trigger.name == kept.key.name)
}

fn have_same_times(one: &Trigger, other: &Trigger) -> bool {
    match (&one.source, &other.source) {
        (Source::Cron(one), Source::Cron(other)) => {
            one.expression == other.expression && one.time_zone == other.time_zone
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
