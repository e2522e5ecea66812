//! How the domain's types stand in columns: one spelling each, read back with every check of the type.
//!
//! Reading a value that its type would refuse is damage, never a default.

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
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};

use crate::stored::parsed::Parsed;
use crate::stored::{after, devices, evidence, facts, outcome};

/// A type that stands in one column.
pub(super) trait Column: Sized {
    /// The value of a column that is not null.
    fn read(value: ValueRef<'_>) -> Result<Self, String>;

    /// The column of a value.
    fn bind(&self) -> ToSqlOutput<'_>;
}

/// No value.
pub(super) const NULL: ToSqlOutput<'static> = ToSqlOutput::Owned(Owned::Null);

/// The parameters of a statement, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::sqlite::column::Column::bind(&$value)),*] };
}
pub(super) use values;

fn integer(value: ValueRef<'_>) -> Result<i64, String> {
    value.as_i64().map_err(|_| format!("expected an integer, found {}", value.data_type()))
}

fn text(value: ValueRef<'_>) -> Result<&str, String> {
    value.as_str().map_err(|_| format!("expected a text, found {}", value.data_type()))
}

fn blob(value: ValueRef<'_>) -> Result<&[u8], String> {
    value.as_blob().map_err(|_| format!("expected bytes, found {}", value.data_type()))
}

fn bytes<const N: usize>(value: ValueRef<'_>) -> Result<[u8; N], String> {
    let bytes = blob(value)?;
    bytes.try_into().map_err(|_| format!("expected {N} bytes, found {}", bytes.len()))
}

macro_rules! ids {
    ($($id:ty),+) => {$(
        impl Column for $id {
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                <$id>::from_bytes(bytes(value)?).map_err(|error| error.to_string())
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                ToSqlOutput::Borrowed(ValueRef::Blob(self.as_bytes()))
            }
        }
    )+};
}
ids!(RunId, AttemptId, SessionId, OfferId, EnrollmentId, ApiTokenId);

macro_rules! texts {
    ($($kind:ty),+) => {$(
        impl Column for $kind {
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                text(value)?.parse().map_err(|error| format!("{error}"))
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                ToSqlOutput::Borrowed(ValueRef::Text(self.as_str().as_bytes()))
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
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                <$counter>::from_stored(integer(value)?).map_err(|error| error.to_string())
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                ToSqlOutput::Owned(Owned::Integer(self.to_stored()))
            }
        }
    )+};
}
counters!(SessionGeneration, SessionVersion, LeaseGeneration, LeaseVersion, FenceNumber, RunVersion, AttemptVersion);
counters!(AttemptNumber, CallbackSequence, EventSequence, RevisionNumber);

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Column for $number {
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                let number = integer(value)?;
                <$number>::try_from(number).map_err(|_| format!("{number} is out of range"))
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                // Saturates: what a column cannot hold is beyond every limit of the domain.
                ToSqlOutput::Owned(Owned::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
            }
        }
    )+};
}
numbers!(u16, u32, u64, usize, i16);

macro_rules! instants {
    ($($instant:ty),+) => {$(
        impl Column for $instant {
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                integer(value).map(<$instant>::new)
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                ToSqlOutput::Owned(Owned::Integer(self.get()))
            }
        }
    )+};
}
instants!(LeaseInstant, UtcMillis);

impl Column for i64 {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        integer(value)
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Owned(Owned::Integer(*self))
    }
}

impl Column for Millis {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        u64::read(value).map(Self::new)
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Owned(Owned::Integer(i64::try_from(self.get()).unwrap_or(i64::MAX)))
    }
}

impl Column for bool {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        match integer(value)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("expected 0 or 1, found {other}")),
        }
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Owned(Owned::Integer(i64::from(*self)))
    }
}

impl Column for String {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        text(value).map(str::to_owned)
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Borrowed(ValueRef::Text(self.as_bytes()))
    }
}

impl Column for Vec<u8> {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        blob(value).map(<[u8]>::to_vec)
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Borrowed(ValueRef::Blob(self))
    }
}

impl Column for Digest {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        bytes(value).map(Self::from_bytes)
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Borrowed(ValueRef::Blob(self.as_bytes()))
    }
}

macro_rules! stored {
    ($($kind:ty, $decode:path, $encode:path;)+) => {$(
        impl Column for $kind {
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                $decode(text(value)?)
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                ToSqlOutput::Owned(Owned::Text($encode(self)))
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
            fn read(value: ValueRef<'_>) -> Result<Self, String> {
                thread_local!(static PARSED: RefCell<Parsed<$kind>> = RefCell::default());
                let bytes = blob(value)?;
                PARSED.with_borrow_mut(|parsed| parsed.read(bytes, <$kind>::from_canonical_bytes)).map_err(|errors| {
                    match errors.first() {
                        Some(error) => error.to_string(),
                        None => "not canonical".to_owned(),
                    }
                })
            }
            fn bind(&self) -> ToSqlOutput<'_> {
                ToSqlOutput::Owned(Owned::Blob(self.to_canonical_bytes()))
            }
        }
    )+};
}
canonical!(Capabilities, Placement, Revision);

impl<T: Column> Column for Option<T> {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        if value == ValueRef::Null { Ok(None) } else { T::read(value).map(Some) }
    }
    fn bind(&self) -> ToSqlOutput<'_> {
        self.as_ref().map_or(NULL, Column::bind)
    }
}
