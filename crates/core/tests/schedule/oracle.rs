//! What the clocks of a zone show at every minute of some years, and where that matches. Slow and plain on purpose.

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::{Date, date};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::generated::{Day, Generated};

const DAY: i64 = 1440;

/// Local minutes reach further than real ones on both sides.
const MARGIN: i64 = 3 * DAY;

/// Which years, and every how many minutes the zone is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) year: i16,
    pub(crate) years: i16,
    pub(crate) step: i64,
}

impl Period {
    /// Its first second.
    pub(crate) fn from(self) -> i64 {
        seconds(date(self.year, 1, 1))
    }

    /// The first second after it.
    pub(crate) fn to(self) -> i64 {
        seconds(date(self.year + self.years, 1, 1))
    }

    fn minutes(self) -> Range<i64> {
        self.from() / 60..self.to() / 60
    }

    /// The first minute that the oracle looks at: what was shown before the period counts too.
    fn first(self) -> i64 {
        self.minutes().start - DAY
    }

    /// The local minutes that anything in it can show.
    fn local(self) -> Range<i64> {
        let Range { start, end } = self.minutes();
        start - MARGIN..end + MARGIN
    }
}

fn seconds(date: Date) -> i64 {
    TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).unwrap().as_second()
}

/// The dates of a period.
pub(crate) struct Calendar {
    days: Vec<Day>,
}

impl Calendar {
    pub(crate) fn of(period: Period) -> Self {
        let first = period.local().start / DAY;
        let mut today = date(period.year, 1, 1);
        for _ in 0..MARGIN / DAY {
            today = today.yesterday().unwrap();
        }
        assert_eq!(first, seconds(today) / 86_400);
        let mut days = Vec::new();
        for _ in first..period.local().end / DAY {
            days.push(Day::of(today));
            today = today.tomorrow().unwrap();
        }
        Self { days }
    }

    /// Which local minutes match, counted from the first that anything can show.
    pub(crate) fn minutes(&self, generated: &Generated) -> Vec<u32> {
        let of_day =
            || generated.hours.iter().flat_map(|hour| generated.minutes.iter().map(move |minute| (hour, minute)));
        let days = (0_u32..).zip(&self.days).filter(|(_, day)| generated.has_day(day));
        days.flat_map(|(day, _)| {
            of_day().map(move |(hour, minute)| day * 1440 + u32::from(*hour) * 60 + u32::from(*minute))
        })
        .collect()
    }
}

/// The clock on the wall, minute by minute. Real minutes count from the first that was asked, local ones from the first that
/// anything can show.
pub(crate) struct Clock {
    pub(crate) period: Period,
    /// What it shows.
    shown: Vec<u32>,
    /// By local minute: when it was first shown, or [`NEVER`].
    showed: Vec<u32>,
    /// Local minutes that had been shown before: `(local, real)`.
    again: Vec<(u32, u32)>,
    /// By local minute: when it, or a later one, was first shown, or [`NEVER`].
    reached: Vec<u32>,
}

const NEVER: u32 = u32::MAX;

/// Zones whose clocks seem to show the same: asked twice a day. What differs in between is found when they are compared.
pub(crate) fn groups(period: Period, zones: &[String]) -> Vec<Vec<String>> {
    let database = TimeZoneDatabase::bundled();
    let mut groups: BTreeMap<Vec<i32>, Vec<String>> = BTreeMap::new();
    for name in zones {
        let zone = database.get(name).unwrap();
        let asked = (period.from()..period.to()).step_by(12 * 3600);
        let offset = |second: i64| zone.to_offset(Timestamp::from_second(second).unwrap()).seconds();
        groups.entry(asked.map(offset).collect()).or_default().push(name.clone());
    }
    groups.into_values().collect()
}

impl Clock {
    pub(crate) fn ask(period: Period, name: &str) -> Self {
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let (first, end, base) = (period.first(), period.minutes().end, period.local().start);
        let local = usize::try_from(period.local().end - base).unwrap();
        let mut shown = Vec::new();
        let (mut showed, mut reached) = (vec![NEVER; local], vec![NEVER; local]);
        let mut again = Vec::new();
        let mut furthest = None;
        let mut offset = 0;
        for (index, real) in (0_u32..).zip(first..end) {
            if (real - first) % period.step == 0 {
                offset = zone.to_offset(Timestamp::from_second(real * 60).unwrap()).seconds();
                assert_eq!(offset % 60, 0, "{name}: such a clock needs a finer oracle");
            }
            let shows = real + i64::from(offset / 60) - base;
            let at = usize::try_from(shows).unwrap();
            let shows = u32::try_from(shows).unwrap();
            shown.push(shows);
            if showed[at] == NEVER {
                showed[at] = index;
            } else {
                again.push((shows, index));
            }
            let next = furthest.get_or_insert(at);
            while *next <= at {
                reached[*next] = index;
                *next += 1;
            }
        }
        Self { period, shown, showed, again, reached }
    }

    /// Seconds that the clock is ahead of UTC.
    pub(crate) fn offset_at(&self, second: i64) -> i64 {
        let index = usize::try_from(second / 60 - self.period.first()).unwrap();
        (i64::from(self.shown[index]) + self.period.local().start - second / 60) * 60
    }

    /// When it changes within the period, in seconds.
    pub(crate) fn changes(&self) -> Vec<i64> {
        let jumps = self.shown.windows(2).enumerate().filter(|(_, pair)| pair[0] + 1 != pair[1]);
        let at = jumps.map(|(index, _)| (self.period.first() + i64::try_from(index).unwrap() + 1) * 60);
        at.filter(|at| (self.period.from()..self.period.to()).contains(at)).collect()
    }

    /// A day before and after each change of clocks, and the first day of all.
    pub(crate) fn around_changes(&self) -> Vec<Range<i64>> {
        let begin = self.period.from();
        let changes = self.changes().into_iter().chain([begin]);
        let mut windows = Vec::new();
        for change in changes {
            windows.push((change - 5 * 3600).max(begin)..(change + 5 * 3600).min(self.period.to()));
        }
        windows
    }

    /// Every fire time in `window`, in seconds, of what matches at these local minutes.
    pub(crate) fn fires(&self, generated: &Generated, minutes: &[u32], window: Range<i64>) -> Vec<i64> {
        let local = |second: i64| u32::try_from((second / 60 - self.period.local().start).max(0)).unwrap();
        let (begin, end) = (local(window.start - MARGIN * 60), local(window.end + MARGIN * 60));
        let minutes = &minutes[minutes.partition_point(|minute| *minute < begin)..];
        let minutes = &minutes[..minutes.partition_point(|minute| *minute < end)];
        let mut fires = Vec::new();
        let first = self.period.first();
        let second = |real: u32| (first + i64::from(real)) * 60;
        let whole = |real: u32| generated.seconds.iter().map(move |offset| second(real) + i64::from(*offset));
        for minute in minutes {
            let at = usize::try_from(*minute).unwrap();
            let (showed, reached) = (self.showed[at], self.reached[at]);
            if generated.follows_real_time {
                fires.extend((showed != NEVER).then(|| whole(showed)).into_iter().flatten());
            } else if reached != NEVER && showed == reached {
                fires.extend(whole(reached));
            } else if reached != NEVER {
                // The clock jumped over it: it fires at once, and once.
                fires.push(second(reached));
            }
        }
        if generated.follows_real_time {
            let again = self.again.iter().filter(|(local, _)| minutes.binary_search(local).is_ok());
            fires.extend(again.flat_map(|(_, real)| whole(*real)));
        }
        fires.retain(|second| window.contains(second));
        fires.sort_unstable();
        fires.dedup();
        fires
    }
}
