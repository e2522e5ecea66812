//! Strict reading of values: known fields only, the right type, within bounds, and an error that helps.
//!
//! One reader serves task files (the command line turns TOML into a [`Value`] and a path back into line and
//! column), operator JSON, and stored revisions; so all of them refuse the same things with the same words. It
//! collects every error instead of stopping at the first. (Product, *What bad input gets*.)

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::canonical::Value;
use crate::time::Millis;

mod error;

use error::cut;
pub use error::{ShapeError, ShapeErrorKind, nearest};

/// What the words of a refusal say is allowed, without the verb that the message around them has already. They may quote
/// what was got, which may look like anything: so the last mark counts.
pub fn allowed(words: &str) -> &str {
    let ends = [": expected ", ": write "].iter().filter_map(|mark| Some(words.rfind(mark)? + mark.len()));
    match ends.max() {
        Some(end) => &words[end..],
        None => words.strip_prefix("expected ").unwrap_or(words),
    }
}

/// Mistakes that one reading reports: input from outside decides how many there are.
pub const ERRORS: usize = 64;

/// Where one reading collects its errors.
#[derive(Debug, Default)]
pub struct Report(RefCell<Vec<ShapeError>>);

impl Report {
    /// Nothing wrong yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a mistake; beyond 64 of them it is dropped.
    pub fn add(&self, error: ShapeError) {
        let mut errors = self.0.borrow_mut();
        if errors.len() < ERRORS {
            errors.push(error);
        }
    }

    /// The whole value as a field to read.
    pub fn root<'a>(&'a self, value: &'a Value) -> Field<'a> {
        Field { path: String::new(), value, report: self }
    }

    /// `value` if nothing was wrong, and else every mistake.
    pub fn finish<T>(self, value: T) -> Result<T, Vec<ShapeError>> {
        let errors = self.0.into_inner();
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }
}

/// One value and where it stands. A reader answers `None` after it has reported why.
#[derive(Debug, Clone)]
pub struct Field<'a> {
    path: String,
    value: &'a Value,
    report: &'a Report,
}

/// A map whose keys are known.
#[derive(Debug, Clone)]
pub struct Table<'a> {
    path: String,
    entries: &'a BTreeMap<String, Value>,
    report: &'a Report,
}

/// The path of `key` in the table at `path`; a key that is no plain word is quoted, and cut.
pub fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let key = if plain { cut(key) } else { format!("{:?}", cut(key)) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

impl<'a> Field<'a> {
    /// Where the value stands.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value as it is.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// Reports that the value is not allowed.
    pub fn refuse(&self, kind: ShapeErrorKind, got: impl AsRef<str>, allowed: impl Into<String>) {
        self.report.add(ShapeError::new(self.path.clone(), kind, got, allowed));
    }

    fn wrong_type<T>(&self, allowed: &str) -> Option<T> {
        self.refuse(ShapeErrorKind::Type, self.value.kind(), allowed);
        None
    }

    /// A map with these keys and no others.
    pub fn table(&self, known: &[&str]) -> Option<Table<'a>> {
        let Value::Map(entries) = self.value else {
            return self.wrong_type("a table");
        };
        for key in entries.keys().filter(|key| !known.contains(&key.as_str())) {
            self.report.add(ShapeError {
                path: join(&self.path, key),
                kind: ShapeErrorKind::Unknown,
                got: cut(key),
                allowed: known.join(", "),
                nearest: nearest(key, known.iter().copied()).map(str::to_owned),
            });
        }
        Some(Table { path: self.path.clone(), entries, report: self.report })
    }

    /// The entries of a map with free keys, at most `limit`.
    pub fn entries(&self, limit: usize) -> Vec<(&'a str, Field<'a>)> {
        let Value::Map(entries) = self.value else {
            self.wrong_type::<()>("a table");
            return Vec::new();
        };
        if entries.len() > limit {
            self.refuse(ShapeErrorKind::Limit, format!("{} entries", entries.len()), format!("at most {limit}"));
            return Vec::new();
        }
        let field = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Field { path: join(&self.path, key), value, report: self.report })
        };
        entries.iter().map(field).collect()
    }

    /// The members of a list, at most `limit`.
    pub fn list(&self, limit: usize) -> Vec<Field<'a>> {
        let Value::List(values) = self.value else {
            self.wrong_type::<()>("a list");
            return Vec::new();
        };
        if values.len() > limit {
            self.refuse(ShapeErrorKind::Limit, format!("{} members", values.len()), format!("at most {limit}"));
            return Vec::new();
        }
        let field = |(index, value): (usize, &'a Value)| Field {
            path: format!("{}[{index}]", self.path),
            value,
            report: self.report,
        };
        values.iter().enumerate().map(field).collect()
    }

    /// A list without repeats, at most `limit` members, each read by `read`.
    pub fn set<T: Ord>(&self, limit: usize, read: impl Fn(&Field<'a>) -> Option<T>) -> std::collections::BTreeSet<T> {
        let mut set = std::collections::BTreeSet::new();
        for member in self.list(limit) {
            if let Some(value) = read(&member)
                && !set.insert(value)
            {
                member.refuse(ShapeErrorKind::Value, "the same member twice", "every member once");
            }
        }
        set
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(*value),
            _ => self.wrong_type("true or false"),
        }
    }

    /// A whole number within `range`.
    pub fn integer(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let allowed = || format!("a whole number from {} to {}", range.start(), range.end());
        match self.value {
            Value::Int(value) if range.contains(value) => Some(*value),
            Value::Int(value) => {
                self.refuse(ShapeErrorKind::Limit, value.to_string(), allowed());
                None
            }
            _ => self.wrong_type(&allowed()),
        }
    }

    /// A whole number within `range`.
    pub fn unsigned(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.integer(i64::from(*range.start())..=i64::from(*range.end()))?;
        u32::try_from(value).ok()
    }

    /// A text of at most `limit` bytes, empty or not, without NUL.
    pub fn any_text(&self, limit: usize) -> Option<&'a str> {
        let Value::Text(text) = self.value else {
            return self.wrong_type("a text");
        };
        if text.len() > limit {
            self.refuse(ShapeErrorKind::Limit, format!("{} bytes", text.len()), format!("at most {limit} bytes"));
            return None;
        }
        if text.contains('\0') {
            self.refuse(ShapeErrorKind::Value, "a text with a NUL character", "a text without NUL");
            return None;
        }
        Some(text)
    }

    /// A text of 1 to `limit` bytes without control characters.
    pub fn line(&self, limit: usize) -> Option<&'a str> {
        let text = self.any_text(limit)?;
        if text.is_empty() {
            self.refuse(ShapeErrorKind::Value, "an empty text", format!("1 to {limit} bytes"));
            return None;
        }
        if text.chars().any(char::is_control) {
            self.refuse(ShapeErrorKind::Value, "a text with control characters", "a text without control characters");
            return None;
        }
        Some(text)
    }

    /// What a text of at most `limit` bytes says, read by its `FromStr`; the error's words become the message.
    pub fn parsed<T>(&self, limit: usize) -> Option<T>
    where
        T: std::str::FromStr,
        T::Err: fmt::Display,
    {
        let text = self.line(limit)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(ShapeErrorKind::Value, format!("`{text}`"), allowed(&error.to_string()));
                None
            }
        }
    }

    /// A duration within `range`, as text with a unit. A bare number is refused: of what?
    pub fn duration(&self, range: RangeInclusive<Millis>) -> Option<Millis> {
        let allowed = format!("a duration from {} to {}{}", range.start(), range.end(), such_as(&range));
        let Value::Text(text) = self.value else {
            return self.wrong_type(&allowed);
        };
        match text.parse::<Millis>() {
            Ok(span) if range.contains(&span) => Some(span),
            Ok(span) => {
                self.refuse(ShapeErrorKind::Limit, span.to_string(), allowed);
                None
            }
            Err(_) => {
                self.refuse(ShapeErrorKind::Value, format!("`{}`", cut(text)), allowed);
                None
            }
        }
    }

    /// One of the names of a closed set (see [`crate::names`]).
    pub fn named<T: Copy + fmt::Display>(&self, all: &[T]) -> Option<T> {
        let words: Vec<String> = all.iter().map(T::to_string).collect();
        let allowed = format!("one of {}", words.join(", "));
        let Value::Text(text) = self.value else {
            return self.wrong_type(&allowed);
        };
        if let Some(index) = words.iter().position(|word| word == text) {
            return Some(all[index]);
        }
        self.report.add(ShapeError {
            path: self.path.clone(),
            kind: ShapeErrorKind::Value,
            got: format!("`{}`", cut(text)),
            allowed,
            nearest: nearest(text, words.iter().map(String::as_str)).map(str::to_owned),
        });
        None
    }
}

/// Spans that a message shows how to write one by, those that are allowed.
fn such_as(range: &RangeInclusive<Millis>) -> String {
    let spans = [10, 5 * 60, 90 * 60].map(Millis::from_secs);
    let shown: Vec<String> = spans.iter().filter(|span| range.contains(span)).map(Millis::to_string).collect();
    match &shown[..] {
        [] => String::new(),
        [only] => format!(", such as {only}"),
        [first @ .., last] => format!(", such as {} or {last}", first.join(", ")),
    }
}

impl<'a> Table<'a> {
    /// The field, if it is there.
    pub fn optional(&self, key: &str) -> Option<Field<'a>> {
        let value = self.entries.get(key)?;
        Some(Field { path: join(&self.path, key), value, report: self.report })
    }

    /// The field; reports it as missing, with `what` it should be.
    pub fn required(&self, key: &str, what: &str) -> Option<Field<'a>> {
        let field = self.optional(key);
        if field.is_none() && !self.is_misspelled(key) {
            self.report.add(ShapeError::new(join(&self.path, key), ShapeErrorKind::Missing, "nothing", what));
        }
        field
    }

    /// Is the field there?
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Was an unknown key reported that is a slip of this one? That it is missing, too, would be the same mistake twice.
    pub fn is_misspelled(&self, key: &str) -> bool {
        let slip = |error: &ShapeError| {
            error.kind == ShapeErrorKind::Unknown
                && error.nearest.as_deref() == Some(key)
                && error.path == join(&self.path, &error.got)
        };
        self.report.0.borrow().iter().any(slip)
    }

    /// Reports that fields do not go together; `key` is where a person would look first.
    pub fn conflict(&self, key: &str, got: impl AsRef<str>, allowed: impl Into<String>) {
        let path = if key.is_empty() { self.path.clone() } else { join(&self.path, key) };
        self.report.add(ShapeError::new(path, ShapeErrorKind::Conflict, got, allowed));
    }
}

/// A name in capabilities and placement (executor, runtime, label key, feature): 1 to 128 of letters, digits and
/// `. _ - /`, beginning with a letter or digit.
pub fn is_name(text: &str) -> bool {
    text.len() <= crate::limits::NAME_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// What [`is_name`] allows, for messages.
pub const NAME_RULE: &str = "1 to 128 of a-z, A-Z, 0-9, `.`, `_`, `-` and `/`, beginning with a letter or digit";

impl<'a> Field<'a> {
    /// A name by [`is_name`].
    pub fn name(&self) -> Option<&'a str> {
        let text = self.line(crate::limits::NAME_BYTES)?;
        if !is_name(text) {
            self.refuse(ShapeErrorKind::Value, format!("`{text}`"), NAME_RULE);
            return None;
        }
        Some(text)
    }

    /// Reports a key of a map with free keys that is not a name by [`is_name`].
    pub fn key_is_name(&self, key: &str) -> bool {
        let good = is_name(key);
        if !good {
            self.refuse(ShapeErrorKind::Value, format!("the key `{}`", cut(key)), NAME_RULE);
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        Value::parse(json.as_bytes(), 4096).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The messages that reading `json` as a small table leaves.
    fn messages(json: &str) -> Vec<String> {
        let value = value(json);
        let report = Report::new();
        if let Some(table) = report.root(&value).table(&["count", "name", "runtimes", "span", "tags"]) {
            table.required("name", "a name").map(|f| f.name());
            table.optional("count").map(|f| f.integer(1..=9));
            table.optional("span").map(|f| f.duration(Millis::from_secs(1)..=Millis::from_secs(60)));
            table.optional("tags").map(|f| f.set(2, |f| f.name().map(str::to_owned)));
            if let Some(runtimes) = table.optional("runtimes") {
                for (_, entry) in runtimes.entries(4) {
                    entry.parsed::<crate::version::VersionRange>(128);
                }
            }
        }
        let errors = report.finish(()).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_message_names_the_field_what_was_got_and_what_is_allowed() {
        for (json, expected) in [
            (r#"{"name":"a"}"#, ""),
            ("[]", "got a list, expected a table"),
            ("{}", "`name`: missing: a name"),
            (r#"{"nmae":"a","name":"a"}"#, "`nmae`: unknown key, did you mean `name`?"),
            (r#"{"nmae":"a"}"#, "`nmae`: unknown key, did you mean `name`?"),
            (r#"{"zzzzzzz":"a","name":"a"}"#, "`zzzzzzz`: unknown key, known are count, name, runtimes, span, tags"),
            (r#"{"name":1}"#, "`name`: got an integer, expected a text"),
            (
                r#"{"name":"a\nb"}"#,
                "`name`: got a text with control characters, expected a text without control characters",
            ),
            (r#"{"name":"a","count":10}"#, "`count`: got 10, expected a whole number from 1 to 9"),
            (r#"{"name":"a","span":30}"#, "`span`: got an integer, expected a duration from 1s to 1m, such as 10s"),
            (r#"{"name":"a","span":"2h"}"#, "`span`: got 2h, expected a duration from 1s to 1m, such as 10s"),
            (r#"{"name":"a","tags":["x","x"]}"#, "`tags[1]`: got the same member twice, expected every member once"),
            (r#"{"name":"a","tags":["x","y","z"]}"#, "`tags`: got 3 members, expected at most 2"),
            (
                r#"{"name":"a","runtimes":{"python":"3.11"}}"#,
                "`runtimes.python`: got `3.11`, expected =, >, >=, <, <=, ^ or ~ before each version and commas between, such as >=3.11,<4",
            ),
        ] {
            assert_eq!(messages(json).join("\n"), expected, "{json}");
        }
    }

    #[test]
    fn the_examples_of_a_duration_are_allowed() {
        let told = |least, most| such_as(&(Millis::from_secs(least)..=Millis::from_secs(most)));
        assert_eq!(told(0, 86_400), ", such as 10s, 5m or 1h30m");
        assert_eq!(told(25, 86_400), ", such as 5m or 1h30m");
        assert_eq!(told(0, 3600), ", such as 10s or 5m");
        assert_eq!(told(1, 60), ", such as 10s");
        assert_eq!(told(1, 2), "");
    }

    #[test]
    fn the_words_of_a_refusal_say_what_is_allowed_whatever_they_quote() {
        for (words, told) in [
            ("`x` is not a task name: expected 1 to 63 letters", "1 to 63 letters"),
            (
                "`a: expected b: c` is not a time: write RFC 3339, such as 2026-01-31T03:00:00Z",
                "RFC 3339, such as 2026-01-31T03:00:00Z",
            ),
            ("expected what the page before said", "what the page before said"),
            ("at most 8", "at most 8"),
        ] {
            assert_eq!(allowed(words), told, "{words}");
        }
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        assert_eq!(messages(r#"{"x":1,"count":0,"span":"x"}"#).len(), 4);
    }

    #[test]
    fn the_number_of_reported_mistakes_is_bounded() {
        let keys: Vec<String> = (0..200).map(|n| format!("\"x{n}\":1")).collect();
        assert_eq!(messages(&format!("{{{}}}", keys.join(","))).len(), ERRORS);
    }

    #[test]
    fn a_strange_key_is_quoted_in_the_path() {
        assert_eq!(join("env", "A B"), "env.\"A B\"");
        assert_eq!(join("", "a-b_c"), "a-b_c");
    }
}
