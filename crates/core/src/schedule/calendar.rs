//! The calendar as arithmetic: days since 1970-01-01 and their dates, without a zone and without a library.
//!
//! Proleptic Gregorian, exact for every day that a schedule can reach. The parser needs it too, and the parser is part
//! of what the worker carries: that is why it is not asked of a time library. (Control design, *Triggers*.)

/// Seconds of a day without a change of clocks.
pub(super) const DAY: i64 = 86_400;

/// One day, with everything that the day fields ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
}

impl Date {
    /// The date of the day `days` after 1970-01-01.
    pub(super) const fn of(days: i64) -> Self {
        // Years that begin in March put the leap day last; 400 of them have 146,097 days.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
        Self { year, month, day }
    }

    /// The days from 1970-01-01 to this date.
    pub(super) const fn days(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (self.month + 9) % 12;
        let of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
    }

    /// The first day of the month after its own.
    pub(super) const fn next_month(self) -> Self {
        Self { year: self.year + self.month / 12, month: self.month % 12 + 1, day: 1 }
    }

    /// How many days its month has.
    pub(super) const fn month_length(self) -> i64 {
        match self.month {
            2 if self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

/// The longest that a month can get.
pub(super) const fn longest(month: i64) -> i64 {
    Date { year: 2000, month, day: 1 }.month_length()
}

/// The day of the week of the day `days` after 1970-01-01: 0 is Sunday.
pub(super) const fn weekday(days: i64) -> i64 {
    // That day was a Thursday.
    (days + 4).rem_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_centuries_has_its_date() {
        let mut expected = Date { year: 1900, month: 1, day: 1 };
        let first = expected.days();
        assert_eq!((first, weekday(first)), (-25_567, 1), "a Monday");
        for days in first..first + 146_097 {
            assert_eq!(Date::of(days), expected);
            assert_eq!(expected.days(), days);
            expected.day += 1;
            if expected.day > expected.month_length() {
                expected = Date { month: expected.month + 1, day: 1, ..expected };
            }
            if expected.month > 12 {
                expected = Date { year: expected.year + 1, month: 1, day: 1 };
            }
        }
        assert_eq!(expected, Date { year: 2300, month: 1, day: 1 });
    }
}
