//! How often somebody may call: a bucket that time fills and calls empty.
//!
//! Pure: whoever keeps buckets brings the clock, the boot-time one, which nobody sets. (Protocol, *Errors*: `rate_limited`;
//! design, *Bounded everywhere*.)

use crate::time::{BootInstant, Millis};

/// How a bucket fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls that come back every second, at least one.
    pub per_second: u64,
    /// Calls that a full bucket holds.
    pub burst: u64,
}

impl Rate {
    const fn full(self) -> u64 {
        self.burst.saturating_mul(ONE)
    }
}

/// One call, in what a bucket counts.
const ONE: u64 = 1000;

/// Thousandths of a call that were there at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    level: u64,
    at: BootInstant,
}

impl Bucket {
    /// A full one.
    pub const fn full(rate: Rate, now: BootInstant) -> Self {
        Self { level: rate.full(), at: now }
    }

    /// The same bucket, filled up to `now`.
    #[must_use]
    pub fn filled(self, rate: Rate, now: BootInstant) -> Self {
        let fresh = now.since(self.at).get().saturating_mul(rate.per_second);
        Self { level: self.level.saturating_add(fresh).min(rate.full()), at: now }
    }

    /// Whether it is full at `now`: nobody has called for a while, and it can be forgotten.
    pub fn is_full(self, rate: Rate, now: BootInstant) -> bool {
        self.filled(rate, now).level >= rate.full()
    }

    /// The bucket after one call at `now`; an error says when there will be room for one.
    pub fn drawn(self, rate: Rate, now: BootInstant) -> Result<Self, Millis> {
        let filled = self.filled(rate, now);
        match filled.level.checked_sub(ONE) {
            Some(level) => Ok(Self { level, ..filled }),
            None => Err(Millis::new((ONE - filled.level).div_ceil(rate.per_second))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 2, burst: 3 };

    fn at(millis: i64) -> BootInstant {
        BootInstant::new(millis)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::full(RATE, at(0));
        for _ in 0..RATE.burst {
            bucket = bucket.drawn(RATE, at(0)).unwrap();
        }
        assert_eq!(bucket.drawn(RATE, at(0)), Err(Millis::new(500)));
        assert_eq!(bucket.drawn(RATE, at(499)), Err(Millis::new(1)));
        let drawn = bucket.drawn(RATE, at(500)).unwrap();
        assert!(drawn.drawn(RATE, at(500)).is_err());
    }

    #[test]
    fn a_bucket_never_holds_more_than_its_burst() {
        let mut bucket = Bucket::full(RATE, at(0)).filled(RATE, at(60_000));
        assert!(bucket.is_full(RATE, at(60_000)));
        for _ in 0..RATE.burst {
            bucket = bucket.drawn(RATE, at(60_000)).unwrap();
        }
        assert!(bucket.drawn(RATE, at(60_000)).is_err());
        assert!(!bucket.is_full(RATE, at(60_001)) && bucket.is_full(RATE, at(61_500)));
    }
}
