//! Canonical bytes: one text per value, so that a digest names a meaning and not a spelling.
//!
//! The form is a small part of JSON: booleans, integers, texts, lists, maps with sorted keys; no spaces, no null,
//! no floats (their spelling differs between writers). What is hashed and what stores keep is always this form.
//! (Protocol, *digests*; ADR-0012 §4.)

use std::collections::BTreeMap;

use crate::limits::CANONICAL_DEPTH;

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
    /// [`CANONICAL_DEPTH`].
    pub fn parse(bytes: &[u8], limit: usize) -> Result<Self, CanonicalError> {
        if bytes.len() > limit {
            return Err(CanonicalError::TooLarge { got: bytes.len(), limit });
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| CanonicalError::Syntax { at: error.valid_up_to(), problem: "not UTF-8" })?;
        let mut parser = Parser { text, at: 0 };
        parser.spaces();
        let value = parser.value(0)?;
        parser.spaces();
        if parser.at == text.len() { Ok(value) } else { Err(parser.refused("unexpected text after the value")) }
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

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn refused(&self, problem: &'static str) -> CanonicalError {
        CanonicalError::Syntax { at: self.at, problem }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
        }
        found
    }

    fn spaces(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        match self.peek() {
            Some(b'{' | b'[') if depth == CANONICAL_DEPTH => Err(self.refused("nested too deeply")),
            Some(b'{') => self.entries(depth + 1),
            Some(b'[') => self.items(depth + 1),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.integer(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => Err(self.refused("null is not allowed: leave the field out")),
            Some(_) => Err(self.refused("expected a value")),
            None => Err(self.refused("the text ends where a value should be")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, CanonicalError> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.refused("expected a value"))
        }
    }

    fn integer(&mut self) -> Result<Value, CanonicalError> {
        let start = self.at;
        self.eat(b'-');
        let digits = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if let Some(b'.' | b'e' | b'E') = self.peek() {
            return Err(self.refused("only whole numbers are allowed"));
        }
        let leading_zero = self.at > digits + 1 && self.text.as_bytes()[digits] == b'0';
        let text = &self.text[start..self.at];
        if leading_zero || text == "-0" {
            return Err(CanonicalError::Syntax {
                at: start,
                problem: "a number has no leading zero and no negative zero",
            });
        }
        let number = text.parse().map(Value::Int);
        number.map_err(|_| CanonicalError::Syntax { at: start, problem: "not a whole number of 64 bits" })
    }

    fn items(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        self.at += 1;
        let mut values = Vec::new();
        self.spaces();
        if self.eat(b']') {
            return Ok(Value::List(values));
        }
        loop {
            self.spaces();
            values.push(self.value(depth)?);
            self.spaces();
            if self.eat(b']') {
                return Ok(Value::List(values));
            }
            if !self.eat(b',') {
                return Err(self.refused("expected `,` or `]`"));
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        self.at += 1;
        let mut entries = BTreeMap::new();
        self.spaces();
        if self.eat(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.spaces();
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.refused("expected a name in quotes"));
            }
            let key = self.string()?;
            self.spaces();
            if !self.eat(b':') {
                return Err(self.refused("expected `:`"));
            }
            self.spaces();
            let value = self.value(depth)?;
            if entries.insert(key, value).is_some() {
                return Err(CanonicalError::Syntax { at: key_at, problem: "the same name twice" });
            }
            self.spaces();
            if self.eat(b'}') {
                return Ok(Value::Map(entries));
            }
            if !self.eat(b',') {
                return Err(self.refused("expected `,` or `}`"));
            }
        }
    }

    fn string(&mut self) -> Result<String, CanonicalError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.text[self.at..].chars().next() else {
                return Err(self.refused("the text ends inside a string"));
            };
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(out);
                }
                '\\' => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                c if u32::from(c) < 0x20 => return Err(self.refused("a control character must be escaped")),
                c => {
                    self.at += c.len_utf8();
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, CanonicalError> {
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.refused("unknown escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self) -> Result<char, CanonicalError> {
        let high = self.four_hex()?;
        let code = if (0xd800..0xdc00).contains(&high) {
            if !(self.eat(b'\\') && self.eat(b'u')) {
                return Err(self.refused("half of a surrogate pair"));
            }
            let low = self.four_hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(self.refused("half of a surrogate pair"));
            }
            0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        char::from_u32(code).ok_or_else(|| self.refused("half of a surrogate pair"))
    }

    fn four_hex(&mut self) -> Result<u32, CanonicalError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.refused("expected four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
