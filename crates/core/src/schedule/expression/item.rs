//! One part of a field: a value, a range, a step, or one of the words that name days. (Product, *A task file*.)

use std::fmt;

use super::error::{ExpressionError, Mistake};
use super::unit::Unit;

/// What stands between two commas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::schedule) enum Item {
    /// `*`, `?` and `*/n`.
    All { step: u8 },
    /// `a`, `a-b`, `a-b/n`.
    Range { first: u8, last: u8, step: u8 },
    /// `H`, `H/n`, `H(a-b)`, `H(a-b)/n`: a value, or a first value, that the trigger's identity chooses.
    Hash { first: u8, last: u8, step: Option<u8> },
    /// `L`, `L-n`: so many days before the last of the month.
    Last { before: u8 },
    /// `LW`: the last working day of the month.
    LastWorkingDay,
    /// `nW`: the working day of the month that is nearest to it.
    Nearest(u8),
    /// `nL`: the last such weekday of the month.
    LastOf(u8),
    /// `n#k`: the k-th such weekday of the month.
    Nth { weekday: u8, nth: u8 },
}

/// Days before the last that every month has.
const BEFORE_LAST: u8 = 27;

impl Item {
    /// Reads what stands between two commas.
    pub(super) fn read(unit: Unit, text: &str) -> Result<Self, ExpressionError> {
        Reader { unit, text }.read()
    }

    /// Whether it is a star: it stands for "whenever the clock shows such a value".
    pub(in crate::schedule) fn is_wild(self, unit: Unit) -> bool {
        match self {
            Self::All { .. } => true,
            // A star whose steps begin where the identity says.
            Self::Hash { first, last, step: Some(_) } => (first, last) == (unit.first(), unit.last_hashed()),
            _ => false,
        }
    }

    /// How it is spelled in canonical form.
    pub(super) fn spelled(self, unit: Unit) -> impl fmt::Display {
        fmt::from_fn(move |f| match self {
            Self::All { step: 1 } => f.write_str("*"),
            Self::All { step } => write!(f, "*/{step}"),
            Self::Range { first, last, .. } if first == last => write!(f, "{first}"),
            Self::Range { first, last, step: 1 } => write!(f, "{first}-{last}"),
            Self::Range { first, last, step } => write!(f, "{first}-{last}/{step}"),
            Self::Hash { first, last, step } => {
                f.write_str("H")?;
                if (first, last) != (unit.first(), unit.last_hashed()) {
                    write!(f, "({first}-{last})")?;
                }
                step.map_or(Ok(()), |step| write!(f, "/{step}"))
            }
            Self::Last { before: 0 } => f.write_str("L"),
            Self::Last { before } => write!(f, "L-{before}"),
            Self::LastWorkingDay => f.write_str("LW"),
            Self::Nearest(day) => write!(f, "{day}W"),
            Self::LastOf(weekday) => write!(f, "{weekday}L"),
            Self::Nth { weekday, nth } => write!(f, "{weekday}#{nth}"),
        })
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    unit: Unit,
    text: &'a str,
}

impl Reader<'_> {
    fn refused(self, mistake: Mistake) -> ExpressionError {
        ExpressionError::new(Some(self.unit), self.text, mistake)
    }

    fn read(self) -> Result<Item, ExpressionError> {
        if let Some(item) = self.day_word()? {
            return Ok(item);
        }
        let (base, step) = match self.text.split_once('/') {
            Some((base, step)) => (base, Some(step)),
            None => (self.text, None),
        };
        let unit = self.unit;
        if base == "*" || base == "?" && step.is_none() && matches!(unit, Unit::Day | Unit::Weekday) {
            return Ok(Item::All { step: self.step(step, unit.first(), unit.last())?.unwrap_or(1) });
        }
        if let Some(within) = base.strip_prefix(['H', 'h']) {
            let (first, last) = self.hashed(within)?;
            return Ok(Item::Hash { first, last, step: self.step(step, first, last)? });
        }
        if let Some((first, last)) = base.split_once('-') {
            let (first, last) = self.range(first, last)?;
            return Ok(Item::Range { first, last, step: self.step(step, first, last)?.unwrap_or(1) });
        }
        let value = self.value(base)?;
        if step.is_some() {
            return Err(self.refused(Mistake::OpenStep));
        }
        Ok(Item::Range { first: value, last: value, step: 1 })
    }

    /// The words that only the two day fields have.
    fn day_word(self) -> Result<Option<Item>, ExpressionError> {
        let text = self.text.to_ascii_uppercase();
        match self.unit {
            Unit::Day if text == "L" => Ok(Some(Item::Last { before: 0 })),
            Unit::Day if text == "LW" => Ok(Some(Item::LastWorkingDay)),
            Unit::Day => {
                if let Some(before) = text.strip_prefix("L-") {
                    let before = self.number(before)?;
                    let known = (1..=BEFORE_LAST).contains(&before);
                    return if known { Ok(Some(Item::Last { before })) } else { Err(self.refused(Mistake::Range)) };
                }
                text.strip_suffix('W').map(|day| self.value(day).map(Item::Nearest)).transpose()
            }
            Unit::Weekday => {
                if let Some((weekday, nth)) = text.split_once('#') {
                    let (weekday, nth) = (self.value(weekday)?, self.number(nth)?);
                    let known = (1..=5).contains(&nth);
                    return if known {
                        Ok(Some(Item::Nth { weekday, nth }))
                    } else {
                        Err(self.refused(Mistake::Range))
                    };
                }
                text.strip_suffix('L').map(|weekday| self.value(weekday).map(Item::LastOf)).transpose()
            }
            _ => Ok(None),
        }
    }

    /// The bounds of `H`, or of `H(a-b)`.
    fn hashed(self, within: &str) -> Result<(u8, u8), ExpressionError> {
        if within.is_empty() {
            return Ok((self.unit.first(), self.unit.last_hashed()));
        }
        let inner = within.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let (first, last) =
            inner.and_then(|inner| inner.split_once('-')).ok_or_else(|| self.refused(Mistake::Unknown))?;
        let (first, last) = self.range(first, last)?;
        if last > self.unit.last_hashed() { Err(self.refused(Mistake::Range)) } else { Ok((first, last)) }
    }

    fn range(self, first: &str, last: &str) -> Result<(u8, u8), ExpressionError> {
        let (first, mut last) = (self.value(first)?, self.value(last)?);
        // FRI-SUN: as an end, Sunday comes after Saturday.
        if self.unit == Unit::Weekday && last == 0 && first > 0 {
            last = 7;
        }
        if first > last { Err(self.refused(Mistake::Backwards)) } else { Ok((first, last)) }
    }

    /// A value of the field; a Sunday written 7 is 0.
    fn value(self, text: &str) -> Result<u8, ExpressionError> {
        if let Some(value) = self.unit.named(text) {
            return Ok(value);
        }
        let value = self.number(text)?;
        match value {
            7 if self.unit == Unit::Weekday => Ok(0),
            value if (self.unit.first()..=self.unit.last()).contains(&value) => Ok(value),
            _ => Err(self.refused(Mistake::Range)),
        }
    }

    fn step(self, text: Option<&str>, first: u8, last: u8) -> Result<Option<u8>, ExpressionError> {
        let Some(text) = text else { return Ok(None) };
        let most = last - first;
        let step = self.number(text)?;
        if (1..=most).contains(&step) { Ok(Some(step)) } else { Err(self.refused(Mistake::Step { most })) }
    }

    /// Digits and nothing else; what is too large for every field saturates.
    fn number(self, text: &str) -> Result<u8, ExpressionError> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.refused(Mistake::Unknown));
        }
        Ok(text.parse().unwrap_or(u8::MAX))
    }
}
