//! A clock that tests set: both kinds of time stand still until a case moves them.

use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_core::time::{BootInstant, Clock, Millis, UtcMillis};

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct TestClock {
    utc: AtomicI64,
    boot: AtomicI64,
}

impl TestClock {
    /// Some morning, an hour after boot.
    pub const fn new() -> Self {
        Self { utc: AtomicI64::new(1_800_000_000_000), boot: AtomicI64::new(3_600_000) }
    }

    /// Lets `span` pass on both clocks.
    pub fn advance(&self, span: Millis) {
        self.step_utc(i64::try_from(span.get()).unwrap_or(i64::MAX));
        self.boot.fetch_add(i64::try_from(span.get()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets both clocks back: what a wall clock that judges leases can do, and a boot-time clock cannot.
    pub fn set_back(&self, span: Millis) {
        let span = i64::try_from(span.get()).unwrap_or(i64::MAX);
        self.step_utc(-span);
        self.boot.fetch_sub(span, Ordering::SeqCst);
    }

    /// Steps the wall clock alone, as an administrator or NTP would.
    pub fn step_utc(&self, millis: i64) {
        self.utc.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn utc(&self) -> UtcMillis {
        UtcMillis::new(self.utc.load(Ordering::SeqCst))
    }

    fn boot(&self) -> BootInstant {
        BootInstant::new(self.boot.load(Ordering::SeqCst))
    }
}
