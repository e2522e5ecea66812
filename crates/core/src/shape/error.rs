//! Mistakes in what was read, with the nearest word where one was meant.

use std::fmt;

/// What kind of mistake a [`ShapeError`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeErrorKind {
    /// A field that must be there is not.
    Missing,
    /// A field that nobody knows.
    Unknown,
    /// A value of another type.
    Type,
    /// A value that is not allowed.
    Value,
    /// More, longer or larger than a limit.
    Limit,
    /// Fields that do not go together.
    Conflict,
}

impl ShapeErrorKind {
    /// The stable machine code of the wire and the API.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unknown => "unknown_field",
            Self::Limit => "limit_exceeded",
            Self::Missing | Self::Type | Self::Value | Self::Conflict => "invalid_request",
        }
    }
}

/// One mistake in one field: which field, what was got, what is allowed, and a fix where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// The field, such as `placement.require.runtimes.python` or `trigger[1].cron`; empty for the whole.
    pub path: String,
    /// What kind of mistake it is.
    pub kind: ShapeErrorKind,
    /// What was got, cut to 64 characters.
    pub got: String,
    /// What is allowed.
    pub allowed: String,
    /// The nearest known key or value.
    pub nearest: Option<String>,
}

impl ShapeError {
    /// A value that is not allowed, for rules outside this module.
    pub fn new(
        path: impl Into<String>,
        kind: ShapeErrorKind,
        got: impl AsRef<str>,
        allowed: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), kind, got: cut(got.as_ref()), allowed: allowed.into(), nearest: None }
    }
}

/// What is shown of a text that came from outside: one line, and not all of a long one.
pub(super) fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        match self.kind {
            ShapeErrorKind::Missing => write!(f, "missing: {}", self.allowed)?,
            ShapeErrorKind::Unknown => match &self.nearest {
                Some(nearest) => write!(f, "unknown key, did you mean `{nearest}`?")?,
                None if self.allowed.is_empty() => f.write_str("unknown key, none is known here")?,
                None => write!(f, "unknown key, known are {}", self.allowed)?,
            },
            ShapeErrorKind::Type | ShapeErrorKind::Value | ShapeErrorKind::Limit | ShapeErrorKind::Conflict => {
                write!(f, "got {}, expected {}", self.got, self.allowed)?;
                if let Some(nearest) = &self.nearest {
                    write!(f, " (did you mean `{nearest}`?)")?;
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for ShapeError {}

/// The candidate that differs least from `word`, if it is near enough to be a slip of the finger.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Texts come from outside: the distance costs the product of the lengths.
    if word.chars().count() > 64 {
        return None;
    }
    let near = |candidate: &str| 1 + candidate.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= near(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be inserted, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut earlier: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(earlier[j - 2] + 1);
            }
            row.push(cost);
        }
        earlier = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_a_slip_of_the_finger_away() {
        let keys = ["timeout", "grace", "lease", "memory_mib"];
        for (word, expected) in [
            ("timeot", Some("timeout")),
            ("Timeout", Some("timeout")),
            ("time_out", Some("timeout")),
            ("laese", Some("lease")),
            ("memory", Some("memory_mib")),
            ("memory_mb", Some("memory_mib")),
            ("colour", None),
        ] {
            assert_eq!(nearest(word, keys), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), keys), None);
    }

    #[test]
    fn what_was_got_is_cut_and_cannot_forge_lines() {
        let error = ShapeError::new("f", ShapeErrorKind::Value, "a\nb".repeat(100), "c");
        assert!(error.got.chars().count() <= 65 && !error.got.contains('\n'));
    }
}
