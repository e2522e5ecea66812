//! The six fields: what each may hold, and what people call its values.

names! {
    /// One field of an expression.
    pub enum Unit as "field" {
        /// Seconds; only in expressions of six fields.
        Second = "second",
        /// Minutes.
        Minute = "minute",
        /// Hours.
        Hour = "hour",
        /// Days of the month.
        Day = "day-of-month",
        /// Months.
        Month = "month",
        /// Days of the week.
        Weekday = "day-of-week",
    }
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Unit {
    /// The smallest value.
    pub const fn first(self) -> u8 {
        match self {
            Self::Second | Self::Minute | Self::Hour | Self::Weekday => 0,
            Self::Day | Self::Month => 1,
        }
    }

    /// The largest value. Sunday is 0 and may be written 7.
    pub const fn last(self) -> u8 {
        match self {
            Self::Second | Self::Minute => 59,
            Self::Hour => 23,
            Self::Day => 31,
            Self::Month => 12,
            Self::Weekday => 6,
        }
    }

    /// The largest value that `H` chooses: every month has it.
    pub const fn last_hashed(self) -> u8 {
        match self {
            Self::Day => 28,
            _ => self.last(),
        }
    }

    /// The value that `word` names, in any case.
    pub(super) fn named(self, word: &str) -> Option<u8> {
        let names: &[&str] = match self {
            Self::Month => &MONTHS,
            Self::Weekday => &WEEKDAYS,
            _ => &[],
        };
        let at = names.iter().position(|name| name.eq_ignore_ascii_case(word))?;
        u8::try_from(at).ok().map(|at| at + self.first())
    }

    /// What the field may hold, for people.
    pub const fn allowed(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => {
                "0 to 59, *, ranges such as 10-20, steps such as */5 or 10-50/5, lists with commas, H"
            }
            Self::Hour => "0 to 23, *, ranges such as 9-17, steps such as */2 or 9-17/2, lists with commas, H",
            Self::Day => {
                "1 to 31, *, ?, ranges such as 1-7, steps such as */2, lists with commas, L (the last day), \
                 L-3, 15W (the working day nearest to it), LW (the last working day), H"
            }
            Self::Month => "1 to 12 or JAN to DEC, *, ranges such as APR-SEP, steps such as */3, lists with commas, H",
            Self::Weekday => {
                "0 to 7 or SUN to SAT (0 and 7 are Sunday), *, ?, ranges such as MON-FRI, lists with commas, \
                 5L (the last Friday), 5#2 (the second Friday), H"
            }
        }
    }
}
