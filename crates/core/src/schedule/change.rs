//! What a person's wish does to a trigger that has come some way: an edit, a pause, its end, and a restored backup.
//!
//! Each settles first what is due by then, jitter or not, in the same transaction; what a wish takes the turn from is one line
//! of the ledger. Nothing that passed during a pause, or since a restored backup was made, is caught up: a person may backfill
//! it. (Control design, *Triggers* and *Operating it*.)

use super::due::gap;
use super::{Blocking, Gap, GapReason, Line, Offsets, Progress, Rules, Settled, Timetable, settle};
use crate::time::{Millis, UtcMillis};

/// What becomes of a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is done, and this with it.
    Done(Settled),
    /// More is due than one evaluation settles: this is stored, and the wish comes again.
    After(Settled),
}

/// A trigger is edited. With unchanged times (`new` is none) it keeps its next fire and what is owed; else it goes on with the
/// next time of the new ones, and what an old gap still owed is given up. What waits keeps waiting: it is a run of the task.
pub fn edit<Z: Offsets>(
    old: &Timetable<Z>,
    new: Option<&Timetable<Z>>,
    rules: &Rules,
    progress: Progress,
    blocking: &[Blocking],
    now: UtcMillis,
) -> Change {
    settled_first(old, rules, progress, blocking, now, |settled| {
        let Some(new) = new else { return };
        if settled.progress.paused {
            settled.lines.extend(forgo(old, &mut settled.progress, GapReason::Paused, Some(now)).map(Line::Gap));
        }
        if let Some(backlog) = settled.progress.backlog.take() {
            let given_up = gap(old, backlog.next, backlog.last, GapReason::Edited);
            settled.lines.extend(given_up.map(Line::Gap));
        }
        settled.progress.next = new.next_fire(now);
    })
}

/// A trigger is paused: it starts nothing by itself, not even what waited.
pub fn pause<Z: Offsets>(
    timetable: &Timetable<Z>,
    rules: &Rules,
    progress: Progress,
    blocking: &[Blocking],
    now: UtcMillis,
) -> Change {
    settled_first(timetable, rules, progress, blocking, now, |settled| {
        settled.lines.extend(forgo(timetable, &mut settled.progress, GapReason::Paused, None).map(Line::Gap));
        settled.progress.paused = true;
    })
}

/// A trigger goes although its task stays: what is due fires, and what is still owed then is given up.
pub fn leave<Z: Offsets>(
    timetable: &Timetable<Z>,
    rules: &Rules,
    progress: Progress,
    blocking: &[Blocking],
    now: UtcMillis,
) -> Change {
    settled_first(timetable, rules, progress, blocking, now, |settled| {
        settled.lines.extend(forgo(timetable, &mut settled.progress, GapReason::Edited, None).map(Line::Gap));
        settled.progress.next = None;
    })
}

/// A trigger goes with its task: nothing of it fires any more, and what it owes and what is due is one gap.
pub fn end<Z: Offsets>(timetable: &Timetable<Z>, mut progress: Progress, now: UtcMillis) -> Option<Gap> {
    forgo(timetable, &mut progress, GapReason::Deleted, Some(now))
}

/// A trigger goes on: with the next time after `now`.
pub fn resume<Z: Offsets>(timetable: &Timetable<Z>, mut progress: Progress, now: UtcMillis) -> (Progress, Option<Gap>) {
    let gap = forgo(timetable, &mut progress, GapReason::Paused, Some(now));
    progress.paused = false;
    (progress, gap)
}

/// A backup was restored: whatever was due since it was made is one gap, not caught up. A paused trigger stays paused.
pub fn restore<Z: Offsets>(
    timetable: &Timetable<Z>,
    mut progress: Progress,
    now: UtcMillis,
) -> (Progress, Option<Gap>) {
    if progress.paused {
        return (progress, None);
    }
    let gap = forgo(timetable, &mut progress, GapReason::Restored, Some(now));
    (progress, gap)
}

fn settled_first<Z: Offsets>(
    timetable: &Timetable<Z>,
    rules: &Rules,
    progress: Progress,
    blocking: &[Blocking],
    now: UtcMillis,
    wish: impl FnOnce(&mut Settled),
) -> Change {
    // A time that has come is owed, although its jitter may not be over.
    let rules = Rules { delay: Millis::ZERO, ..*rules };
    let mut settled = settle(timetable, &rules, progress, blocking, now);
    if settled.more {
        return Change::After(settled);
    }
    wish(&mut settled);
    Change::Done(settled)
}

/// Gives up what is owed and, with `until`, what is due by then: one gap, from the oldest to the newest of it.
fn forgo<Z: Offsets>(
    timetable: &Timetable<Z>,
    progress: &mut Progress,
    why: GapReason,
    until: Option<UtcMillis>,
) -> Option<Gap> {
    let waiting = progress.waiting.take().map(|nominal| Gap { first: nominal, last: nominal, instants: 1, why });
    let owed = progress.backlog.take().and_then(|owed| gap(timetable, owed.next, owed.last, why));
    let passed = until.and_then(|until| {
        let first = progress.next.filter(|next| *next <= until)?;
        progress.next = timetable.next_fire(until);
        gap(timetable, first, until, why)
    });
    let all = [waiting, owed, passed].into_iter().flatten();
    all.reduce(|one, other| Gap {
        first: one.first.min(other.first),
        last: one.last.max(other.last),
        instants: one.instants + other.instants,
        why,
    })
}

#[cfg(test)]
mod tests;
