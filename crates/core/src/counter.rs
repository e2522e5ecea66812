//! Numbers that only grow, one type each: generations and versions that fence, sequences that order.
//!
//! All are bounded to what a SQL column holds (`i64::MAX`); none ever wraps.

use std::fmt;

/// A counter cannot grow further, or a stored number is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is outside 0 to 9223372036854775807")]
pub struct CounterError(pub &'static str);

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $first:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The first value.
            pub const FIRST: Self = Self($first);

            /// The number `value`; refuses what a store cannot hold.
            pub fn new(value: u64) -> Result<Self, CounterError> {
                if i64::try_from(value).is_ok() { Ok(Self(value)) } else { Err(CounterError(stringify!($name))) }
            }

            /// The number of a stored column.
            pub fn from_stored(value: i64) -> Result<Self, CounterError> {
                u64::try_from(value).map(Self).map_err(|_| CounterError(stringify!($name)))
            }

            /// The number as stored.
            pub fn to_stored(self) -> i64 {
                i64::try_from(self.0).unwrap_or(i64::MAX)
            }

            /// The number.
            pub fn get(self) -> u64 {
                self.0
            }

            /// The next number. Saturates at the bound, which no installation reaches; a saturated
            /// compare-and-swap then refuses, and never repeats an old value.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1).min(i64::MAX.unsigned_abs()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

counter!(
    /// Which of a task's revisions one is; one higher at every change.
    RevisionNumber, 1
);
counter!(
    /// Which life of a worker's agent a session is; one higher at every replacement.
    SessionGeneration, 1
);
counter!(
    /// Orders what one session said; one higher at every accepted heartbeat, drain or offline.
    SessionVersion, 0
);
counter!(
    /// Which claim of an attempt a lease is; one higher at every claim of that attempt.
    LeaseGeneration, 1
);
counter!(
    /// Orders the renewals of one lease.
    LeaseVersion, 0
);
counter!(
    /// The number a job passes to its own resources to fence late writers (`LEASEHOLD_FENCE`);
    /// one higher at every claim of the run.
    FenceNumber, 1
);
counter!(
    /// Compare-and-swap version of an inbox record.
    RecordVersion, 1
);
counter!(
    /// Compare-and-swap version of a run.
    RunVersion, 0
);
counter!(
    /// Compare-and-swap version of an attempt.
    AttemptVersion, 0
);
counter!(
    /// Which try at its run an attempt is: 1, 2, …
    AttemptNumber, 1
);
counter!(
    /// Names one launch of one attempt in `running` and `end`; chosen by the worker before the launch.
    CallbackSequence, 1
);
counter!(
    /// Orders the events of one run: 1, 2, …
    EventSequence, 1
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_never_wraps() {
        let last = LeaseVersion::new(i64::MAX.unsigned_abs()).unwrap();
        assert_eq!(last.next(), last);
        assert!(LeaseVersion::new(u64::MAX).is_err());
        assert!(LeaseVersion::from_stored(-1).is_err());
    }
}
