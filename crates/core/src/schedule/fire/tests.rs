//! Fire times on the clocks of known zones; the brute-force oracle over every zone is `tests/schedule`.

mod invented;

use super::*;
use crate::schedule::{Expression, Spread, Zone};
use crate::time::Millis;

fn spread(task: &str) -> Spread {
    Spread::of(&"default".parse().unwrap(), &task.parse().unwrap(), &"cron".parse().unwrap())
}

fn timetable(expression: &str, zone: &str) -> Timetable<Zone> {
    let times = expression.parse::<Expression>().unwrap_or_else(|error| panic!("{expression}: {error}"));
    Timetable::new(times.times(&spread("report")), Zone::named(zone).unwrap())
}

/// An instant as people write it.
fn utc(text: &str) -> UtcMillis {
    UtcMillis::new(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn print(instant: UtcMillis) -> String {
    jiff::Timestamp::from_millisecond(instant.get()).unwrap().to_string()
}

/// Every fire time of a local day, forwards; the way back and the count must agree.
fn on(timetable: &Timetable<Zone>, zone: &str, day: &str) -> Vec<String> {
    let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
    let day: jiff::civil::Date = day.parse().unwrap();
    let begin = |day: jiff::civil::Date| {
        let midnight = zone.to_ambiguous_timestamp(day.at(0, 0, 0, 0)).compatible().unwrap();
        UtcMillis::new(midnight.as_millisecond())
    };
    let (from, to) = (begin(day), begin(day.tomorrow().unwrap()));
    between(timetable, from, to)
}

fn between(timetable: &Timetable<Zone>, from: UtcMillis, to: UtcMillis) -> Vec<String> {
    let one = Millis::new(1);
    let mut forwards = Vec::new();
    let mut at = from.minus(one);
    while let Some(next) = timetable.next_fire(at).filter(|next| *next < to) {
        forwards.push(print(next));
        at = next;
    }
    let mut backwards = Vec::new();
    let mut at = to;
    while let Some(last) = timetable.last_fire(at).filter(|last| *last >= from) {
        backwards.push(print(last));
        at = last;
    }
    backwards.reverse();
    assert_eq!(forwards, backwards);
    assert_eq!(timetable.fires(from, to.minus(one)), u64::try_from(forwards.len()).unwrap());
    forwards
}

#[track_caller]
fn check(expression: &str, zone: &str, day: &str, expected: &[&str]) {
    assert_eq!(on(&timetable(expression, zone), zone, day), expected, "{expression} in {zone} on {day}");
}

#[track_caller]
fn count(expression: &str, zone: &str, day: &str, expected: usize) {
    assert_eq!(on(&timetable(expression, zone), zone, day).len(), expected, "{expression} in {zone} on {day}");
}

#[test]
fn clocks_that_change_in_new_york() {
    let zone = "America/New_York";
    check("30 2 * * *", zone, "2027-03-14", &["2027-03-14T07:00:00Z"]);
    check("30 1 * * *", zone, "2027-11-07", &["2027-11-07T05:30:00Z"]);
    count("0 * * * *", zone, "2027-03-14", 23);
    count("0 * * * *", zone, "2027-11-07", 25);
    count("*/15 1-3 * * *", zone, "2027-03-14", 8);
    count("*/15 1-3 * * *", zone, "2027-11-07", 16);
    // A list or a range is no star: each of its times fires once, and those that do not exist fire together.
    check("0,30 2 * * *", zone, "2027-03-14", &["2027-03-14T07:00:00Z"]);
    check("0 1,2,3 * * *", zone, "2027-03-14", &["2027-03-14T06:00:00Z", "2027-03-14T07:00:00Z"]);
    count("0 1-3 * * *", zone, "2027-11-07", 3);
    // Whoever asks within the hour that comes again has seen it already.
    let daily = timetable("30 1 * * *", zone);
    assert_eq!(daily.next_fire(utc("2027-11-07T06:10:00Z")).map(print).as_deref(), Some("2027-11-08T06:30:00Z"));
    // Seconds are no matter: it is half past two.
    check("*/20 30 2 * * *", zone, "2027-03-14", &["2027-03-14T07:00:00Z"]);
    count("*/20 30 1 * * *", zone, "2027-11-07", 3);
    // A star that steps is one, also where the identity says where it begins.
    count("0 */2 * * *", zone, "2027-03-14", 11);
    count("H/15 1-3 * * *", zone, "2027-11-07", 16);
}

#[test]
fn half_an_hour_at_lord_howe() {
    let zone = "Australia/Lord_Howe";
    check("45 1 * * *", zone, "2027-04-04", &["2027-04-03T14:45:00Z"]);
    count("*/10 * * * *", zone, "2027-04-04", 147);
    check("15 2 * * *", zone, "2027-10-03", &["2027-10-02T15:30:00Z"]);
}

#[test]
fn a_midnight_or_a_day_that_does_not_exist() {
    check("0 0 * * *", "America/Santiago", "2027-09-05", &["2027-09-05T04:00:00Z"]);
    // Samoa had no 30 December 2011; what was set for it fires with the day after it, once.
    let apia = timetable("30 9 30 12 *", "Pacific/Apia");
    assert_eq!(between(&apia, utc("2011-12-01T00:00:00Z"), utc("2012-02-01T00:00:00Z")), ["2011-12-30T10:00:00Z"]);
    // Alaska lived 24 hours of October 1867 twice.
    let juneau = timetable("0 12 * * *", "America/Juneau");
    let (from, to) = (utc("1867-10-01T00:00:00Z"), utc("1867-11-01T00:00:00Z"));
    assert_eq!(between(&juneau, from, to).len(), 30);
    assert_eq!(between(&timetable("0 12 * * *", "UTC"), from, to).len(), 31);
}

#[test]
fn days_join_as_in_vixie_cron() {
    let fires =
        |expression| between(&timetable(expression, "UTC"), utc("2027-03-01T00:00:00Z"), utc("2027-04-01T00:00:00Z"));
    let days = |expression| fires(expression).iter().map(|time| time[8..10].parse().unwrap()).collect::<Vec<u8>>();
    // 1 March 2027 is a Monday.
    assert_eq!(days("0 0 13 * FRI"), [5, 12, 13, 19, 26], "either");
    assert_eq!(days("0 0 * * FRI"), [5, 12, 19, 26]);
    assert_eq!(days("0 0 13 * *"), [13]);
    assert_eq!(days("0 0 */2 * MON"), [1, 15, 29], "a star restricts nothing by itself: both");
    assert_eq!(days("0 0 1-7 * */2"), [2, 4, 6, 7], "both");
    assert_eq!(days("0 0 L * *"), [31]);
    assert_eq!(days("0 0 L-3,LW * *"), [28, 31]);
    assert_eq!(days("0 0 6W,7W,14W,20W * *"), [5, 8, 15, 19]);
    assert_eq!(days("0 0 * * 5L,1#2,3#5"), [8, 26, 31]);
    assert_eq!(days("0 0 * * FRI-SUN"), [5, 6, 7, 12, 13, 14, 19, 20, 21, 26, 27, 28]);
}

#[test]
fn the_nearest_working_day_stays_within_its_month() {
    let year =
        |expression| between(&timetable(expression, "UTC"), utc("2027-01-01T00:00:00Z"), utc("2028-01-01T00:00:00Z"));
    // 1 May 2027 is a Saturday, 1 August a Sunday; 31 January and 31 October are Sundays, 31 July a Saturday.
    let first = year("0 0 1W * *");
    assert!(first.contains(&"2027-05-03T00:00:00Z".to_owned()) && first.contains(&"2027-08-02T00:00:00Z".to_owned()));
    let last = year("0 0 31W * *");
    assert_eq!(
        last.iter().map(|time| &time[5..10]).collect::<Vec<_>>(),
        ["01-29", "03-31", "05-31", "07-30", "08-31", "10-29", "12-31"]
    );
    let working = year("0 0 LW * *");
    assert_eq!(
        working.iter().map(|time| &time[5..10]).collect::<Vec<_>>(),
        ["01-29", "02-26", "03-31", "04-30", "05-31", "06-30", "07-30", "08-31", "09-30", "10-29", "11-30", "12-31"]
    );
}

#[test]
fn every_is_anchored_in_utc_and_never_drifts() {
    let every = timetable("@every 90s", "Asia/Kathmandu");
    let fires = between(&every, utc("2027-01-01T00:00:00Z"), utc("2027-01-01T00:05:00Z"));
    assert_eq!(fires, ["2027-01-01T00:00:00Z", "2027-01-01T00:01:30Z", "2027-01-01T00:03:00Z", "2027-01-01T00:04:30Z"]);
    let fraction = timetable("@every 1500ms", "UTC");
    assert_eq!(fraction.next_fire(UtcMillis::new(1499)), Some(UtcMillis::new(1500)));
    assert_eq!(fraction.last_fire(UtcMillis::new(-1)), Some(UtcMillis::new(-1500)));
    assert_eq!(fraction.next_fire(UtcMillis::new(i64::MAX)), None);
}

#[test]
fn a_millisecond_belongs_to_its_second() {
    let minute = timetable("* * * * *", "UTC");
    assert_eq!(minute.next_fire(UtcMillis::new(59_999)), Some(UtcMillis::new(60_000)));
    assert_eq!(minute.next_fire(UtcMillis::new(60_000)), Some(UtcMillis::new(120_000)));
    assert_eq!(minute.last_fire(UtcMillis::new(60_001)), Some(UtcMillis::new(60_000)));
    assert_eq!(minute.last_fire(UtcMillis::new(60_000)), Some(UtcMillis::new(0)));
    assert_eq!(minute.next_fire(UtcMillis::new(-1)), Some(UtcMillis::new(0)));
    assert_eq!(minute.fires(UtcMillis::new(1), UtcMillis::new(59_999)), 0);
    assert_eq!(minute.fires(UtcMillis::new(0), UtcMillis::new(60_000)), 2);
    assert_eq!(minute.fires(UtcMillis::new(1), UtcMillis::new(0)), 0);
}

#[test]
fn what_never_fires_is_known_within_the_horizon() {
    // The clocks change on that very morning, always.
    let gap = timetable("*/10 2 * 3 0#2", "America/New_York");
    assert_eq!(gap.next_fire(utc("2027-01-01T00:00:00Z")), None);
    assert_eq!(gap.last_fire(utc("2300-01-01T00:00:00Z")), None);
    assert_eq!(gap.fires(utc("2027-01-01T00:00:00Z"), utc("2070-01-01T00:00:00Z")), 0);
    // The rarest day: from 2072 over 2100 to 2112.
    let rare = timetable("0 0 */28 2 1#5", "UTC");
    assert_eq!(rare.next_fire(utc("2072-03-01T00:00:00Z")).map(print).as_deref(), Some("2112-02-29T00:00:00Z"));
}

#[test]
fn times_beyond_the_calendar_are_none() {
    let daily = timetable("0 0 * * *", "Europe/Berlin");
    for instant in [UtcMillis::new(i64::MAX), UtcMillis::new(Utc::END * 1000)] {
        assert_eq!(daily.next_fire(instant), None);
    }
    for instant in [UtcMillis::new(i64::MIN), UtcMillis::new(-Utc::END * 1000)] {
        assert_eq!(daily.last_fire(instant), None);
        assert_eq!(daily.fires(instant, instant), 0);
    }
}

#[test]
fn the_identity_chooses_what_h_leaves_open() {
    let times = |task: &str| "H H * * *".parse::<Expression>().unwrap().times(&spread(task));
    let first = |task: &str| Timetable::new(times(task), Utc).next_fire(UtcMillis::new(0));
    assert_eq!(first("report"), first("report"));
    let all: std::collections::BTreeSet<_> = (0..200).map(|n| first(&format!("task-{n}"))).collect();
    assert!(all.len() > 150, "{}", all.len());
    for n in 0..200 {
        let within = "H(10-20) H(2-4) H * *".parse::<Expression>().unwrap().times(&spread(&format!("task-{n}")));
        let fire = Timetable::new(within, Utc).next_fire(UtcMillis::new(0)).unwrap();
        let minute = fire.get() / 60_000;
        assert!((10..=20).contains(&(minute % 60)) && (2..=4).contains(&(minute / 60 % 24)), "{}", print(fire));
    }
}
