//! How the domain's types stand in columns: one spelling each, read back with every check of the type.
//!
//! Reading a value that its type would refuse is damage, never a default.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use leasehold_core::attempt::{AttemptState, EvidenceKind, LimitMeans, Outcome, Resolution};
use leasehold_core::capability::Capabilities;
use leasehold_core::chain::After;
use leasehold_core::counter::{
    AttemptNumber, AttemptVersion, CallbackSequence, EventSequence, FenceNumber, LeaseGeneration, LeaseVersion,
    RevisionNumber, RunVersion, SessionGeneration, SessionVersion,
};
use leasehold_core::crypto::Digest;
use leasehold_core::device::Devices;
use leasehold_core::event::EventKind;
use leasehold_core::frame::CutReason;
use leasehold_core::id::{
    ApiTokenId, AttemptId, BootId, EnrollmentId, OfferId, ProjectName, RunId, SessionId, TaskName, TriggerName,
    TrustDomain, WorkerId,
};
use leasehold_core::lease::LeaseState;
use leasehold_core::placement::Placement;
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::role::Role;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::schedule::GapReason;
use leasehold_core::session::SessionState;
use leasehold_core::time::{LeaseInstant, Millis, UtcMillis};
use leasehold_core::trigger::Kind;
use leasehold_core::worker::WorkerState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::stored::parsed::Parsed;
use crate::stored::{after, devices, evidence, facts, outcome};

/// A type that stands in one column.
pub(super) trait Column: Sized {
    /// The value of a column that is not null.
    fn read(value: Cell<'_>) -> Result<Self, String>;

    /// The column of a value.
    fn bind(&self) -> Bound<'_>;
}

/// A column's value as it came: its type and its binary form.
#[derive(Clone, Copy)]
pub(super) struct Cell<'r> {
    kind: &'r Type,
    bytes: Option<&'r [u8]>,
}

impl<'r> Cell<'r> {
    /// Whether the column has no value.
    pub(super) const fn is_null(self) -> bool {
        self.bytes.is_none()
    }

    fn of(self, wanted: &str, kinds: &[Type]) -> Result<&'r [u8], String> {
        match self.bytes {
            Some(bytes) if kinds.contains(self.kind) => Ok(bytes),
            Some(_) => Err(format!("expected {wanted}, found {}", self.kind)),
            None => Err(format!("expected {wanted}, found nothing")),
        }
    }
}

impl<'r> FromSql<'r> for Cell<'r> {
    fn from_sql(kind: &Type, bytes: &'r [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self { kind: known(kind), bytes: Some(bytes) })
    }

    fn from_sql_null(kind: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self { kind: known(kind), bytes: None })
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The types that our columns have.
static KINDS: [Type; 7] = [Type::INT8, Type::INT4, Type::INT2, Type::TEXT, Type::BYTEA, Type::UUID, Type::BOOL];

/// The type, outliving the row that names it; one that no column of ours has stands for all such.
fn known(kind: &Type) -> &'static Type {
    static OTHER: Type = Type::UNKNOWN;
    KINDS.iter().find(|known| *known == kind).unwrap_or(&OTHER)
}

/// A parameter of a statement.
#[derive(Clone)]
pub(super) enum Bound<'a> {
    /// No value.
    Null,
    /// A number, for any width that holds it.
    Integer(i64),
    /// Yes or no.
    Boolean(bool),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes, or the sixteen of an id.
    Bytes(Cow<'a, [u8]>),
    /// Several values of one type.
    List(Vec<Bound<'a>>),
}

impl Bound<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "yes or no",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
        }
    }
}

impl std::fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            Self::Integer(number) if *kind == Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
            Self::Integer(number) if *kind == Type::INT8 => number.to_sql(kind, out),
            Self::Boolean(truth) if *kind == Type::BOOL => truth.to_sql(kind, out),
            Self::Text(text) if *kind == Type::TEXT => text.as_ref().to_sql(kind, out),
            Self::Bytes(bytes) if *kind == Type::BYTEA || *kind == Type::UUID => {
                out.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            Self::List(values) => values.to_sql(kind, out),
            // Only the kind is told: the value may be a secret.
            other => Err(format!("{} does not fit a parameter of type {kind}", other.name()).into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The parameters of a statement, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::postgres::column::Column::bind(&$value)),*] };
}
pub(super) use values;

fn integer(value: Cell<'_>) -> Result<i64, String> {
    let bytes = value.of("an integer", &[Type::INT8, Type::INT4, Type::INT2])?;
    match *bytes {
        [a, b] => Ok(i16::from_be_bytes([a, b]).into()),
        [a, b, c, d] => Ok(i32::from_be_bytes([a, b, c, d]).into()),
        _ => bytes.try_into().map(i64::from_be_bytes).map_err(|_| "an integer of an odd width".to_owned()),
    }
}

fn text(value: Cell<'_>) -> Result<&str, String> {
    std::str::from_utf8(value.of("a text", &[Type::TEXT])?).map_err(|error| error.to_string())
}

fn blob(value: Cell<'_>) -> Result<&[u8], String> {
    value.of("bytes", &[Type::BYTEA, Type::UUID])
}

fn bytes<const N: usize>(value: Cell<'_>) -> Result<[u8; N], String> {
    let bytes = blob(value)?;
    bytes.try_into().map_err(|_| format!("expected {N} bytes, found {}", bytes.len()))
}

macro_rules! ids {
    ($($id:ty),+) => {$(
        impl Column for $id {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                <$id>::from_bytes(bytes(value)?).map_err(|error| error.to_string())
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Bytes(Cow::Borrowed(self.as_bytes()))
            }
        }
    )+};
}
ids!(RunId, AttemptId, SessionId, OfferId, EnrollmentId, ApiTokenId);

macro_rules! texts {
    ($($kind:ty),+) => {$(
        impl Column for $kind {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                text(value)?.parse().map_err(|error| format!("{error}"))
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Text(Cow::Borrowed(self.as_str()))
            }
        }
    )+};
}
texts!(WorkerId, ProjectName, TaskName, TrustDomain, BootId);
texts!(
    RunState,
    AttemptState,
    LeaseState,
    SessionState,
    WorkerState,
    Role,
    StopIntentReason,
    Resolution,
    EventKind,
    Verb
);
texts!(CutReason, LimitMeans, TriggerName, Kind, GapReason);

macro_rules! counters {
    ($($counter:ty),+) => {$(
        impl Column for $counter {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                <$counter>::from_stored(integer(value)?).map_err(|error| error.to_string())
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Integer(self.to_stored())
            }
        }
    )+};
}
counters!(SessionGeneration, SessionVersion, LeaseGeneration, LeaseVersion, FenceNumber, RunVersion, AttemptVersion);
counters!(AttemptNumber, CallbackSequence, EventSequence, RevisionNumber);

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Column for $number {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                let number = integer(value)?;
                <$number>::try_from(number).map_err(|_| format!("{number} is out of range"))
            }
            fn bind(&self) -> Bound<'_> {
                // Saturates: what a column cannot hold is beyond every limit of the domain.
                Bound::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )+};
}
numbers!(u16, u32, u64, usize, i16);

macro_rules! instants {
    ($($instant:ty),+) => {$(
        impl Column for $instant {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                integer(value).map(<$instant>::new)
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Integer(self.get())
            }
        }
    )+};
}
instants!(LeaseInstant, UtcMillis);

impl Column for i64 {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        integer(value)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Integer(*self)
    }
}

impl Column for Millis {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        u64::read(value).map(Self::new)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Integer(i64::try_from(self.get()).unwrap_or(i64::MAX))
    }
}

impl Column for bool {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        Ok(value.of("yes or no", &[Type::BOOL])? != [0])
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Boolean(*self)
    }
}

impl Column for String {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        text(value).map(str::to_owned)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Text(Cow::Borrowed(self))
    }
}

impl Column for Vec<u8> {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        blob(value).map(<[u8]>::to_vec)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Bytes(Cow::Borrowed(self))
    }
}

impl Column for Digest {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        bytes(value).map(Self::from_bytes)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Bytes(Cow::Borrowed(self.as_bytes()))
    }
}

macro_rules! stored {
    ($($kind:ty, $decode:path, $encode:path;)+) => {$(
        impl Column for $kind {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                $decode(text(value)?)
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Text(Cow::Owned($encode(self)))
            }
        }
    )+};
}
stored! {
    BTreeMap<String, String>, facts::decode, facts::encode;
    BTreeSet<EvidenceKind>, evidence::decode, evidence::encode;
    Vec<u32>, evidence::decode, evidence::encode;
    Devices, devices::decode, devices::encode;
    Outcome, outcome::decode, outcome::encode;
    After, after::decode, after::encode;
}

macro_rules! canonical {
    ($($kind:ty),+) => {$(
        impl Column for $kind {
            fn read(value: Cell<'_>) -> Result<Self, String> {
                thread_local!(static PARSED: RefCell<Parsed<$kind>> = RefCell::default());
                let bytes = blob(value)?;
                PARSED.with_borrow_mut(|parsed| parsed.read(bytes, <$kind>::from_canonical_bytes)).map_err(|errors| {
                    match errors.first() {
                        Some(error) => error.to_string(),
                        None => "not canonical".to_owned(),
                    }
                })
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Bytes(Cow::Owned(self.to_canonical_bytes()))
            }
        }
    )+};
}
canonical!(Capabilities, Placement, Revision);

impl<T: Column> Column for Option<T> {
    fn read(value: Cell<'_>) -> Result<Self, String> {
        if value.is_null() { Ok(None) } else { T::read(value).map(Some) }
    }
    fn bind(&self) -> Bound<'_> {
        self.as_ref().map_or(Bound::Null, Column::bind)
    }
}

/// The parameter of several values.
pub(super) fn list<'a, T: Column + 'a>(values: impl IntoIterator<Item = &'a T>) -> Bound<'a> {
    Bound::List(values.into_iter().map(Column::bind).collect())
}
