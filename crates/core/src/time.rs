//! Time and chance as parameters, and one type per kind of time.
//!
//! Three clocks exist and must not be mixed: [`UtcMillis`] is shown to people, [`LeaseInstant`] judges leases
//! and sessions at the control plane, [`BootInstant`] judges deadlines on one machine. No wall clock decides
//! anything about a lease.

use std::fmt;
use std::time::Duration;

/// Wall-clock time: milliseconds since 1970-01-01 UTC. For people and for cron; never for leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcMillis(i64);

/// The control plane's lease clock, in milliseconds from an arbitrary origin. On SQLite it is a stored counter that
/// advances with the boot-time clock while the control plane runs: wall-clock steps do not touch it and downtime
/// does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseInstant(i64);

/// What a store's clocks said, read once per transaction, after its locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Judges leases and sessions.
    pub lease: LeaseInstant,
    /// Shown to people.
    pub utc: UtcMillis,
}

/// One machine's boot-time clock (`CLOCK_BOOTTIME`): milliseconds since boot, suspend included.
/// Meaningful only within the boot that produced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(i64);

/// A span of time in whole milliseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(u64);

macro_rules! instant {
    ($name:ident) => {
        impl $name {
            /// The instant at `millis` of its clock.
            pub const fn new(millis: i64) -> Self {
                Self(millis)
            }

            /// Milliseconds of its clock.
            pub const fn get(self) -> i64 {
                self.0
            }

            /// This instant moved forward by `span`; saturates.
            #[must_use]
            pub fn plus(self, span: Millis) -> Self {
                Self(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
            }

            /// This instant moved back by `span`; saturates.
            #[must_use]
            pub fn minus(self, span: Millis) -> Self {
                Self(self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX)))
            }

            /// How long after `earlier` this is; zero when it is not after it.
            pub fn since(self, earlier: Self) -> Millis {
                Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
            }
        }
    };
}

instant!(UtcMillis);
instant!(LeaseInstant);
instant!(BootInstant);

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `millis` milliseconds.
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// `seconds` seconds; saturates.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum; saturates.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference; zero when `other` is longer.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The `n`-th part, rounded down; `n` of zero counts as one.
    #[must_use]
    pub const fn part(self, n: u64) -> Self {
        Self(self.0 / if n == 0 { 1 } else { n })
    }

    /// `n` times as long; saturates.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// As the standard library's duration.
    pub const fn to_std(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

impl fmt::Display for Millis {
    /// The shortest exact form people write: `90s`, `10m`, `1h30m`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, millis) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
            if rest >= millis {
                write!(f, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

/// A text is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: write a number and a unit, such as 250ms, 10s, 5m, 1h30m or 2d")]
pub struct DurationError(pub String);

impl std::str::FromStr for Millis {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let refused = || DurationError(text.chars().take(64).collect());
        let mut rest = text;
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(refused());
        }
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number: u64 = rest[..digits].parse().map_err(|_| refused())?;
            rest = &rest[digits..];
            let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let unit = match &rest[..letters] {
                "ms" => 1,
                "s" => 1000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(refused()),
            };
            rest = &rest[letters..];
            total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(refused)?;
        }
        Ok(Self(total))
    }
}

/// Where a process learns the time. Production reads the machine's clocks; tests and the simulation set them.
pub trait Clock: Send + Sync {
    /// The wall clock; may step in either direction.
    fn utc(&self) -> UtcMillis;

    /// The boot-time clock; never goes back within a boot and counts suspend.
    fn boot(&self) -> BootInstant;
}

/// Where a process gets its randomness. Production asks the operating system; tests use a seed.
pub trait Entropy: Send + Sync {
    /// Fills `bytes` with randomness good enough for keys and tokens.
    fn fill(&self, bytes: &mut [u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, millis) in
            [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h30m", 5_400_000), ("2d", 172_800_000)]
        {
            assert_eq!(text.parse(), Ok(Millis::new(millis)), "{text}");
            assert_eq!(Millis::new(millis).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in ["", "10", "s", "-1s", "1.5s", "1 s", "10S", "99999999999999999999s", "999999999999999999d"] {
            assert!(text.parse::<Millis>().is_err(), "{text}");
        }
    }

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(LeaseInstant::new(i64::MAX).plus(Millis::from_secs(1)), LeaseInstant::new(i64::MAX));
        assert_eq!(LeaseInstant::new(5).since(LeaseInstant::new(9)), Millis::ZERO);
    }
}
