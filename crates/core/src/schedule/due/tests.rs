//! The policies one by one, and the cases of downtime.

mod life;

use super::*;
use crate::schedule::{Expression, Utc};
use crate::time::Entropy;

/// Ids by number.
struct Numbered(u8);

impl Entropy for Numbered {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

fn run(number: u8) -> RunId {
    RunId::new(UtcMillis::new(0), &Numbered(number))
}

fn timetable(expression: &str) -> Timetable<Utc> {
    let spread = Spread::of(&"default".parse().unwrap(), &"report".parse().unwrap(), &"cron".parse().unwrap());
    Timetable::new(expression.parse::<Expression>().unwrap().times(&spread), Utc)
}

fn rules(catchup: u32, overlap: Overlap) -> Rules {
    Rules { catchup, window: Millis::from_secs(24 * 3600), overlap, delay: Millis::ZERO }
}

const fn minute(n: i64) -> UtcMillis {
    UtcMillis::new(n * 60_000)
}

const fn second(n: i64) -> UtcMillis {
    UtcMillis::new(n * 1000)
}

/// A trigger of every minute whose next instant is minute 1.
fn fresh() -> (Timetable<Utc>, Progress) {
    let minutely = timetable("* * * * *");
    let progress = Progress::begin(&minutely, minute(0));
    (minutely, progress)
}

fn blocked_by(number: u8) -> [Blocking; 1] {
    [Blocking { run: run(number), stopping: false }]
}

fn at(nominal: UtcMillis, happened: Happened) -> Line {
    Line::At(nominal, happened)
}

#[test]
fn what_is_due_fires_with_its_nominal_time_and_the_trigger_moves_on() {
    let (minutely, progress) = fresh();
    let rules = rules(1, Overlap::Skip);
    let early = settle(&minutely, &rules, progress, &[], second(59));
    assert_eq!((early.lines, early.progress, early.more), (vec![], progress, false));
    let settled = settle(&minutely, &rules, progress, &[], second(63));
    assert_eq!(settled.lines, [at(minute(1), Happened::Fired)]);
    assert_eq!(settled.progress.next, Some(minute(2)));
    let again = settle(&minutely, &rules, settled.progress, &[], second(63));
    assert_eq!(again.lines, [], "once");
    let back = settle(&minutely, &rules, settled.progress, &[], second(5));
    assert_eq!((back.lines, back.progress), (vec![], settled.progress), "a wall clock that steps back fires nothing");
}

#[test]
fn jitter_delays_and_keeps_the_nominal_time() {
    let (minutely, progress) = fresh();
    let rules = Rules { delay: Millis::from_secs(100), ..rules(1, Overlap::AllowAll) };
    assert_eq!(progress.due(&rules), Some(second(160)));
    assert_eq!(settle(&minutely, &rules, progress, &[], second(159)).lines, []);
    assert_eq!(settle(&minutely, &rules, progress, &[], second(160)).lines, [at(minute(1), Happened::Fired)]);
}

#[test]
fn twenty_five_hours_down_every_minute() {
    let (minutely, progress) = fresh();
    let up = second(25 * 3600 + 30);
    for overlap in [Overlap::Skip, Overlap::BufferOne, Overlap::AllowAll] {
        for (catchup, runs) in [(0, 0), (1, 1), (10, 10)] {
            let mut lines = Vec::new();
            let mut progress = progress;
            loop {
                let settled = settle(&minutely, &rules(catchup, overlap), progress, &[], up);
                progress = settled.progress;
                lines.extend(settled.lines);
                // One after the other, unless all may run at once: each has ended by the next evaluation.
                if !settled.progress.owes() {
                    break;
                }
                assert!(settled.more == (overlap == Overlap::AllowAll));
            }
            let gap = Gap {
                first: minute(1),
                last: minute(1500 - runs),
                instants: 1500 - runs.unsigned_abs(),
                why: GapReason::Down,
            };
            let mut expected = vec![Line::Gap(gap)];
            expected.extend((1500 - runs + 1..=1500).map(|n| at(minute(n), Happened::CaughtUp)));
            assert_eq!(lines, expected, "{overlap}, {catchup}");
            assert_eq!(progress.next, Some(minute(1501)), "it goes on with the next minute");
        }
    }
}

#[test]
fn after_a_gap_every_second_of_a_year_work_is_still_bounded() {
    let secondly = timetable("* * * * * *");
    let progress = Progress::begin(&secondly, second(0));
    let year = 366 * 86_400;
    let settled = settle(&secondly, &rules(1000, Overlap::AllowAll), progress, &[], second(year));
    let Line::Gap(gap) = settled.lines[0] else { panic!("{:?}", settled.lines) };
    assert_eq!(gap.instants, u64::try_from(year - 1000).unwrap());
    assert_eq!((settled.lines.len(), settled.more), (PAGE, true));
    assert_eq!(settled.progress.backlog, Some(Backlog { next: second(year - 1000 + 64), last: second(year) }));
}

#[test]
fn what_is_older_than_the_window_is_not_caught_up() {
    let daily = timetable("@daily");
    let progress = Progress::begin(&daily, minute(0));
    let rules = Rules { window: Millis::from_secs(3600), ..rules(10, Overlap::AllowAll) };
    let (one, two) = (minute(1440), minute(2 * 1440));
    let within = settle(&daily, &rules, progress, &[], two.plus(Millis::from_secs(3600)));
    let gap = Gap { first: one, last: one, instants: 1, why: GapReason::Down };
    assert_eq!(within.lines, [Line::Gap(gap), at(two, Happened::CaughtUp)]);
    let beyond = settle(&daily, &rules, progress, &[], two.plus(Millis::from_secs(3601)));
    assert_eq!(beyond.lines, [Line::Gap(Gap { last: two, instants: 2, ..gap })]);
}

#[test]
fn a_minute_late_is_in_time_and_more_is_a_gap() {
    let (minutely, progress) = fresh();
    let none = rules(0, Overlap::AllowAll);
    assert_eq!(settle(&minutely, &none, progress, &[], second(120)).lines.len(), 2, "both in time");
    let late = settle(&minutely, &none, progress, &[], second(121));
    let gap = Gap { first: minute(1), last: minute(2), instants: 2, why: GapReason::Down };
    assert_eq!(late.lines, [Line::Gap(gap)]);
}

#[test]
fn skip_names_what_stood_in_the_way() {
    let (minutely, progress) = fresh();
    let rules = rules(1, Overlap::Skip);
    let settled = settle(&minutely, &rules, progress, &blocked_by(7), minute(1));
    assert_eq!(settled.lines, [at(minute(1), Happened::Skipped(InTheWay::Run(run(7))))]);
    assert_eq!(settled.progress.next, Some(minute(2)));
    let both = settle(&minutely, &rules, progress, &[], minute(2));
    let second = Happened::Skipped(InTheWay::Instant(minute(1)));
    assert_eq!(both.lines, [at(minute(1), Happened::Fired), at(minute(2), second)]);
}

#[test]
fn buffer_one_keeps_one_until_its_turn() {
    let (minutely, progress) = fresh();
    let rules = rules(1, Overlap::BufferOne);
    let first = settle(&minutely, &rules, progress, &blocked_by(7), minute(1));
    assert_eq!(first.lines, [at(minute(1), Happened::Waits)]);
    assert!(first.progress.owes() && !first.more);
    let second = settle(&minutely, &rules, first.progress, &blocked_by(7), minute(2));
    assert_eq!(second.lines, [at(minute(2), Happened::Skipped(InTheWay::Run(run(7))))]);
    let free = settle(&minutely, &rules, second.progress, &[], minute(2));
    assert_eq!(free.lines, [at(minute(1), Happened::Fired)]);
    assert_eq!(free.progress, Progress { next: Some(minute(3)), backlog: None, waiting: None, paused: false });
}

#[test]
fn cancel_other_waits_until_the_old_run_is_gone_and_the_newest_wins() {
    let (minutely, progress) = fresh();
    let rules = rules(1, Overlap::CancelOther);
    let first = settle(&minutely, &rules, progress, &blocked_by(7), minute(1));
    assert_eq!((first.lines, first.cancel), (vec![at(minute(1), Happened::Waits)], vec![run(7)]));
    let stopping = [Blocking { run: run(7), stopping: true }];
    let still = settle(&minutely, &rules, first.progress, &stopping, second(90));
    assert_eq!((still.lines, still.cancel, still.progress), (vec![], vec![], first.progress));
    let newer = settle(&minutely, &rules, first.progress, &stopping, minute(2));
    let replaced = at(minute(1), Happened::Skipped(InTheWay::Instant(minute(2))));
    assert_eq!(newer.lines, [replaced, at(minute(2), Happened::Waits)]);
    let free = settle(&minutely, &rules, newer.progress, &[], second(125));
    assert_eq!(free.lines, [at(minute(2), Happened::Fired)]);
    let both = settle(&minutely, &rules, progress, &[], minute(2));
    assert_eq!(both.lines, [replaced, at(minute(2), Happened::Fired)], "the newest of those that are due");
}

#[test]
fn allow_all_fires_whatever_is_there_a_page_at_a_time() {
    let secondly = timetable("* * * * * *");
    let progress = Progress::begin(&secondly, second(0));
    let rules = rules(1000, Overlap::AllowAll);
    let first = settle(&secondly, &rules, progress, &blocked_by(1), second(60));
    assert_eq!((first.lines.len(), first.more), (60, false));
    assert!(first.lines.iter().all(|line| matches!(line, Line::At(_, Happened::Fired))));
}

#[test]
fn the_rules_are_those_of_the_task_file() {
    let schedule = Schedule {
        expression: "@daily".to_owned(),
        time_zone: "UTC".to_owned(),
        catchup: CatchUp::All,
        catchup_window: Millis::from_secs(60),
        catchup_max: 25,
        jitter: Millis::from_secs(30),
    };
    let spread = Spread::of(&"default".parse().unwrap(), &"report".parse().unwrap(), &"cron".parse().unwrap());
    let read = |catchup, overlap| Rules::of(&Schedule { catchup, ..schedule.clone() }, overlap, &spread);
    let all = read(CatchUp::All, Overlap::Skip);
    assert_eq!((all.catchup, all.window, all.delay), (25, Millis::from_secs(60), spread.jitter(Millis::from_secs(30))));
    assert_eq!(read(CatchUp::All, Overlap::CancelOther).catchup, 1);
    assert_eq!(read(CatchUp::Latest, Overlap::Skip).catchup, 1);
    assert_eq!(read(CatchUp::None, Overlap::AllowAll).catchup, 0);
}

/// A task of 60 s every 5 s under `skip`, whose worker is destroyed at 20 s: the run is declared lost at 80 s.
#[test]
fn a_skip_that_seems_never_to_end_is_in_the_ledger_and_ends() {
    let every = timetable("*/5 * * * * *");
    let mut progress = Progress::begin(&every, second(0));
    let mut lines = Vec::new();
    for now in 1..=100 {
        let lost = 80;
        let blocking = if (6..lost).contains(&now) { blocked_by(1).to_vec() } else { Vec::new() };
        let settled = settle(&every, &rules(1, Overlap::Skip), progress, &blocking, second(now));
        progress = settled.progress;
        lines.extend(settled.lines);
        if now == lost {
            break;
        }
    }
    assert_eq!(lines.len(), 16, "every instant has its line");
    assert_eq!(lines[0], at(second(5), Happened::Fired));
    assert!(
        lines[1..15]
            .iter()
            .all(|line| matches!(line, Line::At(_, Happened::Skipped(InTheWay::Run(by))) if *by == run(1)))
    );
    assert_eq!(lines[15], at(second(80), Happened::Fired));
}
