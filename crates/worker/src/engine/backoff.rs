//! When to try again: full jitter, bounded, and reset by the first success.

use leasehold_core::limits::BACKOFF_MAX;
use leasehold_core::time::{BootInstant, Entropy, Millis};

/// The first wait lies between a tenth of this and this.
const FIRST: Millis = Millis::new(250);

/// The state of one thing that is tried again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Retry {
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Not before this.
    pub(super) at: Option<BootInstant>,
}

impl Retry {
    /// Whether it may be tried now.
    pub(super) fn is_due(&self, now: BootInstant) -> bool {
        self.at.is_none_or(|at| at <= now)
    }

    /// It succeeded.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// It failed: waits longer each time, at most `most`, at least `least`.
    pub(super) fn failed(&mut self, now: BootInstant, least: Millis, most: Millis, entropy: &dyn Entropy) {
        let ceiling = FIRST.times(1 << self.failures.min(16)).min(most).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.at = Some(now.plus(jittered(ceiling, entropy).max(least)));
    }

    /// It is tried again at a known time.
    pub(super) fn wait_until(&mut self, at: BootInstant) {
        self.at = Some(at);
    }
}

/// A span between a tenth of `most` and `most`.
pub(super) fn jittered(most: Millis, entropy: &dyn Entropy) -> Millis {
    let mut bytes = [0; 2];
    entropy.fill(&mut bytes);
    let part = u64::from(u16::from_le_bytes(bytes) % 901) + 100;
    Millis::new(most.get().saturating_mul(part) / 1000)
}

/// `interval` give or take 10 %, so that a fleet does not beat in step.
pub(super) fn spread(interval: Millis, entropy: &dyn Entropy) -> Millis {
    let mut bytes = [0; 2];
    entropy.fill(&mut bytes);
    let part = u64::from(u16::from_le_bytes(bytes) % 201) + 900;
    Millis::new(interval.get().saturating_mul(part) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Highest;
    impl Entropy for Highest {
        fn fill(&self, bytes: &mut [u8]) {
            // 900 of 0..=900: the longest wait.
            bytes.copy_from_slice(&900u16.to_le_bytes());
        }
    }

    #[test]
    fn waits_grow_and_stay_bounded() {
        let mut retry = Retry::default();
        let now = BootInstant::new(1000);
        let mut waits = Vec::new();
        for _ in 0..12 {
            retry.failed(now, Millis::ZERO, BACKOFF_MAX, &Highest);
            waits.push(retry.at.unwrap().since(now).get());
        }
        assert_eq!(waits[..4], [250, 500, 1000, 2000]);
        assert_eq!(*waits.last().unwrap(), BACKOFF_MAX.get());
        retry.reset();
        assert!(retry.is_due(now));
    }
}
