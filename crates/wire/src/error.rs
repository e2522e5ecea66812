//! Why a body cannot be read: a stable code, the field, what is wrong with it, and what is allowed.
//!
//! Never a secret: texts that may be one are described by their kind only. (Product, *What bad input gets*.)

use leasehold_core::canonical::CanonicalError;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::shape::{ShapeError, ShapeErrorKind};

/// A body, header or path that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    /// The stable code: `invalid_request`, `unknown_field`, `limit_exceeded` or `unsupported_protocol`.
    pub code: RefusalCode,
    /// The field, such as `asks[2].offer_id`; empty for the whole body.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What is allowed there, where that can be said.
    pub allowed: Option<String>,
}

impl WireError {
    /// A value that is not allowed.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self {
            code: RefusalCode::InvalidRequest,
            field: field.into(),
            problem: problem.into(),
            allowed: Some(allowed.into()),
        }
    }

    /// More, longer or larger than a limit.
    pub fn limit(field: impl Into<String>, got: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { code: RefusalCode::LimitExceeded, ..Self::invalid(field, got, allowed) }
    }

    /// A body of more bytes than allowed; a reader that stops before the body's end may not know how many there are.
    pub fn body_over(limit: usize) -> Self {
        Self::limit("", "the body is too large", format!("at most {limit} bytes"))
    }

    /// Refuses a list of more than `limit` members.
    pub(crate) fn check_count(field: &str, count: usize, limit: usize) -> Result<(), Self> {
        if count <= limit {
            Ok(())
        } else {
            Err(Self::limit(field, format!("{count} of them"), format!("at most {limit}")))
        }
    }

    /// The first of core's mistakes about the nested value at `field`, and how many more there are.
    pub fn of_shape(field: &str, errors: &[ShapeError]) -> Self {
        let Some(first) = errors.first() else {
            return Self::invalid(field, "the value cannot be read", "a valid value");
        };
        let path = match (field.is_empty(), first.path.is_empty()) {
            (_, true) => field.to_owned(),
            (true, false) => first.path.clone(),
            (false, false) => format!("{field}.{}", first.path),
        };
        let mut problem = match first.kind {
            ShapeErrorKind::Missing => "missing".to_owned(),
            ShapeErrorKind::Unknown => "unknown field".to_owned(),
            _ => format!("got {}", first.got),
        };
        if errors.len() > 1 {
            problem = format!("{problem} (and {} more mistakes)", errors.len() - 1);
        }
        let code = match first.kind {
            ShapeErrorKind::Unknown => RefusalCode::UnknownField,
            ShapeErrorKind::Limit => RefusalCode::LimitExceeded,
            _ => RefusalCode::InvalidRequest,
        };
        Self { code, field: path, problem, allowed: Some(first.allowed.clone()) }
    }

    /// The same mistake as the refusal that answers it.
    pub fn to_refusal(&self) -> Refusal {
        Refusal::new(self.code, self.to_string())
    }

    /// The same mistake inside the field `key`.
    pub(crate) fn inside(mut self, key: &str) -> Self {
        let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        let key = if plain { cut(key) } else { format!("{:?}", cut(key)) };
        self.field = match self.field.chars().next() {
            None => key,
            Some('[') => key + &self.field,
            Some(_) => format!("{key}.{}", self.field),
        };
        self
    }

    /// The same mistake inside the member `index` of a list.
    pub(crate) fn inside_member(mut self, index: usize) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("[{index}]{dot}{}", self.field);
        self
    }
}

/// At most 64 characters of a text from outside, without control characters.
pub(crate) fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        f.write_str(&self.problem)?;
        match &self.allowed {
            Some(allowed) => write!(f, "; expected {allowed}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for WireError {}

impl From<CanonicalError> for WireError {
    fn from(error: CanonicalError) -> Self {
        match error {
            CanonicalError::TooLarge { got, limit } => {
                Self::limit("", format!("the body has {got} bytes"), format!("at most {limit} bytes"))
            }
            CanonicalError::Syntax { .. } | CanonicalError::NotCanonical => Self::invalid(
                "",
                format!("the body cannot be read: {error}"),
                "JSON of objects, lists, texts, 64-bit integers and booleans, every name once",
            ),
        }
    }
}
