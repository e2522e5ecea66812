//! The lease clock: a stored counter that advances with the boot-time clock while the control plane runs.
//!
//! Steps of the wall clock do not touch it and downtime does not count: nobody could have renewed a lease then. It is
//! stored with every commit, and now and then while a lease lives. (Control design, *Two times, two types*; decisions,
//! *SQLite's lease clock*.)

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_core::time::{BootInstant, Clock, LeaseInstant, Now};

use super::column::values;
use super::rows;
use super::transaction::{Fault, Tx};

/// The clocks of an open store.
pub(super) struct LeaseClock {
    machine: Arc<dyn Clock>,
    stored: LeaseInstant,
    opened: BootInstant,
    /// The latest instant that was given out: whatever the machine's clock does, this one never goes back.
    latest: AtomicI64,
}

impl LeaseClock {
    /// A clock that goes on where `stored` stopped.
    pub(super) fn resume(machine: Arc<dyn Clock>, stored: LeaseInstant) -> Self {
        let opened = machine.boot();
        Self { machine, stored, opened, latest: AtomicI64::new(stored.get()) }
    }

    /// The clocks now.
    pub(super) fn now(&self) -> Now {
        let lease = self.stored.plus(self.machine.boot().since(self.opened)).get();
        let latest = self.latest.fetch_max(lease, Ordering::Relaxed).max(lease);
        Now { lease: LeaseInstant::new(latest), utc: self.machine.utc() }
    }
}

/// The instant that was stored last.
pub(super) fn stored(tx: &Tx<'_>) -> Result<LeaseInstant, Fault> {
    tx.only("SELECT at FROM lease_clock WHERE one = 1", values![], rows::column)
}

/// Stores the instant of the transaction; the stored clock never goes back.
pub(super) fn store(tx: &Tx<'_>) -> Result<(), Fault> {
    let sql = "UPDATE lease_clock SET at = max(at, ?1) WHERE one = 1";
    tx.execute_one("lease clock", sql, values![tx.now.lease])
}

/// Whether a lease lives.
pub(super) fn is_needed(tx: &Tx<'_>) -> Result<bool, Fault> {
    tx.only("SELECT EXISTS (SELECT 1 FROM lease WHERE state = 'active')", values![], rows::column)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use leasehold_core::time::{Millis, UtcMillis};

    use super::*;

    struct Settable(Mutex<(i64, i64)>);

    impl Clock for Settable {
        fn utc(&self) -> UtcMillis {
            UtcMillis::new(self.0.lock().unwrap().0)
        }
        fn boot(&self) -> BootInstant {
            BootInstant::new(self.0.lock().unwrap().1)
        }
    }

    #[test]
    fn it_advances_with_the_boot_time_clock_alone_and_never_goes_back() {
        let machine = Arc::new(Settable(Mutex::new((1_800_000_000_000, 50_000))));
        let clock = LeaseClock::resume(machine.clone(), LeaseInstant::new(7_000));
        assert_eq!(clock.now().lease, LeaseInstant::new(7_000));
        for (utc, boot, lease) in [
            (1_800_000_000_000, 51_000, 8_000),
            (1_800_010_800_000, 51_000, 8_000),
            (1_799_989_200_000, 52_500, 9_500),
            (1_799_989_200_000, 40_000, 9_500),
            (1_799_989_200_000, 53_000, 10_000),
        ] {
            *machine.0.lock().unwrap() = (utc, boot);
            assert_eq!(clock.now(), Now { lease: LeaseInstant::new(lease), utc: UtcMillis::new(utc) });
        }
        assert_eq!(clock.now().lease.since(LeaseInstant::new(7_000)), Millis::from_secs(3));
    }
}
