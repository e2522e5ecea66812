//! Runs for instants that have passed, because a person asks for them: each with its original time, page by page.
//!
//! An instant that has a run already gets no second: the store admits one per trigger and nominal time. Overlap and catch-up
//! do not apply, limits of runs at once do. (Control design, *Triggers*.)

use super::{Offsets, Timetable};
use crate::limits::{BACKFILL_RUNS, PAGE};
use crate::time::{Millis, UtcMillis};

/// A page of a backfill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfill {
    /// Nominal times, the oldest first.
    pub instants: Vec<UtcMillis>,
    /// Where the next page begins; none: this was the last.
    pub rest: Option<UtcMillis>,
}

/// Why there is no backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackfillError {
    /// It ends before it begins.
    #[error("the time to fill ends before it begins")]
    Backwards,
    /// It reaches beyond the present.
    #[error("the time to fill is not over yet: the trigger fires in it by itself")]
    Future,
    /// The schedule has no instant in it.
    #[error("the schedule has no time between these")]
    Nothing,
    /// The schedule has too many instants in it.
    #[error("the schedule has {instants} times between these: at most {} can be filled at once", BACKFILL_RUNS)]
    TooMany {
        /// How many.
        instants: u64,
    },
}

/// The first page of the instants from `first` to `last`, both included.
pub fn backfill<Z: Offsets>(
    timetable: &Timetable<Z>,
    first: UtcMillis,
    last: UtcMillis,
    now: UtcMillis,
) -> Result<Backfill, BackfillError> {
    if last < first {
        return Err(BackfillError::Backwards);
    }
    if last > now {
        return Err(BackfillError::Future);
    }
    match timetable.fires(first, last) {
        0 => return Err(BackfillError::Nothing),
        instants if instants > BACKFILL_RUNS.into() => return Err(BackfillError::TooMany { instants }),
        _ => {}
    }
    let mut instants = Vec::new();
    let mut next = timetable.next_fire(first.minus(Millis::new(1)));
    while let Some(nominal) = next.filter(|nominal| *nominal <= last) {
        if instants.len() == PAGE {
            return Ok(Backfill { instants, rest: Some(nominal) });
        }
        instants.push(nominal);
        next = timetable.next_fire(nominal);
    }
    Ok(Backfill { instants, rest: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Expression, Spread, Utc};

    fn hourly() -> Timetable<Utc> {
        let spread = Spread::of(&"default".parse().unwrap(), &"report".parse().unwrap(), &"cron".parse().unwrap());
        Timetable::new("@hourly".parse::<Expression>().unwrap().times(&spread), Utc)
    }

    const fn hours(n: i64) -> UtcMillis {
        UtcMillis::new(n * 3_600_000)
    }

    #[test]
    fn every_instant_comes_once_page_by_page() {
        let mut all = Vec::new();
        let mut first = Some(hours(3));
        while let Some(from) = first {
            let page = backfill(&hourly(), from, hours(150), hours(150)).unwrap();
            assert!(page.instants.len() <= PAGE);
            all.extend(page.instants);
            first = page.rest;
        }
        assert_eq!(all, (3..=150).map(hours).collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_filled_is_refused() {
        let asked = |first, last| backfill(&hourly(), first, last, hours(5000)).map(|page| page.instants.len());
        assert_eq!(asked(hours(2), hours(1)), Err(BackfillError::Backwards));
        assert_eq!(asked(hours(2), hours(5001)), Err(BackfillError::Future));
        assert_eq!(asked(hours(2).plus(Millis::new(1)), hours(3).minus(Millis::new(1))), Err(BackfillError::Nothing));
        assert_eq!(asked(hours(1), hours(1001)), Err(BackfillError::TooMany { instants: 1001 }));
        assert_eq!(asked(hours(1), hours(1000)), Ok(PAGE));
        assert_eq!(asked(hours(7), hours(7)), Ok(1));
    }
}
