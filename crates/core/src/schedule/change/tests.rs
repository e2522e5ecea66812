//! Wishes of people, one by one; a random life with them is in `due/tests/life.rs`.

use super::*;
use crate::revision::Overlap;
use crate::schedule::{Backlog, Expression, Happened, Spread, Utc};

fn timetable(expression: &str) -> Timetable<Utc> {
    let spread = Spread::of(&"default".parse().unwrap(), &"report".parse().unwrap(), &"cron".parse().unwrap());
    Timetable::new(expression.parse::<Expression>().unwrap().times(&spread), Utc)
}

const RULES: Rules = Rules {
    catchup: 10,
    window: Millis::from_secs(24 * 3600),
    overlap: Overlap::AllowAll,
    delay: Millis::from_secs(30),
};

const fn minute(n: i64) -> UtcMillis {
    UtcMillis::new(n * 60_000)
}

fn done(change: Change) -> Settled {
    match change {
        Change::Done(settled) => settled,
        Change::After(settled) => panic!("not done: {settled:?}"),
    }
}

#[test]
fn an_edit_settles_first_and_keeps_the_next_fire_of_unchanged_times() {
    let hourly = timetable("@hourly");
    let progress = Progress::begin(&hourly, minute(0));
    let same = done(edit(&hourly, None, &RULES, progress, &[], minute(30)));
    assert_eq!((same.progress, same.lines), (progress, vec![]));
    // The hour has come, its jitter is not over.
    let now = minute(60).plus(Millis::from_secs(10));
    let due = done(edit(&hourly, None, &RULES, progress, &[], now));
    assert_eq!(due.lines, [Line::At(minute(60), Happened::Fired)]);
    assert_eq!(due.progress.next, Some(minute(120)));
    let changed = done(edit(&hourly, Some(&timetable("5 * * * *")), &RULES, progress, &[], now));
    assert_eq!(changed.lines, [Line::At(minute(60), Happened::Fired)], "what was due under the old times");
    assert_eq!(changed.progress.next, Some(minute(65)));
}

#[test]
fn changed_times_give_up_what_an_old_gap_owes_and_keep_what_waits() {
    let hourly = timetable("@hourly");
    let rules = Rules { overlap: Overlap::BufferOne, ..RULES };
    let blocking = [Blocking { run: "01900000-0000-7000-8000-000000000000".parse().unwrap(), stopping: false }];
    let progress = Progress {
        next: Some(minute(360)),
        backlog: Some(Backlog { next: minute(60), last: minute(180) }),
        waiting: Some(minute(300)),
        paused: false,
    };
    let kept = done(edit(&hourly, None, &rules, progress, &blocking, minute(301)));
    assert_eq!((kept.progress, kept.lines), (progress, vec![]));
    let changed = done(edit(&hourly, Some(&timetable("@daily")), &rules, progress, &blocking, minute(301)));
    let gap = Gap { first: minute(60), last: minute(180), instants: 3, why: GapReason::Edited };
    assert_eq!(changed.lines, [Line::Gap(gap)]);
    let next = Some(minute(1440));
    assert_eq!(changed.progress, Progress { next, backlog: None, waiting: Some(minute(300)), paused: false });
}

#[test]
fn an_edit_waits_until_all_that_is_due_has_its_line() {
    let minutely = timetable("* * * * *");
    let rules = Rules { catchup: 100, ..RULES };
    let progress = Progress::begin(&minutely, minute(0));
    let now = minute(500);
    let Change::After(first) = edit(&minutely, Some(&timetable("@daily")), &rules, progress, &[], now) else {
        panic!("done with a page");
    };
    let second = done(edit(&minutely, Some(&timetable("@daily")), &rules, first.progress, &[], now));
    let caught_up =
        |lines: &[Line]| lines.iter().filter(|line| matches!(line, Line::At(_, Happened::CaughtUp))).count();
    assert_eq!(caught_up(&first.lines) + caught_up(&second.lines), 100);
    assert_eq!(second.progress.next, Some(minute(1440)));
}

#[test]
fn a_pause_gives_up_what_waits_and_its_end_is_one_line() {
    let hourly = timetable("@hourly");
    let rules = Rules { overlap: Overlap::BufferOne, ..RULES };
    let blocking = [Blocking { run: "01900000-0000-7000-8000-000000000000".parse().unwrap(), stopping: false }];
    let progress = Progress {
        next: Some(minute(360)),
        backlog: Some(Backlog { next: minute(60), last: minute(180) }),
        waiting: Some(minute(300)),
        paused: false,
    };
    let paused = done(pause(&hourly, &rules, progress, &blocking, minute(310)));
    let gap = Gap { first: minute(60), last: minute(300), instants: 4, why: GapReason::Paused };
    assert_eq!(paused.lines, [Line::Gap(gap)]);
    assert_eq!(paused.progress.due(&rules), None);
    assert_eq!(settle(&hourly, &rules, paused.progress, &[], minute(6000)).lines, [], "a pause starts nothing");
    let (resumed, gap) = resume(&hourly, paused.progress, minute(485));
    assert_eq!(gap, Some(Gap { first: minute(360), last: minute(480), instants: 3, why: GapReason::Paused }));
    assert_eq!(resumed, Progress { next: Some(minute(540)), backlog: None, waiting: None, paused: false });
    let (early, gap) = resume(&hourly, paused.progress, minute(320));
    assert_eq!((early.next, gap), (Some(minute(360)), None));
}

#[test]
fn times_that_change_during_a_pause_leave_the_old_ones_in_the_ledger() {
    let hourly = timetable("@hourly");
    let progress = Progress { paused: true, ..Progress::begin(&hourly, minute(0)) };
    let changed = done(edit(&hourly, Some(&timetable("30 * * * *")), &RULES, progress, &[], minute(125)));
    let gap = Gap { first: minute(60), last: minute(120), instants: 2, why: GapReason::Paused };
    assert_eq!(changed.lines, [Line::Gap(gap)]);
    assert_eq!((changed.progress.next, changed.progress.paused), (Some(minute(150)), true));
}

#[test]
fn a_restored_backup_catches_nothing_up() {
    let hourly = timetable("@hourly");
    let progress = Progress {
        next: Some(minute(360)),
        backlog: Some(Backlog { next: minute(60), last: minute(180) }),
        waiting: None,
        paused: false,
    };
    let (restored, gap) = restore(&hourly, progress, minute(600));
    assert_eq!(gap, Some(Gap { first: minute(60), last: minute(600), instants: 8, why: GapReason::Restored }));
    assert_eq!(restored, Progress::begin(&hourly, minute(600)));
    let paused = Progress { paused: true, ..Progress::begin(&hourly, minute(0)) };
    assert_eq!(restore(&hourly, paused, minute(600)), (paused, None));
}

#[test]
fn a_trigger_that_leaves_fires_what_is_due_and_gives_up_what_it_owes() {
    let hourly = timetable("@hourly");
    let rules = Rules { overlap: Overlap::BufferOne, ..RULES };
    let now = minute(60).plus(Millis::from_secs(10));
    let due = done(leave(&hourly, &rules, Progress::begin(&hourly, minute(0)), &[], now));
    assert_eq!((due.lines, due.progress.next), (vec![Line::At(minute(60), Happened::Fired)], None));
    let blocking = [Blocking { run: "01900000-0000-7000-8000-000000000000".parse().unwrap(), stopping: false }];
    let waiting = Progress { waiting: Some(minute(60)), ..Progress::begin(&hourly, minute(60)) };
    let given_up = done(leave(&hourly, &rules, waiting, &blocking, minute(61)));
    let gap = Gap { first: minute(60), last: minute(60), instants: 1, why: GapReason::Edited };
    assert_eq!(given_up.lines, [Line::Gap(gap)]);
}

#[test]
fn what_a_deleted_task_owes_is_one_gap_and_fires_no_more() {
    let hourly = timetable("@hourly");
    let progress = Progress { waiting: Some(minute(60)), ..Progress::begin(&hourly, minute(60)) };
    let gap = Gap { first: minute(60), last: minute(180), instants: 3, why: GapReason::Deleted };
    assert_eq!(end(&hourly, progress, minute(181)), Some(gap));
    assert_eq!(end(&hourly, Progress::begin(&hourly, minute(60)), minute(61)), None);
}
