//! How the domain's types stand in columns: one spelling each in every database, read back with every
//! check of the type.
//!
//! Reading a value that its type would refuse is damage, never a default.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

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

use super::parsed::Parsed;
use super::{after, devices, evidence, facts, outcome};

/// A type that stands in one column.
pub(crate) trait Column: Sized {
    /// The value that a column holds.
    fn read(cell: Cell<'_>) -> Result<Self, String>;

    /// The column of a value.
    fn bind(&self) -> Bound<'_>;
}

/// What a column holds, as the database answered it.
#[derive(Clone, Copy)]
pub(crate) enum Cell<'r> {
    /// No value.
    Null,
    /// A number, of whatever width.
    Integer(i64),
    /// Yes or no.
    Boolean(bool),
    /// The bytes of a text.
    Text(&'r [u8]),
    /// Bytes, or the sixteen of an id.
    Bytes(&'r [u8]),
    /// What no column of ours holds.
    Other,
}

impl Cell<'_> {
    /// Why it is not what was `expected`. Only the kind is told: the value may be a secret.
    fn instead_of(self, expected: &str) -> String {
        let found = match self {
            Self::Null => "nothing",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "yes or no",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::Other => "another type",
        };
        format!("expected {expected}, found {found}")
    }
}

/// A parameter of a statement.
#[derive(Clone)]
pub(crate) enum Bound<'a> {
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
    /// Its kind: the value may be a secret.
    pub(crate) const fn name(&self) -> &'static str {
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

/// The parameters of a statement, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::stored::column::Column::bind(&$value)),*] };
}
pub(crate) use values;

fn integer(cell: Cell<'_>) -> Result<i64, String> {
    match cell {
        Cell::Integer(number) => Ok(number),
        other => Err(other.instead_of("an integer")),
    }
}

fn text(cell: Cell<'_>) -> Result<&str, String> {
    match cell {
        Cell::Text(bytes) => std::str::from_utf8(bytes).map_err(|error| error.to_string()),
        other => Err(other.instead_of("a text")),
    }
}

fn blob(cell: Cell<'_>) -> Result<&[u8], String> {
    match cell {
        Cell::Bytes(bytes) => Ok(bytes),
        other => Err(other.instead_of("bytes")),
    }
}

fn bytes<const N: usize>(cell: Cell<'_>) -> Result<[u8; N], String> {
    let bytes = blob(cell)?;
    bytes.try_into().map_err(|_| format!("expected {N} bytes, found {}", bytes.len()))
}

macro_rules! ids {
    ($($id:ty),+) => {$(
        impl Column for $id {
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                <$id>::from_bytes(bytes(cell)?).map_err(|error| error.to_string())
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
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                text(cell)?.parse().map_err(|error| format!("{error}"))
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
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                <$counter>::from_stored(integer(cell)?).map_err(|error| error.to_string())
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
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                let number = integer(cell)?;
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
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                integer(cell).map(<$instant>::new)
            }
            fn bind(&self) -> Bound<'_> {
                Bound::Integer(self.get())
            }
        }
    )+};
}
instants!(LeaseInstant, UtcMillis);

impl Column for i64 {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        integer(cell)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Integer(*self)
    }
}

impl Column for Millis {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        u64::read(cell).map(Self::new)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Integer(i64::try_from(self.get()).unwrap_or(i64::MAX))
    }
}

impl Column for bool {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Boolean(truth) => Ok(truth),
            // Where a database knows no other way to say it.
            Cell::Integer(truth @ (0 | 1)) => Ok(truth == 1),
            Cell::Integer(other) => Err(format!("expected 0 or 1, found {other}")),
            _ => Err(cell.instead_of("yes or no")),
        }
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Boolean(*self)
    }
}

impl Column for String {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        text(cell).map(str::to_owned)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Text(Cow::Borrowed(self))
    }
}

impl Column for Vec<u8> {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        blob(cell).map(<[u8]>::to_vec)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Bytes(Cow::Borrowed(self))
    }
}

impl Column for Digest {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        bytes(cell).map(Self::from_bytes)
    }
    fn bind(&self) -> Bound<'_> {
        Bound::Bytes(Cow::Borrowed(self.as_bytes()))
    }
}

macro_rules! stored {
    ($($kind:ty, $decode:path, $encode:path;)+) => {$(
        impl Column for $kind {
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                $decode(text(cell)?)
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
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                thread_local!(static PARSED: RefCell<Parsed<$kind>> = RefCell::default());
                let bytes = blob(cell)?;
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
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        if matches!(cell, Cell::Null) { Ok(None) } else { T::read(cell).map(Some) }
    }
    fn bind(&self) -> Bound<'_> {
        self.as_ref().map_or(Bound::Null, Column::bind)
    }
}

/// The parameter of several values.
pub(crate) fn list<'a, T: Column + 'a>(values: impl IntoIterator<Item = &'a T>) -> Bound<'a> {
    Bound::List(values.into_iter().map(Column::bind).collect())
}
