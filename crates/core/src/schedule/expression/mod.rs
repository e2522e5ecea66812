//! The text of a schedule: what people write, read once into what it says, with an error that helps.
//!
//! Part of every build, the worker's too: a revision is judged by the same reader wherever it is read. It knows no zone
//! and no clock. What it says (`H` included) is evaluated by [`super::Times`]. (Product, *A task file*.)

mod error;
mod item;
mod unit;

use std::fmt;
use std::str::FromStr;

use super::calendar;
use crate::limits::{CRON_BYTES, EVERY_MAX, EVERY_MIN};
use crate::time::Millis;

pub use error::{ExpressionError, Mistake};
pub(super) use item::Item;
pub use unit::Unit;

/// When a trigger fires, as it was written. Printed, it is in canonical form: numbers for names, fields for `@daily`; two
/// expressions that print alike mean the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression(pub(super) Form);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// `@every`: whole multiples of the span since 1970-01-01 UTC, in every zone.
    Every(Millis),
    /// Fields.
    Fields(Fields),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    /// Five fields mean second 0.
    pub(super) seconds: Option<Field>,
    pub(super) minutes: Field,
    pub(super) hours: Field,
    pub(super) days: Field,
    pub(super) months: Field,
    pub(super) weekdays: Field,
}

/// One field: what stands between the commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) unit: Unit,
    pub(super) items: Vec<Item>,
}

impl Field {
    fn read(unit: Unit, text: &str) -> Result<Self, ExpressionError> {
        let items: Result<Vec<Item>, _> = text.split(',').map(|part| Item::read(unit, part)).collect();
        Ok(Self { unit, items: items? })
    }

    /// Whether it holds a star: it does not restrict by itself.
    pub(super) fn is_wild(&self) -> bool {
        self.items.iter().any(|item| item.is_wild(self.unit))
    }
}

/// `@` words and the fields they stand for.
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        let whole = |mistake| ExpressionError::new(None, text, mistake);
        if text.len() > CRON_BYTES {
            return Err(whole(Mistake::Long));
        }
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let form = match parts[..] {
            ["@every", ref rest @ ..] => {
                let [span] = rest else { return Err(whole(Mistake::Every)) };
                let span = span.parse().ok().filter(|span| (EVERY_MIN..=EVERY_MAX).contains(span));
                Form::Every(span.ok_or_else(|| whole(Mistake::Every))?)
            }
            [word] if word.starts_with('@') => {
                let known = WORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
                return known.ok_or_else(|| whole(Mistake::Word))?.1.parse();
            }
            [minutes, hours, days, months, weekdays] => {
                Form::Fields(Fields::read(None, [minutes, hours, days, months, weekdays])?)
            }
            [seconds, minutes, hours, days, months, weekdays] => {
                Form::Fields(Fields::read(Some(seconds), [minutes, hours, days, months, weekdays])?)
            }
            _ => return Err(whole(Mistake::Fields(parts.len()))),
        };
        Ok(Self(form))
    }
}

impl Fields {
    fn read(seconds: Option<&str>, rest: [&str; 5]) -> Result<Self, ExpressionError> {
        let [minutes, hours, days, months, weekdays] = rest;
        let fields = Self {
            seconds: seconds.map(|text| Field::read(Unit::Second, text)).transpose()?,
            minutes: Field::read(Unit::Minute, minutes)?,
            hours: Field::read(Unit::Hour, hours)?,
            days: Field::read(Unit::Day, days)?,
            months: Field::read(Unit::Month, months)?,
            weekdays: Field::read(Unit::Weekday, weekdays)?,
        };
        if fields.never() {
            return Err(ExpressionError::new(Some(Unit::Day), days, Mistake::Never));
        }
        Ok(fields)
    }

    /// Whether no month of these is ever long enough, and no day of the week can take the day's place.
    fn never(&self) -> bool {
        let longest = self.months.items.iter().map(|item| match *item {
            Item::Range { first, last, step } => {
                (first..=last).step_by(step.into()).map(|month| calendar::longest(month.into())).max().unwrap_or(0)
            }
            // Any month that the identity may choose will do; the evaluation says `None` where it chose badly.
            _ => 31,
        });
        let longest = longest.max().unwrap_or(0);
        let comes = |item: &Item| match *item {
            Item::Range { first: day, .. } | Item::Nearest(day) => i64::from(day) <= longest,
            _ => true,
        };
        self.weekdays.is_wild() && !self.days.items.iter().any(comes)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Every(span) => write!(f, "@every {span}"),
            Form::Fields(fields) => {
                if let Some(seconds) = &fields.seconds {
                    write!(f, "{seconds} ")?;
                }
                let Fields { minutes, hours, days, months, weekdays, .. } = fields;
                write!(f, "{minutes} {hours} {days} {months} {weekdays}")
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", item.spelled(self.unit))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
