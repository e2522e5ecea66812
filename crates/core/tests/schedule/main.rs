//! Fire times against a brute-force oracle: generated expressions, whole years, real zones.
//!
//! The oracle shares nothing with the evaluator but the offsets of the zone database: it asks for the offset every
//! minute, writes down what the clock on the wall shows, and looks where the generator's own reading of the expression
//! matches. Random; the seed is printed and replays.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod generated;
mod oracle;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use leasehold_core::schedule::{Expression, Offsets, Span, Timetable, Zone};
use leasehold_core::time::UtcMillis;

use generated::{Dice, Generated};
use oracle::{Calendar, Clock, Period};

/// How much is compared.
struct Scale {
    period: Period,
    zones: Vec<String>,
    expressions: usize,
    /// An expression that fires more often is compared around changes of clocks only.
    often: usize,
}

impl Scale {
    fn is_often(&self, generated: &Generated, minutes: &[u32]) -> bool {
        minutes.len() * generated.seconds.len() > self.often
    }
}

#[derive(Default)]
struct Compared {
    zones: usize,
    clocks: usize,
    changes: AtomicUsize,
    pairs: usize,
    /// Expressions that fire too often to be compared everywhere.
    often: usize,
    fires: AtomicU64,
}

/// Compares all of it, on `threads` threads.
fn compare(seed: u64, scale: &Scale, threads: usize) -> Compared {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let calendar = Calendar::of(scale.period);
    let expressions: Vec<(Generated, Vec<u32>)> = (0..scale.expressions)
        .map(|_| {
            let generated = Generated::draw(&mut dice);
            let minutes = calendar.minutes(&generated);
            (generated, minutes)
        })
        .collect();
    let groups = oracle::groups(scale.period, &scale.zones);
    let compared = Compared {
        zones: scale.zones.len(),
        clocks: groups.len(),
        pairs: scale.zones.len() * expressions.len(),
        often: expressions.iter().filter(|(generated, minutes)| scale.is_often(generated, minutes)).count(),
        ..Compared::default()
    };
    std::thread::scope(|scope| {
        let (groups, expressions, compared) = (&groups, &expressions, &compared);
        for thread in 0..threads {
            scope.spawn(move || {
                for zones in groups.iter().skip(thread).step_by(threads) {
                    let clock = Clock::ask(scale.period, &zones[0]);
                    compared.changes.fetch_add(clock.changes().len(), Ordering::Relaxed);
                    for name in zones {
                        same_spans(&clock, name);
                    }
                    for (generated, minutes) in expressions {
                        let fires = one_pair(seed, scale, &clock, &zones[0], generated, minutes);
                        compared.fires.fetch_add(fires, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    compared
}

/// What one search to the horizon takes, in microseconds: the longest that a call can be.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for people")]
fn longest_search() -> u128 {
    // It never fires: the clocks change on that very morning.
    let never: Expression = "*/10 2 * 3 0#2".parse().unwrap();
    let timetable = Timetable::new(never.times(&generated::spread()), Zone::named("America/New_York").unwrap());
    let begin = std::time::Instant::now();
    for year in 0..100 {
        assert_eq!(timetable.next_fire(UtcMillis::new(1_800_000_000_000 + year * 31_557_600_000)), None);
    }
    begin.elapsed().as_micros() / 100
}

/// Zones that show the same on every minute are compared once; that each of them is read alike is looked at here.
fn same_spans(clock: &Clock, name: &str) {
    let zone = Zone::named(name).unwrap();
    let mut at = clock.period.from();
    for change in clock.changes().into_iter().chain([clock.period.to()]) {
        let offset = clock.offset_at(at);
        while at < change {
            let Span { to, offset: read, .. } = zone.span(at);
            assert_eq!(read, offset, "{name} at {at}");
            at = to.min(clock.period.to());
        }
        assert_eq!(at, change, "{name}: a change of clocks was not seen, or one too many");
    }
}

/// Compares one expression on one clock; answers how many fire times there were.
fn one_pair(seed: u64, scale: &Scale, clock: &Clock, name: &str, generated: &Generated, minutes: &[u32]) -> u64 {
    let told = || format!("`{}` in {name}, seed {seed}", generated.text);
    let expression: Expression = generated.text.parse().unwrap_or_else(|error| panic!("{}: {error}", told()));
    let timetable = Timetable::new(expression.times(&generated::spread()), Zone::named(name).unwrap());
    let period = clock.period;
    let windows = if scale.is_often(generated, minutes) {
        clock.around_changes()
    } else {
        std::iter::once(period.from()..period.to()).collect()
    };
    let mut count = 0;
    for window in windows {
        let expected = clock.fires(generated, minutes, window.clone());
        let mut at = window.start * 1000 - 1;
        for second in &expected {
            let next = timetable.next_fire(UtcMillis::new(at)).map(UtcMillis::get);
            assert_eq!(next, Some(second * 1000), "after {at}: {}", told());
            at = second * 1000;
        }
        let beyond = timetable.next_fire(UtcMillis::new(at)).map(UtcMillis::get);
        assert!(beyond.is_none_or(|beyond| beyond >= window.end * 1000), "after {at}: {}", told());
        // Backwards, and counted, in steps that no field has.
        let mut before = window.end * 1000;
        for (index, second) in expected.iter().enumerate().rev().step_by(7) {
            if index + 1 < expected.len() {
                before = expected[index + 1] * 1000;
            }
            let last = timetable.last_fire(UtcMillis::new(before)).map(UtcMillis::get);
            assert_eq!(last, Some(second * 1000), "before {before}: {}", told());
        }
        for part in 0..4 {
            let (from, to) = (window.start + (window.end - window.start) * part / 9, window.end - 1 - part);
            let within = expected.iter().filter(|second| (from..=to).contains(*second)).count();
            let counted = timetable.fires(UtcMillis::new(from * 1000), UtcMillis::new(to * 1000));
            assert_eq!(counted, u64::try_from(within).unwrap(), "from {from} to {to}: {}", told());
        }
        count += u64::try_from(expected.len()).unwrap();
    }
    count
}

#[test]
fn fire_times_agree_with_the_brute_force_oracle() {
    let zones = [
        "UTC",
        "America/New_York",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Kathmandu",
        "America/Santiago",
        "Pacific/Chatham",
        "Antarctica/Troll",
    ];
    let scale = Scale {
        period: Period { year: 2027, years: 2, step: 15 },
        zones: zones.map(str::to_owned).to_vec(),
        expressions: 40,
        often: 600,
    };
    let compared = compare(1, &scale, 1);
    assert!(compared.changes.into_inner() > 20, "clocks that change are what this is for");
    assert!(compared.fires.into_inner() > 10_000);
}

/// The past holds what the next ten years may not: a day left out, a quarter of an hour, changes within days.
#[test]
fn fire_times_agree_where_the_past_was_wild() {
    for (year, zones) in [
        (2011, &["Pacific/Apia", "Europe/Moscow", "Africa/Cairo", "Pacific/Fakaofo"][..]),
        (2015, &["Asia/Pyongyang", "America/Caracas", "America/Cancun", "Pacific/Norfolk"]),
        (1993, &["Pacific/Kwajalein", "Asia/Kathmandu", "America/Scoresbysund"]),
    ] {
        let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        let scale = Scale { period: Period { year, years: 1, step: 15 }, zones, expressions: 40, often: 400 };
        compare(u64::from(year.unsigned_abs()), &scale, 1);
    }
}

#[test]
#[ignore = "minutes: `cargo xtask schedules`, after a change of the evaluator or of the zones"]
fn ten_years_in_every_zone() {
    let period = Period { year: 2026, years: 10, step: 5 };
    let scale = Scale { period, zones: Zone::names(), expressions: 200, often: 600_000 };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let Compared { zones, clocks, changes, pairs, often, fires } = compare(2026, &scale, threads);
    let (changes, fires) = (changes.into_inner(), fires.into_inner());
    assert!(zones > 500 && changes > 500, "{zones} zones with {changes} changes");
    let longest = longest_search();
    println!("a search to the horizon takes {longest} µs");
    assert!(longest < 10_000, "{longest} µs: whoever asks for a next fire waits for it");
    println!("{zones} zones ({clocks} different clocks with {changes} changes), {pairs} pairs, {fires} fire times");
    println!("{often} of the expressions fire too often: those were compared around changes of clocks only");
}
