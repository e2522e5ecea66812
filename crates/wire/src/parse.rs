//! Reading and writing whole bodies: the one entry on both sides.
//!
//! Limit, then syntax, then the `schema` tag, then fields, then the message's own bounds; the first mistake is the answer.
//! The tag stands in every body and in no struct: [`encode`] writes it, [`parse`] takes it off.

use leasehold_core::canonical::Value;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::refusal::RefusalCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroize;

use crate::error::{WireError, cut};
use crate::node::Node;

/// A body of the worker protocol.
pub trait Message: Serialize + DeserializeOwned {
    /// The `schema` tag of the body, such as `leasehold/heartbeat/v1`.
    const SCHEMA: &'static str;

    /// Most bytes of the body.
    const LIMIT: usize;

    /// Checks what the types of the fields do not: counts, and fields that must fit each other.
    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }
}

#[derive(Serialize)]
struct Tagged<'a, T: Serialize> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// The bytes of a body.
///
/// # Panics
///
/// Never: messages are objects of texts, integers, booleans and lists, which always have a JSON form.
pub fn encode<T: Message>(message: &T) -> Vec<u8> {
    serde_json::to_vec(&Tagged { schema: T::SCHEMA, body: message })
        .expect("messages are objects with text keys, which always have a JSON form")
}

/// The message of a body.
pub fn parse<T: Message>(bytes: &[u8]) -> Result<T, WireError> {
    read(Value::parse(bytes, T::LIMIT)?)
}

/// The message of a body, and the digest of the body's canonical bytes as `domain`: equal for bodies that say the same.
pub fn parse_with_digest<T: Message>(bytes: &[u8], domain: Domain) -> Result<(T, Digest), WireError> {
    let value = Value::parse(bytes, T::LIMIT)?;
    let mut canonical = value.to_bytes();
    let digest = Digest::of(domain, &canonical);
    // It may hold a ticket or a token.
    canonical.zeroize();
    Ok((read(value)?, digest))
}

fn read<T: Message>(mut value: Value) -> Result<T, WireError> {
    let Value::Map(entries) = &mut value else {
        return Err(WireError::invalid("", format!("the body is {}", value.kind()), "an object"));
    };
    check_schema(entries.remove("schema").as_ref(), T::SCHEMA)?;
    let message: T = serde::Deserialize::deserialize(Node(value))?;
    message.check()?;
    Ok(message)
}

fn check_schema(got: Option<&Value>, expected: &'static str) -> Result<(), WireError> {
    let allowed = || format!("`{expected}`");
    match got {
        Some(Value::Text(got)) if got == expected => Ok(()),
        Some(Value::Text(got)) => {
            let name = |schema: &str| schema.rsplit_once("/v").map(|(name, _)| name.to_owned());
            let other_version = name(got).is_some() && name(got) == name(expected);
            let code = if other_version { RefusalCode::UnsupportedProtocol } else { RefusalCode::InvalidRequest };
            Err(WireError { code, ..WireError::invalid("schema", format!("got `{}`", cut(got)), allowed()) })
        }
        Some(other) => Err(WireError::invalid("schema", format!("got {}", other.kind()), allowed())),
        None => Err(WireError::invalid("schema", "missing", allowed())),
    }
}
