//! What is wrong with an expression, where, and what is allowed there.

use super::unit::Unit;
use crate::limits::CRON_BYTES;

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: expected {}", self.got(), self.allowed())]
pub struct ExpressionError {
    /// The field, unless the whole is wrong.
    pub unit: Option<Unit>,
    /// The part that is wrong, cut to 64 characters.
    pub part: String,
    /// What is wrong with it.
    pub mistake: Mistake,
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// More bytes than an expression may have.
    Long,
    /// This many fields.
    Fields(usize),
    /// An `@` word that nobody knows.
    Word,
    /// `@every` without a span, or with one outside its bounds.
    Every,
    /// Nothing that this field may hold.
    Unknown,
    /// A number outside the field.
    Range,
    /// A range that ends before it begins.
    Backwards,
    /// `5/15`: where does it end?
    OpenStep,
    /// A step of zero, or one that leaves a single value.
    Step {
        /// The largest step that leaves a second value.
        most: u8,
    },
    /// No year has such a day.
    Never,
}

impl ExpressionError {
    pub(super) fn new(unit: Option<Unit>, part: &str, mistake: Mistake) -> Self {
        Self { unit, part: part.chars().take(64).collect(), mistake }
    }

    /// What was got, and where.
    pub fn got(&self) -> String {
        match (self.mistake, self.unit) {
            (Mistake::Fields(count), _) => format!("{count} fields"),
            (_, Some(unit)) => format!("`{}` in the {unit} field", self.part),
            (_, None) => format!("`{}`", self.part),
        }
    }

    /// What is allowed there.
    pub fn allowed(&self) -> String {
        let field = || self.unit.map_or(FORMS, Unit::allowed);
        match self.mistake {
            Mistake::Long => format!("at most {CRON_BYTES} bytes"),
            Mistake::Fields(_) | Mistake::Word => FORMS.to_owned(),
            Mistake::Every => "@every with a span from 1s to 366d, such as 90s, 5m or 1h30m".to_owned(),
            Mistake::Unknown | Mistake::Range => field().to_owned(),
            Mistake::Backwards => "a range that ends after it begins; write two of them, such as 22-23,0-5".to_owned(),
            Mistake::OpenStep => {
                let (start, step) = self.part.split_once('/').unwrap_or((&self.part, "1"));
                let last = self.unit.map_or(59, Unit::last);
                format!("a step within a range: `{start}-{last}/{step}` begins at {start}, `*/{step}` at the first")
            }
            Mistake::Step { most: 0 } => "no step: there is only one value".to_owned(),
            Mistake::Step { most } => {
                format!("a step from 1 to {most}; a longer one leaves a single value, which is written without it")
            }
            Mistake::Never => "a day that some year has in one of these months".to_owned(),
        }
    }
}

/// What an expression may look like, for people.
const FORMS: &str = "5 or 6 fields such as `0 3 * * *` (six begin with seconds), @hourly, @daily, @weekly, @monthly, \
                     @yearly or `@every 90s`";
