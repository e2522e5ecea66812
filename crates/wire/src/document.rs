//! A nested document with a canonical form (capabilities, a revision) inside a message.
//!
//! It crosses as a plain JSON object and is read by core's own strict reader, not by a second set of structs.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_core::canonical::Value;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A canonical value that serde can carry. Refuses floats, nulls and a name twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document(pub Value);

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(&self.0, serializer)
    }
}

struct Borrowed<'a>(&'a Value);

impl Serialize for Borrowed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.0, serializer)
    }
}

fn write<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Value::Bool(value) => serializer.serialize_bool(*value),
        Value::Int(value) => serializer.serialize_i64(*value),
        Value::Text(value) => serializer.serialize_str(value),
        Value::List(members) => {
            let mut list = serializer.serialize_seq(Some(members.len()))?;
            for member in members {
                list.serialize_element(&Borrowed(member))?;
            }
            list.end()
        }
        Value::Map(entries) => {
            let mut map = serializer.serialize_map(Some(entries.len()))?;
            for (key, value) in entries {
                map.serialize_entry(key, &Borrowed(value))?;
            }
            map.end()
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, list, text, 64-bit integer or boolean")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        i64::try_from(value).map(Value::Int).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::text(value))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Document(member)) = members.next_element()? {
            list.push(member);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, Document(value))) = entries.next_entry::<String, Document>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom("the same name twice"));
            }
            map.insert(key, value);
        }
        Ok(Value::Map(map))
    }
}
