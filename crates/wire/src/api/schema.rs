//! How core's types look in the API's description: an id, a name, a digest, a name of a closed set.
//!
//! Fields of core's types are written by [`crate::field`]; what stands there says `#[schemars(with = "schema::…")]` beside
//! it. A schema promises no more than the readers hold: answers may grow, so only closed sets of requests are closed.

use std::borrow::Cow;
use std::marker::PhantomData;

use leasehold_core::attempt::{AttemptState, LimitMeans, Resolution};
use leasehold_core::limits::NAME_BYTES;
use leasehold_core::log::LogState;
use leasehold_core::resolve::Verb;
use leasehold_core::run::RunState;
use leasehold_core::trigger::Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::task_schema;
use super::time::Time;

/// A type that stands for a schema written here, in place.
macro_rules! inline {
    ($($(#[$doc:meta])* $name:ident { $($schema:tt)+ })+) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ $($schema)+ })
            }
        }
    )+ };
}

inline! {
    /// The id of a run, an attempt, a session, an enrollment.
    Id { "type": "string", "format": "uuid" }
    /// The name of a worker, a project, a task.
    Name { "type": "string", "minLength": 1, "maxLength": NAME_BYTES }
    /// A SHA-256 digest in hex.
    Sha256 { "type": "string", "pattern": "^[0-9a-f]{64}$" }
    /// A span of time, such as `10s`, `5m` or `1h30m`.
    Span { "type": "string", "examples": ["15m", "1h30m"] }
    /// An object with a form of its own, read by core alone.
    Object { "type": "object" }
}

/// A closed set of names of core's.
pub trait Closed {
    /// The names.
    fn names() -> Vec<&'static str>;
}

macro_rules! closed {
    ($($name:ty),+) => { $(
        impl Closed for $name {
            fn names() -> Vec<&'static str> {
                Self::ALL.iter().map(|one| one.as_str()).collect()
            }
        }
    )+ };
}
closed!(AttemptState, Kind, LimitMeans, LogState, Resolution, RunState, Verb);

/// One of the names of a closed set.
#[derive(Debug)]
pub struct OneOf<T>(PhantomData<T>);

impl<T: Closed> JsonSchema for OneOf<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": T::names() })
    }
}

/// The shape of a task file: what a run executes.
#[derive(Debug)]
pub struct TaskShape;

impl JsonSchema for TaskShape {
    fn schema_name() -> Cow<'static, str> {
        "Revision".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(task_schema::of_requests()).unwrap_or_default()
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}
