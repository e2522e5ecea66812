//! The local times that an expression matches, and the next and the last of them around another: no zone yet, no search
//! that could run away.
//!
//! Local times are seconds of the calendar since 1970-01-01 as the clock on the wall shows them. Day of month and day of
//! week join by OR when neither holds a star, and else both must match (the Vixie rule). (Control design, *Triggers*.)

use std::ops::Range;

use super::calendar::{DAY, Date, weekday};
use super::expression::{Field, Fields, Form, Item};
use super::{Expression, Spread, Unit};
use crate::time::Millis;

/// An expression with everything decided that its trigger's identity decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times(pub(super) Pace);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pace {
    Every(Millis),
    Clock(Box<ClockTimes>),
}

/// What the clock on the wall must show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClockTimes {
    seconds: Mask,
    minutes: Mask,
    hours: Mask,
    days: Days,
    /// A star among minutes or hours: it follows real time, whatever the clocks are set to.
    pub(super) follows_real_time: bool,
}

/// A set of small numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mask(u64);

impl Mask {
    fn insert(&mut self, value: i64) {
        self.0 |= 1 << value;
    }

    const fn contains(self, value: i64) -> bool {
        value >= 0 && value < 64 && self.0 >> value & 1 == 1
    }

    /// How many members are less than `end`.
    fn below(self, end: i64) -> u64 {
        (self.0 & ((1 << end) - 1)).count_ones().into()
    }

    /// The smallest member from `least` on.
    fn from(self, least: i64) -> Option<i64> {
        let rest = if least < 64 { self.0 >> least } else { 0 };
        (rest != 0).then(|| least + i64::from(rest.trailing_zeros()))
    }

    /// The largest member up to `most`.
    fn up_to(self, most: i64) -> Option<i64> {
        let rest = if most < 0 { 0 } else { self.0 << (63 - most) };
        (rest != 0).then(|| most - i64::from(rest.leading_zeros()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Days {
    months: Mask,
    of_month: DaysOfMonth,
    of_week: DaysOfWeek,
    either: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DaysOfMonth {
    plain: Mask,
    before_last: Mask,
    nearest: Mask,
    last_working_day: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DaysOfWeek {
    plain: Mask,
    last: Mask,
    /// By weekday and nth.
    nth: Mask,
}

impl Expression {
    /// The times of the trigger that `spread` is of.
    pub fn times(&self, spread: &Spread) -> Times {
        Times(match &self.0 {
            Form::Every(span) => Pace::Every(*span),
            Form::Fields(fields) => Pace::Clock(Box::new(ClockTimes::of(fields, spread))),
        })
    }
}

impl ClockTimes {
    fn of(fields: &Fields, spread: &Spread) -> Self {
        let plain = |field: &Field| plain(field, spread);
        let mut of_month = DaysOfMonth { plain: plain(&fields.days), ..DaysOfMonth::default() };
        for item in &fields.days.items {
            match *item {
                Item::Last { before } => of_month.before_last.insert(before.into()),
                Item::Nearest(day) => of_month.nearest.insert(day.into()),
                Item::LastWorkingDay => of_month.last_working_day = true,
                _ => {}
            }
        }
        let mut of_week = DaysOfWeek { plain: plain(&fields.weekdays), ..DaysOfWeek::default() };
        for item in &fields.weekdays.items {
            match *item {
                Item::LastOf(weekday) => of_week.last.insert(weekday.into()),
                Item::Nth { weekday, nth } => of_week.nth.insert(nth_bit(weekday.into(), nth.into())),
                _ => {}
            }
        }
        let either = !fields.days.is_wild() && !fields.weekdays.is_wild();
        Self {
            seconds: fields.seconds.as_ref().map_or(Mask(1), plain),
            minutes: plain(&fields.minutes),
            hours: plain(&fields.hours),
            days: Days { months: plain(&fields.months), of_month, of_week, either },
            follows_real_time: fields.minutes.is_wild() || fields.hours.is_wild(),
        }
    }

    /// The first matching time within `range`.
    pub(super) fn first_in(&self, range: Range<i64>) -> Option<i64> {
        let mut from = range.start;
        while from < range.end {
            let day = from.div_euclid(DAY);
            let date = Date::of(day);
            if !self.days.months.contains(date.month) {
                from = date.next_month().days() * DAY;
                continue;
            }
            if self.days.contains(day, date)
                && let Some(second) = self.second_from(from.rem_euclid(DAY))
            {
                let found = day * DAY + second;
                return (found < range.end).then_some(found);
            }
            from = (day + 1) * DAY;
        }
        None
    }

    /// The last matching time within `range`.
    pub(super) fn last_in(&self, range: Range<i64>) -> Option<i64> {
        let mut to = range.end;
        while to > range.start {
            let day = (to - 1).div_euclid(DAY);
            let date = Date::of(day);
            if !self.days.months.contains(date.month) {
                to = Date { day: 1, ..date }.days() * DAY;
                continue;
            }
            if self.days.contains(day, date)
                && let Some(second) = self.second_up_to((to - 1).rem_euclid(DAY))
            {
                let found = day * DAY + second;
                return (found >= range.start).then_some(found);
            }
            to = day * DAY;
        }
        None
    }

    /// How many matching times `range` has.
    pub(super) fn count_in(&self, range: Range<i64>) -> u64 {
        let mut count = 0;
        let mut from = range.start;
        while from < range.end {
            let day = from.div_euclid(DAY);
            let date = Date::of(day);
            let mut next = (day + 1) * DAY;
            if !self.days.months.contains(date.month) {
                next = date.next_month().days() * DAY;
            } else if self.days.contains(day, date) {
                count += self.seconds_before(range.end.min(next) - day * DAY) - self.seconds_before(from - day * DAY);
            }
            from = next;
        }
        count
    }

    /// How many seconds of a day match before this one.
    fn seconds_before(&self, second: i64) -> u64 {
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let of_minute = if self.minutes.contains(minute) { self.seconds.below(second) } else { 0 };
        let of_hour =
            if self.hours.contains(hour) { self.minutes.below(minute) * self.seconds.below(60) + of_minute } else { 0 };
        self.hours.below(hour) * self.minutes.below(60) * self.seconds.below(60) + of_hour
    }

    /// The first matching second of a day from `least` on.
    fn second_from(&self, least: i64) -> Option<i64> {
        let (hour, minute, second) = (least / 3600, least / 60 % 60, least % 60);
        let first = self.minutes.from(0)? * 60 + self.seconds.from(0)?;
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.from(second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = self.minutes.from(minute + 1) {
                return Some(hour * 3600 + minute * 60 + self.seconds.from(0)?);
            }
        }
        Some(self.hours.from(hour + 1)? * 3600 + first)
    }

    /// The last matching second of a day up to `most`.
    fn second_up_to(&self, most: i64) -> Option<i64> {
        let (hour, minute, second) = (most / 3600, most / 60 % 60, most % 60);
        let last = self.minutes.up_to(59)? * 60 + self.seconds.up_to(59)?;
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.up_to(second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = self.minutes.up_to(minute - 1) {
                return Some(hour * 3600 + minute * 60 + self.seconds.up_to(59)?);
            }
        }
        Some(self.hours.up_to(hour - 1)? * 3600 + last)
    }
}

impl Days {
    fn contains(&self, day: i64, date: Date) -> bool {
        let weekday = weekday(day);
        let of_month = self.of_month.contains(date, weekday);
        let of_week = self.of_week.contains(date, weekday);
        if self.either { of_month || of_week } else { of_month && of_week }
    }
}

impl DaysOfMonth {
    fn contains(&self, date: Date, weekday: i64) -> bool {
        let last = date.month_length();
        self.plain.contains(date.day)
            || self.before_last.contains(last - date.day)
            || self.nearest.0 != 0 && self.is_nearest(date.day, weekday, last)
            || self.last_working_day && is_last_working_day(date.day, weekday, last)
    }

    /// Whether this day is the working day nearest to one of those that were named, within their month.
    fn is_nearest(&self, day: i64, weekday: i64, last: i64) -> bool {
        match weekday {
            0 | 6 => false,
            // A Friday stands for the Saturday after it, and for a Sunday that ends the month.
            5 => {
                self.nearest.contains(day)
                    || day < last && self.nearest.contains(day + 1)
                    || day + 2 == last && self.nearest.contains(last)
            }
            // A Monday stands for the Sunday before it, and for a Saturday that begins the month.
            1 => {
                self.nearest.contains(day)
                    || day > 1 && self.nearest.contains(day - 1)
                    || day == 3 && self.nearest.contains(1)
            }
            _ => self.nearest.contains(day),
        }
    }
}

fn is_last_working_day(day: i64, weekday: i64, last: i64) -> bool {
    match weekday {
        0 | 6 => false,
        5 => day + 2 >= last,
        _ => day == last,
    }
}

impl DaysOfWeek {
    fn contains(&self, date: Date, weekday: i64) -> bool {
        self.plain.contains(weekday)
            || self.last.contains(weekday) && date.day + 7 > date.month_length()
            || self.nth.contains(nth_bit(weekday, (date.day - 1) / 7 + 1))
    }
}

const fn nth_bit(weekday: i64, nth: i64) -> i64 {
    weekday * 6 + nth
}

/// The values that a field lists, the days' own words aside.
fn plain(field: &Field, spread: &Spread) -> Mask {
    let unit = field.unit;
    let mut mask = Mask::default();
    let mut insert = |first: u8, last: u8, step: u8| {
        for value in (first..=last).step_by(step.max(1).into()) {
            mask.insert(if unit == Unit::Weekday { i64::from(value % 7) } else { value.into() });
        }
    };
    for item in &field.items {
        match *item {
            Item::All { step } => insert(unit.first(), unit.last(), step),
            Item::Range { first, last, step } => insert(first, last, step),
            Item::Hash { first, last, step: None } => {
                let value = first + spread.below(last - first + 1, unit);
                insert(value, value, 1);
            }
            Item::Hash { first, last, step: Some(step) } => insert(first + spread.below(step, unit), last, step),
            _ => {}
        }
    }
    mask
}
