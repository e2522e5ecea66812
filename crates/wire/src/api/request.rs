//! Reading the requests: core's strict reader, so that a task file, a flag and a request are refused in the same words.

use leasehold_core::canonical::{CanonicalError, Value};
use leasehold_core::limits::JSON_BODY;
use leasehold_core::shape::{Report, ShapeError, ShapeErrorKind, Table};
use schemars::JsonSchema;

/// A request body of the operator API: its size, its reader, and the schema that the API's description shows of it.
pub trait Request: JsonSchema + Sized {
    /// Most bytes.
    const LIMIT: usize;

    /// Reads a body; answers every mistake.
    fn read(body: &[u8]) -> Result<Self, Vec<ShapeError>>;
}

/// Makes a type with a `parse` of its own a [`Request`] of at most so many bytes.
macro_rules! asked {
    ($request:ty, $limit:expr) => {
        impl crate::api::request::Request for $request {
            const LIMIT: usize = $limit;

            fn read(body: &[u8]) -> Result<Self, Vec<leasehold_core::shape::ShapeError>> {
                Self::parse(body)
            }
        }
    };
}
pub(super) use asked;

/// The body of a request that has nothing to say: none, or `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Nothing {}

asked!(Nothing, JSON_BODY);

impl Nothing {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self {});
        }
        read(body, JSON_BODY, &[], |_, _| Some(Self {}))
    }
}

/// Reads a body of at most `limit` bytes as a table of `known` keys; answers every mistake.
pub(super) fn read<T>(
    body: &[u8],
    limit: usize,
    known: &[&str],
    read: impl FnOnce(&Table<'_>, &Report) -> Option<T>,
) -> Result<T, Vec<ShapeError>> {
    table(&value(body, limit)?, known, read)
}

/// Reads a value as a table of `known` keys; answers every mistake.
pub(super) fn table<T>(
    value: &Value,
    known: &[&str],
    read: impl FnOnce(&Table<'_>, &Report) -> Option<T>,
) -> Result<T, Vec<ShapeError>> {
    let report = Report::new();
    let root = report.root(value);
    let request = root.table(known).and_then(|table| read(&table, &report));
    drop(root);
    report.finish(request)?.ok_or_else(Vec::new)
}

/// The value of a body of at most `limit` bytes.
pub(super) fn value(body: &[u8], limit: usize) -> Result<Value, Vec<ShapeError>> {
    Value::parse(body, limit).map_err(|error| vec![of_syntax(error)])
}

/// The same, but the members of its list `key` are handed to `member` one by one and not kept.
pub(super) fn value_apart(
    body: &[u8],
    limit: usize,
    key: &str,
    member: impl FnMut(Value),
) -> Result<Value, Vec<ShapeError>> {
    Value::parse_apart(body, limit, key, member).map_err(|error| vec![of_syntax(error)])
}

fn of_syntax(error: CanonicalError) -> ShapeError {
    match error {
        CanonicalError::TooLarge { got, limit } => ShapeError::new(
            "",
            ShapeErrorKind::Limit,
            format!("a body of {got} bytes"),
            format!("at most {limit} bytes"),
        ),
        CanonicalError::Syntax { .. } | CanonicalError::NotCanonical => ShapeError::new(
            "",
            ShapeErrorKind::Value,
            error.to_string(),
            "JSON without null and fractions, every name once",
        ),
    }
}

/// The mistakes of a value that stands at `path`.
pub(super) fn at(path: &str, errors: Vec<ShapeError>) -> impl Iterator<Item = ShapeError> {
    errors.into_iter().map(move |error| {
        let path = if error.path.is_empty() { path.to_owned() } else { format!("{path}.{}", error.path) };
        ShapeError { path, ..error }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_what_it_says() {
        for body in ["", "{}", " { } "] {
            assert_eq!(Nothing::parse(body.as_bytes()), Ok(Nothing {}), "{body}");
        }
        let refused = Nothing::parse(br#"{"ttl":"1h"}"#).unwrap_err();
        assert_eq!(refused[0].to_string(), "`ttl`: unknown key, none is known here");
        for body in ["[]", "null", "{}{}", "0"] {
            assert!(Nothing::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
