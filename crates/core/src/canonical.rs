//! Canonical bytes: one text per value, so that a digest names a meaning and not a spelling.
//!
//! The form is a small part of JSON: booleans, integers, texts, lists, maps with sorted keys; no spaces, no null,
//! no floats (their spelling differs between writers). What is hashed and what stores keep is always this form.
//! (Protocol, *Bodies*; ADR-0012 §4.)

use std::collections::BTreeMap;

mod parse;

use parse::Parser;

/// A value that has a canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number of 64 bits.
    Int(i64),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Value>),
    /// Values by name, sorted by the bytes of the name.
    Map(BTreeMap<String, Value>),
}

/// Why bytes are not a value, or not the canonical form of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// More bytes than the caller allows.
    #[error("{got} bytes, at most {limit} are allowed")]
    TooLarge {
        /// How many there were.
        got: usize,
        /// How many may be.
        limit: usize,
    },
    /// Not JSON of the supported part.
    #[error("byte {at}: {problem}")]
    Syntax {
        /// Where, counted from zero.
        at: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A well-formed value, spelled in another way than the canonical one.
    #[error("not in canonical form (sorted keys, no spaces, shortest escapes)")]
    NotCanonical,
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number that the domain bounds below `i64::MAX`; saturates.
    pub fn number(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// A list of texts.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// A map of its entries.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// What kind of value this is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a table",
        }
    }

    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_canonical_text().into_bytes()
    }

    /// The canonical bytes as text; they are always UTF-8.
    pub fn to_canonical_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Int(number) => out.push_str(&number.to_string()),
            Self::Text(text) => write_text(text, out),
            Self::List(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    value.write(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The value of JSON in any spelling; still refuses null, floats, duplicate keys, and depth over
    /// [`CANONICAL_DEPTH`](crate::limits::CANONICAL_DEPTH).
    pub fn parse(bytes: &[u8], limit: usize) -> Result<Self, CanonicalError> {
        Parser::of(bytes, limit)?.whole()
    }

    /// The value as [`Self::parse`] reads it, without the members of the list that stands as `key` in the outermost map:
    /// each is handed to `member` and not kept, so that a list of many costs what its largest member does. What was handed
    /// over counts for nothing if the value is refused.
    pub fn parse_apart(
        bytes: &[u8],
        limit: usize,
        key: &str,
        mut member: impl FnMut(Self),
    ) -> Result<Self, CanonicalError> {
        Parser::of(bytes, limit)?.apart(key, &mut member).whole()
    }

    /// The value of canonical bytes; refuses every other spelling.
    pub fn parse_canonical(bytes: &[u8], limit: usize) -> Result<Self, CanonicalError> {
        let value = Self::parse(bytes, limit)?;
        if value.to_bytes() == bytes { Ok(value) } else { Err(CanonicalError::NotCanonical) }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x20 => {
                out.push_str("\\u00");
                for digit in [u32::from(c) >> 4, u32::from(c) & 15] {
                    out.push(char::from_digit(digit, 16).unwrap_or('0'));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::CANONICAL_DEPTH;

    const LIMIT: usize = 1 << 20;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            any::<String>().prop_map(Value::Text),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_bytes_survive_the_round_trip(value in any_value()) {
            let bytes = value.to_bytes();
            prop_assert_eq!(Value::parse_canonical(&bytes, LIMIT), Ok(value));
        }

        #[test]
        fn no_input_panics_and_what_is_accepted_has_one_spelling(text in ".{0,40}|[\\[\\]{}\",:0-9a-f\\\\u-]{0,24}") {
            if let Ok(value) = Value::parse_canonical(text.as_bytes(), LIMIT) {
                prop_assert_eq!(value.to_canonical_text(), text);
            }
        }
    }

    #[test]
    fn keys_are_sorted_and_nothing_is_padded() {
        let value = Value::parse(b" { \"b\" : [ 1 , -2 ] , \"a\" : { \"x\\u002fy\" : true } } ", LIMIT).unwrap();
        assert_eq!(value.to_canonical_text(), r#"{"a":{"x/y":true},"b":[1,-2]}"#);
    }

    #[test]
    fn the_members_of_one_list_are_handed_over_one_by_one() {
        let read = |text: &str| {
            let mut members = Vec::new();
            let value = Value::parse_apart(text.as_bytes(), LIMIT, "tasks", |member| members.push(member))?;
            Ok((value.to_canonical_text(), Value::List(members).to_canonical_text()))
        };
        for (text, value, members) in [
            (
                r#"{"a":[1],"tasks":[{"b":2},[3] , "x"],"z":true}"#,
                r#"{"a":[1],"tasks":[],"z":true}"#,
                r#"[{"b":2},[3],"x"]"#,
            ),
            (r#"{"tasks":{"tasks":[1]}}"#, r#"{"tasks":{"tasks":[1]}}"#, "[]"),
            (r#"{"tasks":1}"#, r#"{"tasks":1}"#, "[]"),
            (r#"{"a":{"tasks":[1]}}"#, r#"{"a":{"tasks":[1]}}"#, "[]"),
            (r#"[{"tasks":[1]}]"#, r#"[{"tasks":[1]}]"#, "[]"),
            (r#"{"tasks":[]}"#, r#"{"tasks":[]}"#, "[]"),
        ] {
            assert_eq!(read(text), Ok((value.to_owned(), members.to_owned())), "{text}");
        }
        for text in [r#"{"tasks":[1,]}"#, r#"{"tasks":[1],"tasks":[2]}"#, r#"{"tasks":[1]"#, r#"{"tasks":[1]} 2"#] {
            assert_eq!(read(text).map(|_| ()), Value::parse(text.as_bytes(), LIMIT).map(|_| ()), "{text}");
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn escapes_are_the_shortest() {
        let value = Value::text("\"\\\u{8}\t\n\u{c}\r\u{1}\u{1f}\u{7f}é😀");
        assert_eq!(value.to_canonical_text(), "\"\\\"\\\\\\b\\t\\n\\f\\r\\u0001\\u001f\u{7f}é😀\"");
        assert_eq!(Value::parse(br#""\ud83d\ude00""#, LIMIT), Ok(Value::text("😀")));
    }

    #[test]
    fn another_spelling_of_the_same_value_is_refused() {
        for text in [r#"{"b":1,"a":2}"#, "[1, 2]", r#""\u0041""#, r#""\/""#, " 1", r#""\u000A""#] {
            assert!(Value::parse(text.as_bytes(), LIMIT).is_ok(), "{text}");
            assert_eq!(Value::parse_canonical(text.as_bytes(), LIMIT), Err(CanonicalError::NotCanonical), "{text}");
        }
    }

    #[test]
    fn what_has_no_canonical_form_is_refused() {
        let deep = "[".repeat(CANONICAL_DEPTH + 1) + &"]".repeat(CANONICAL_DEPTH + 1);
        for text in [
            "",
            "null",
            "1.0",
            "1e3",
            "-",
            "-0",
            "01",
            "+1",
            "9223372036854775808",
            "tru",
            "[1,]",
            "{\"a\":1,}",
            "[1 2]",
            r#"{"a":1,"a":1}"#,
            "{a:1}",
            r#""\x""#,
            r#""\ud800""#,
            r#""\ud800A""#,
            "\"\n\"",
            "\"",
            "1 1",
            &deep,
        ] {
            assert!(Value::parse(text.as_bytes(), LIMIT).is_err(), "{text}");
        }
        assert!(Value::parse(b"\"\xff\"", LIMIT).is_err(), "not UTF-8");
        let bearable = "[".repeat(CANONICAL_DEPTH) + &"]".repeat(CANONICAL_DEPTH);
        assert!(Value::parse(bearable.as_bytes(), LIMIT).is_ok());
    }

    #[test]
    fn the_size_limit_comes_first() {
        assert_eq!(Value::parse(b"[1,2]", 4), Err(CanonicalError::TooLarge { got: 5, limit: 4 }));
    }
}
