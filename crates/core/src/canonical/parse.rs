//! Reading JSON as far as it has a canonical form, in any spelling.

use std::collections::BTreeMap;

use super::{CanonicalError, Value};
use crate::limits::CANONICAL_DEPTH;

/// A text that is read from its beginning to its end.
pub(super) struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// The list whose members are handed over instead of kept.
    apart: Option<Apart<'t>>,
}

struct Apart<'t> {
    key: &'t str,
    member: &'t mut dyn FnMut(Value),
}

impl<'t> Parser<'t> {
    /// A text of at most `limit` bytes.
    pub(super) fn of(bytes: &'t [u8], limit: usize) -> Result<Self, CanonicalError> {
        if bytes.len() > limit {
            return Err(CanonicalError::TooLarge { got: bytes.len(), limit });
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| CanonicalError::Syntax { at: error.valid_up_to(), problem: "not UTF-8" })?;
        Ok(Self { text, at: 0, apart: None })
    }

    /// The same, but the members of the list `key` of the outermost map go to `member`.
    pub(super) fn apart(self, key: &'t str, member: &'t mut dyn FnMut(Value)) -> Self {
        Self { apart: Some(Apart { key, member }), ..self }
    }

    /// The one value that the text is.
    pub(super) fn whole(mut self) -> Result<Value, CanonicalError> {
        self.spaces();
        let value = self.value(0)?;
        self.spaces();
        if self.at == self.text.len() { Ok(value) } else { Err(self.refused("unexpected text after the value")) }
    }

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
            Some(b'[') => {
                let mut values = Vec::new();
                self.items(depth + 1, &mut |value| values.push(value))?;
                Ok(Value::List(values))
            }
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

    fn items(&mut self, depth: usize, member: &mut dyn FnMut(Value)) -> Result<(), CanonicalError> {
        self.at += 1;
        self.spaces();
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.spaces();
            member(self.value(depth)?);
            self.spaces();
            if self.eat(b']') {
                return Ok(());
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
            let value = self.entry(depth, &key)?;
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

    /// The value of an entry; of the list whose members go elsewhere, an empty one.
    fn entry(&mut self, depth: usize, key: &str) -> Result<Value, CanonicalError> {
        let outermost_list = depth == 1 && self.peek() == Some(b'[');
        match self.apart.take_if(|apart| outermost_list && apart.key == key) {
            Some(Apart { member, .. }) => self.items(depth + 1, member).map(|()| Value::List(Vec::new())),
            None => self.value(depth),
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
