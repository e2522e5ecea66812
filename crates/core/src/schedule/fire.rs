//! The instants at which a trigger fires: its times, read on the clocks of a zone.
//!
//! A zone is a row of spans with one offset each. Within a span, local time and real time run alike; between two spans the
//! clock on the wall jumps. A fixed time fires when the clock first shows it or a later one: what counts is how far the
//! clock has ever come, not what it shows. Every search ends: at the horizon at the latest. (Control design, *Triggers*.)

use std::ops::Range;

use super::Times;
use super::calendar::DAY;
use super::times::{ClockTimes, Pace};
use crate::time::UtcMillis;

/// How far a search looks. The rarest day that the calendar has (29 February on one day of the week, around 2100) comes
/// again after 40 years.
const HORIZON: i64 = 48 * 366 * DAY;

/// Further back no span can have shown a later local time: offsets lie between -26 and 26 hours.
const LOOK_BACK: i64 = 3 * DAY;

/// Seconds since 1970-01-01 UTC between which the offset of a zone stays the same: from the first, before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first second.
    pub from: i64,
    /// The first second after it.
    pub to: i64,
    /// What the clock on the wall is ahead of UTC, in seconds.
    pub offset: i64,
}

/// A zone, as far as schedules ask.
pub trait Offsets {
    /// The span that holds this second.
    fn span(&self, second: i64) -> Span;
}

impl<Z: Offsets + ?Sized> Offsets for &Z {
    fn span(&self, second: i64) -> Span {
        (**self).span(second)
    }
}

/// The zone without changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Utc;

impl Utc {
    /// Before and after it, nothing is scheduled: about 10,000 years.
    pub(super) const END: i64 = 253_402_207_200;
}

impl Offsets for Utc {
    fn span(&self, _second: i64) -> Span {
        Span { from: -Self::END, to: Self::END, offset: 0 }
    }
}

/// The times of a trigger in its zone.
#[derive(Debug, Clone)]
pub struct Timetable<Z> {
    times: Times,
    zone: Z,
}

impl<Z: Offsets> Timetable<Z> {
    /// These times on the clocks of `zone`.
    pub const fn new(times: Times, zone: Z) -> Self {
        Self { times, zone }
    }

    /// The first fire time after `after`. None: none within 48 years, which means never.
    pub fn next_fire(&self, after: UtcMillis) -> Option<UtcMillis> {
        match &self.times.0 {
            Pace::Every(span) => {
                let span = i64::try_from(span.get()).ok()?;
                after.get().div_euclid(span).checked_add(1)?.checked_mul(span).map(UtcMillis::new)
            }
            Pace::Clock(times) => self.next(times, after.get().div_euclid(1000)).map(instant),
        }
    }

    /// The last fire time before `before`. None: none within 48 years.
    pub fn last_fire(&self, before: UtcMillis) -> Option<UtcMillis> {
        let last = before.get().checked_sub(1)?;
        match &self.times.0 {
            Pace::Every(span) => {
                let span = i64::try_from(span.get()).ok()?;
                last.div_euclid(span).checked_mul(span).map(UtcMillis::new)
            }
            Pace::Clock(times) => self.last(times, last.div_euclid(1000) + 1).map(instant),
        }
    }

    /// How many fire times there are from `first` to `last`, both included; counted by days, not by walking. At most 48
    /// years are counted.
    pub fn fires(&self, first: UtcMillis, last: UtcMillis) -> u64 {
        if last < first {
            return 0;
        }
        match &self.times.0 {
            Pace::Every(span) => {
                let span = i64::try_from(span.get()).unwrap_or(i64::MAX);
                let before = first.get().saturating_sub(1).div_euclid(span);
                u64::try_from(last.get().div_euclid(span) - before).unwrap_or(0)
            }
            Pace::Clock(times) => {
                let from = first.get().saturating_sub(1).div_euclid(1000) + 1;
                self.count(times, from..last.get().div_euclid(1000) + 1)
            }
        }
    }

    fn next(&self, times: &ClockTimes, after: i64) -> Option<i64> {
        let horizon = after.saturating_add(HORIZON).min(Utc::END);
        let mut from = after.saturating_add(1);
        while from < horizon {
            let span = self.zone.span(from);
            let part = self.part(times, span, from..horizon);
            if let Some(local) = times.first_in(part.local) {
                return Some(part.from.max(local - span.offset));
            }
            from = span.to;
        }
        None
    }

    fn last(&self, times: &ClockTimes, before: i64) -> Option<i64> {
        let horizon = before.saturating_sub(HORIZON).max(-Utc::END);
        let mut to = before;
        while to > horizon {
            let span = self.zone.span(to - 1);
            let part = self.part(times, span, horizon.max(span.from)..to);
            if let Some(local) = times.last_in(part.local) {
                return Some(part.from.max(local - span.offset));
            }
            to = span.from;
        }
        None
    }

    fn count(&self, times: &ClockTimes, range: Range<i64>) -> u64 {
        let mut from = range.start.max(range.end.saturating_sub(HORIZON));
        let mut count = 0;
        while from < range.end {
            let span = self.zone.span(from);
            let part = self.part(times, span, from..range.end);
            // What the clock jumped over fires at once, as one.
            let shown = (part.from + span.offset + 1).clamp(part.local.start, part.local.end.max(part.local.start));
            count += u64::from(times.first_in(part.local.start..shown).is_some());
            count += times.count_in(shown..part.local.end);
            from = span.to;
        }
        count
    }

    /// What of `range` lies in `span`, and the local times that fire there.
    fn part(&self, times: &ClockTimes, span: Span, range: Range<i64>) -> Part {
        let from = range.start.max(span.from);
        let shown = from + span.offset;
        let local_end = range.end.min(span.to) + span.offset;
        let local_start = if times.follows_real_time {
            shown
        } else {
            let furthest = self.furthest_before(span);
            // At the first second of a span everything fires that the clock jumped over.
            if from == span.from { furthest + 1 } else { shown.max(furthest + 1) }
        };
        Part { from, local: local_start..local_end }
    }

    /// The latest local time that the clock on the wall had shown before `span` began.
    fn furthest_before(&self, span: Span) -> i64 {
        let mut at = span.from;
        // Before the first span there was no clock to jump.
        let mut furthest = at + span.offset - if at > -Utc::END { LOOK_BACK } else { 1 };
        while at > span.from - LOOK_BACK && at > -Utc::END {
            let earlier = self.zone.span(at - 1);
            furthest = furthest.max(earlier.to - 1 + earlier.offset);
            at = earlier.from;
        }
        furthest
    }
}

/// A part of a span.
struct Part {
    /// Its first second.
    from: i64,
    /// The local times that fire in it; those before `from` fire at `from`.
    local: Range<i64>,
}

const fn instant(second: i64) -> UtcMillis {
    UtcMillis::new(second * 1000)
}

#[cfg(test)]
mod tests;
