//! The machine's clocks, randomness and limits: the only place of this binary that reads them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::{BootInstant, Clock, Entropy, UtcMillis};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
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
        BootInstant::new(millis(clock_gettime(ClockId::Boottime)))
    }
}

/// Time since boot while the machine was awake, to the nanosecond: for what is measured, never for what is decided.
pub(crate) fn elapsed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

fn millis(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

/// Lets this process open as many files as the machine allows: each connection is one. It starts no job that would inherit
/// it. A machine that refuses leaves the limit as it is, and fewer connections fit.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// Without randomness no key and no token can be made, so a kernel that refuses it ends the process.
    fn fill(&self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no randomness: {error}"),
            }
        }
    }
}
