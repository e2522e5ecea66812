//! The bridge from a parsed [`Value`] to serde: typed reading that knows the path of every mistake.
//!
//! The bytes were read by core's own strict reader before (no null, no float, no name twice, bounded depth), so two
//! readers can never understand one body differently. Texts are moved, not copied: a token's text is wiped by who reads it.

use std::fmt::Display;

use leasehold_core::canonical::Value;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::shape::nearest;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use crate::error::{WireError, cut};

/// A value to be read as a type.
pub(crate) struct Node(pub(crate) Value);

fn problem(code: RefusalCode, problem: String, allowed: Option<String>) -> WireError {
    WireError { code, field: String::new(), problem, allowed }
}

fn wrong_kind(got: &'static str, allowed: &str) -> WireError {
    problem(RefusalCode::InvalidRequest, format!("got {got}"), Some(allowed.to_owned()))
}

/// What an unexpected value is, without repeating a text that may be a secret.
fn described(unexpected: &Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(_) => "a boolean".to_owned(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Str(_) | Unexpected::Char(_) => "a text".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        _ => "another kind of value".to_owned(),
    }
}

/// What is expected, in words: the standard integers say their range.
fn expected(expected: &dyn de::Expected) -> String {
    let name = expected.to_string();
    let range = match name.as_str() {
        "u8" => (0, i64::from(u8::MAX)),
        "u16" => (0, i64::from(u16::MAX)),
        "u32" => (0, i64::from(u32::MAX)),
        "u64" => (0, i64::MAX),
        "i32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => return name,
    };
    format!("an integer from {} to {}", range.0, range.1)
}

impl de::Error for WireError {
    fn custom<T: Display>(message: T) -> Self {
        problem(RefusalCode::InvalidRequest, message.to_string(), None)
    }

    fn invalid_type(unexpected: Unexpected<'_>, exp: &dyn de::Expected) -> Self {
        problem(RefusalCode::InvalidRequest, format!("got {}", described(&unexpected)), Some(expected(exp)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, exp: &dyn de::Expected) -> Self {
        Self::invalid_type(unexpected, exp)
    }

    fn unknown_variant(variant: &str, allowed: &'static [&'static str]) -> Self {
        let got = format!("got `{}`", cut(variant));
        problem(RefusalCode::InvalidRequest, got, Some(format!("one of {}", allowed.join(", "))))
    }

    fn unknown_field(field: &str, allowed: &'static [&'static str]) -> Self {
        let hint = nearest(field, allowed.iter().copied());
        let what =
            hint.map_or_else(|| "unknown field".to_owned(), |near| format!("unknown field, did you mean `{near}`?"));
        let allowed = if allowed.is_empty() { "no field".to_owned() } else { allowed.join(", ") };
        problem(RefusalCode::UnknownField, what, Some(allowed)).inside(field)
    }

    fn missing_field(field: &'static str) -> Self {
        problem(RefusalCode::InvalidRequest, "missing".to_owned(), None).inside(field)
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Map(_) => "an object",
        other => other.kind(),
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = WireError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        match self.0 {
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) => visitor.visit_i64(value),
            Value::Text(value) => visitor.visit_string(value),
            Value::List(members) => visitor.visit_seq(Members { members: members.into_iter(), next: 0 }),
            Value::Map(entries) => visitor.visit_map(Entries { entries: entries.into_iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        match self.0 {
            Value::Map(_) => self.deserialize_any(visitor),
            other => Err(wrong_kind(kind(&other), "an object")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        match self.0 {
            Value::List(_) => self.deserialize_any(visitor),
            other => Err(wrong_kind(kind(&other), "a list")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        match self.0 {
            Value::Text(name) => visitor.visit_enum(Variant { name, content: None }),
            Value::Map(entries) if entries.len() == 1 => {
                let (name, content) = entries.into_iter().next().ok_or_else(|| wrong_kind("an object", "one name"))?;
                visitor.visit_enum(Variant { name, content: Some(content) })
            }
            Value::Map(entries) => {
                let got = format!("got an object of {} names", entries.len());
                Err(problem(RefusalCode::InvalidRequest, got, Some("an object of exactly one name".to_owned())))
            }
            other => Err(wrong_kind(kind(&other), "a name, or an object of exactly one name")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct identifier ignored_any
    }
}

struct Members {
    members: std::vec::IntoIter<Value>,
    next: usize,
}

impl<'de> SeqAccess<'de> for Members {
    type Error = WireError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, WireError> {
        let Some(value) = self.members.next() else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(Node(value)).map(Some).map_err(|error| error.inside_member(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.members.len())
    }
}

struct Entries {
    entries: std::collections::btree_map::IntoIter<String, Value>,
    current: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = WireError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, WireError> {
        self.current = self.entries.next();
        let Some((key, _)) = &self.current else { return Ok(None) };
        seed.deserialize(IntoDeserializer::<WireError>::into_deserializer(key.as_str())).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, WireError> {
        let (key, value) =
            self.current.take().ok_or_else(|| <WireError as de::Error>::custom("a value without a name"))?;
        seed.deserialize(Node(value)).map_err(|error| error.inside(&key))
    }
}

struct Variant {
    name: String,
    content: Option<Value>,
}

struct Content {
    name: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = WireError;
    type Variant = Content;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Content), WireError> {
        let variant = seed.deserialize(IntoDeserializer::<WireError>::into_deserializer(self.name.as_str()))?;
        Ok((variant, Content { name: self.name, content: self.content }))
    }
}

impl Content {
    fn required(self) -> Result<(String, Value), WireError> {
        let name = self.name;
        match self.content {
            Some(content) => Ok((name, content)),
            None => Err(wrong_kind("only the name", "an object of that name and its facts")),
        }
    }
}

impl<'de> VariantAccess<'de> for Content {
    type Error = WireError;

    fn unit_variant(self) -> Result<(), WireError> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(wrong_kind("an object", "only the name")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, WireError> {
        let (name, content) = self.required()?;
        seed.deserialize(Node(content)).map_err(|error| error.inside(&name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, WireError> {
        let (name, content) = self.required()?;
        Node(content).deserialize_seq(visitor).map_err(|error| error.inside(&name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        let (name, content) = self.required()?;
        Node(content).deserialize_struct("", fields, visitor).map_err(|error| error.inside(&name))
    }
}
