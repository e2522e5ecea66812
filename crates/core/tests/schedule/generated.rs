//! Expressions drawn at random, each with the generator's own reading of what it means.

use std::collections::BTreeSet;

use jiff::civil::Date;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::schedule::Spread;

/// `SplitMix64`: small, and the same on every machine.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `first` to `last`, both included.
    fn within(&mut self, first: u8, last: u8) -> u8 {
        first + u8::try_from(self.next() % (u64::from(last - first) + 1)).unwrap()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// The trigger that every expression belongs to.
pub(crate) fn spread() -> Spread {
    Spread::of(&"default".parse().unwrap(), &"oracle".parse().unwrap(), &"cron".parse().unwrap())
}

/// One day of the calendar.
pub(crate) struct Day {
    date: Date,
    month: u8,
    number: u8,
    /// 0 is Sunday.
    weekday: u8,
    length: u8,
    /// The day of the week that the month began with.
    first: u8,
}

impl Day {
    pub(crate) fn of(date: Date) -> Self {
        let weekday = |date: Date| u8::try_from(date.weekday().to_sunday_zero_offset()).unwrap();
        let small = |number: i8| u8::try_from(number).unwrap();
        Self {
            date,
            month: small(date.month()),
            number: small(date.day()),
            weekday: weekday(date),
            length: small(date.days_in_month()),
            first: weekday(date.first_of_month()),
        }
    }

    fn weekday_of(&self, day: u8) -> u8 {
        (self.first + day - 1) % 7
    }
}

/// What one part of a day field means.
#[derive(Clone, Copy)]
enum DayPart {
    Plain(u8),
    BeforeLast(u8),
    LastWorkingDay,
    Nearest(u8),
    Weekday(u8),
    LastOf(u8),
    Nth(u8, u8),
}

impl DayPart {
    fn has(self, day: &Day) -> bool {
        let works = |number: &u8| !matches!(day.weekday_of(*number), 0 | 6);
        match self {
            Self::Plain(number) => day.number == number,
            Self::BeforeLast(before) => day.number + before == day.length,
            Self::LastWorkingDay => (1..=day.length).rev().find(works) == Some(day.number),
            Self::Nearest(number) => {
                let nearest = (1..=day.length).filter(works).min_by_key(|other| other.abs_diff(number));
                number <= day.length && nearest == Some(day.number)
            }
            Self::Weekday(weekday) => day.weekday == weekday,
            Self::LastOf(weekday) => {
                day.weekday == weekday && (day.date + jiff::Span::new().days(7)).month() != day.date.month()
            }
            Self::Nth(weekday, nth) => {
                let earlier = (1..=day.number).filter(|number| day.weekday_of(*number) == weekday).count();
                day.weekday == weekday && earlier == usize::from(nth)
            }
        }
    }
}

/// An expression, and what it means.
pub(crate) struct Generated {
    pub(crate) text: String,
    pub(crate) seconds: BTreeSet<u8>,
    pub(crate) minutes: BTreeSet<u8>,
    pub(crate) hours: BTreeSet<u8>,
    pub(crate) follows_real_time: bool,
    months: BTreeSet<u8>,
    days: Vec<DayPart>,
    weekdays: Vec<DayPart>,
    either: bool,
}

/// A field of plain numbers.
struct Numbers {
    text: String,
    values: BTreeSet<u8>,
    star: bool,
}

impl Generated {
    /// Draws one that the parser takes: mostly sparse, around the hours when clocks change.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        loop {
            let drawn = Self::draw_any(dice);
            let ever = (1..=12).filter(|month| drawn.months.contains(month)).any(|month| {
                let days = Date::new(2028, i8::try_from(month).unwrap(), 1).unwrap();
                (1..=days.days_in_month()).any(|day| {
                    let date = Date::new(2028, days.month(), day).unwrap();
                    drawn.days.iter().any(|part| match part {
                        DayPart::Plain(number) | DayPart::Nearest(number) => {
                            i16::from(*number) == i16::from(date.day())
                        }
                        _ => true,
                    })
                })
            });
            if ever || drawn.either {
                return drawn;
            }
        }
    }

    fn draw_any(dice: &mut Dice) -> Self {
        let seconds = dice.one_in(8).then(|| numbers(dice, 0, 59, 0));
        let minutes = numbers(dice, 0, 59, 1);
        let hours = if dice.one_in(3) { numbers(dice, 0, 23, 2) } else { numbers(dice, 0, 4, 2) };
        let months = if dice.one_in(3) { numbers(dice, 1, 12, 4) } else { every("*", 1, 12) };
        let (mut days, day_parts, day_star) = days(dice);
        let (mut weekdays, weekday_parts, weekday_star) = weekdays(dice);
        if day_star && dice.one_in(4) && days == "*" {
            "?".clone_into(&mut days);
        }
        if weekday_star && dice.one_in(4) && weekdays == "*" {
            "?".clone_into(&mut weekdays);
        }
        let five = format!("{} {} {days} {} {weekdays}", minutes.text, hours.text, months.text);
        let text = match &seconds {
            Some(seconds) => format!("{} {five}", seconds.text),
            None => five,
        };
        Self {
            text,
            seconds: seconds.map_or_else(|| BTreeSet::from([0]), |seconds| seconds.values),
            follows_real_time: minutes.star || hours.star,
            minutes: minutes.values,
            hours: hours.values,
            months: months.values,
            days: day_parts,
            weekdays: weekday_parts,
            either: !day_star && !weekday_star,
        }
    }

    /// Whether it fires on this day.
    pub(crate) fn has_day(&self, day: &Day) -> bool {
        let of_month = self.days.iter().any(|part| part.has(day));
        let of_week = self.weekdays.iter().any(|part| part.has(day));
        self.months.contains(&day.month) && if self.either { of_month || of_week } else { of_month && of_week }
    }
}

fn every(text: &str, first: u8, last: u8) -> Numbers {
    Numbers { text: text.to_owned(), values: (first..=last).collect(), star: true }
}

/// The number below `count` that the trigger's identity chooses for the `field`-th field.
fn hashed(field: usize, count: u8) -> u8 {
    let digest = Digest::of(Domain::Trigger, b"default/oracle/cron");
    let word = &digest.as_bytes()[field * 4..field * 4 + 4];
    let number = word.iter().fold(0_u64, |number, byte| number * 256 + u64::from(*byte));
    u8::try_from(number % u64::from(count)).unwrap()
}

/// A field with values from `first` to `last`, which may be less than the field has; stars mean all that it has.
fn numbers(dice: &mut Dice, first: u8, last: u8, field: usize) -> Numbers {
    let whole_last = [59, 59, 23, 31, 12][field];
    let parts = if dice.one_in(4) { 2 } else { 1 };
    let mut texts = Vec::new();
    let mut values = BTreeSet::new();
    let mut star = false;
    for _ in 0..parts {
        let mut insert = |first: u8, last: u8, step: u8| values.extend((first..=last).step_by(step.into()));
        match dice.within(0, 9) {
            0..=4 => {
                let value = dice.within(first, last);
                texts.push(value.to_string());
                insert(value, value, 1);
            }
            5 => {
                let (from, to) = (dice.within(first, last - 1), last);
                let to = dice.within(from, to);
                texts.push(format!("{from}-{to}"));
                insert(from, to, 1);
            }
            6 => {
                let from = dice.within(first, last - 2);
                let step = dice.within(1, last - from);
                texts.push(format!("{from}-{last}/{step}"));
                insert(from, last, step);
            }
            7 => {
                let step = dice.within(2, whole_last - first);
                texts.push(format!("*/{step}"));
                insert(first, whole_last, step);
                star = true;
            }
            8 if dice.one_in(2) => {
                let step = dice.within(2, whole_last - first);
                texts.push(format!("H/{step}"));
                insert(first + hashed(field, step), whole_last, step);
                star = true;
            }
            8 => {
                let value = first + hashed(field, last - first + 1);
                texts.push(format!("H({first}-{last})"));
                insert(value, value, 1);
            }
            _ if field == 1 => {
                let value = hashed(field, 60);
                texts.push("H".to_owned());
                insert(value, value, 1);
            }
            _ => {
                texts.push("*".to_owned());
                insert(first, whole_last, 1);
                star = true;
            }
        }
    }
    Numbers { text: texts.join(","), values, star }
}

fn days(dice: &mut Dice) -> (String, Vec<DayPart>, bool) {
    let mut texts = Vec::new();
    let mut parts = Vec::new();
    let mut star = false;
    for _ in 0..if dice.one_in(3) { 2 } else { 1 } {
        match dice.within(0, 9) {
            0..=2 => {
                texts.push("*".to_owned());
                parts.extend((1..=31).map(DayPart::Plain));
                star = true;
            }
            3 | 4 => {
                let day = dice.within(1, 31);
                texts.push(day.to_string());
                parts.push(DayPart::Plain(day));
            }
            5 => {
                let step = dice.within(2, 15);
                texts.push(format!("*/{step}"));
                parts.extend((1..=31).step_by(step.into()).map(DayPart::Plain));
                star = true;
            }
            6 => {
                let before = dice.within(0, 5);
                texts.push(if before == 0 { "L".to_owned() } else { format!("L-{before}") });
                parts.push(DayPart::BeforeLast(before));
            }
            7 => {
                texts.push("LW".to_owned());
                parts.push(DayPart::LastWorkingDay);
            }
            8 => {
                let day = dice.within(1, 31);
                texts.push(format!("{day}W"));
                parts.push(DayPart::Nearest(day));
            }
            _ => {
                texts.push("H".to_owned());
                parts.push(DayPart::Plain(1 + hashed(3, 28)));
            }
        }
    }
    (texts.join(","), parts, star)
}

fn weekdays(dice: &mut Dice) -> (String, Vec<DayPart>, bool) {
    const NAMES: [&str; 7] = ["SUN", "mon", "Tue", "WED", "THU", "FRI", "sat"];
    let mut texts = Vec::new();
    let mut parts = Vec::new();
    let mut star = false;
    for _ in 0..if dice.one_in(3) { 2 } else { 1 } {
        let weekday = dice.within(0, 6);
        let name = |weekday: u8| NAMES[usize::from(weekday)];
        match dice.within(0, 9) {
            0..=4 => {
                texts.push("*".to_owned());
                parts.extend((0..=6).map(DayPart::Weekday));
                star = true;
            }
            5 => {
                texts.push(name(weekday).to_owned());
                parts.push(DayPart::Weekday(weekday));
            }
            6 => {
                let last = dice.within(weekday, 7);
                texts.push(if last == 7 && weekday > 0 {
                    format!("{weekday}-SUN")
                } else if last == 7 {
                    "0-6".to_owned()
                } else {
                    format!("{}-{last}", name(weekday))
                });
                parts.extend((weekday..=last).map(|weekday| DayPart::Weekday(weekday % 7)));
            }
            7 => {
                texts.push(format!("{weekday}L"));
                parts.push(DayPart::LastOf(weekday));
            }
            8 => {
                let nth = dice.within(1, 5);
                texts.push(format!("{}#{nth}", name(weekday)));
                parts.push(DayPart::Nth(weekday, nth));
            }
            _ => {
                texts.push("*/2".to_owned());
                parts.extend([0, 2, 4, 6].map(DayPart::Weekday));
                star = true;
            }
        }
    }
    (texts.join(","), parts, star)
}
