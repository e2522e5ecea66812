//! The machine's own clocks and randomness, for binaries to pass down as [`Clock`] and [`Entropy`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::{BootInstant, Clock, Entropy, UtcMillis};
use rustix::time::{ClockId, clock_gettime};

/// The kernel's clocks.
#[derive(Debug, Clone, Copy)]
pub struct MachineClock;

impl Clock for MachineClock {
    /// Through the C library, where tests can make it jump (`faketime`); the clock that judges leases they cannot touch.
    #[expect(clippy::disallowed_methods, reason = "this is the binary's clock")]
    fn utc(&self) -> UtcMillis {
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        UtcMillis::new(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        })
    }

    fn boot(&self) -> BootInstant {
        let now = clock_gettime(ClockId::Boottime);
        BootInstant::new(now.tv_sec * 1000 + now.tv_nsec / 1_000_000)
    }
}

/// The cryptographic provider's generator, the same that TLS uses.
#[derive(Debug, Clone, Copy)]
pub struct MachineEntropy;

impl Entropy for MachineEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        rustls::crypto::aws_lc_rs::default_provider()
            .secure_random
            .fill(bytes)
            .expect("the kernel's generator, once seeded at boot, never fails");
    }
}
