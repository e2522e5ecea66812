//! How often one caller may call: a bucket of tokens per worker, per address of those that have no certificate yet, and per
//! webhook, from which only its token draws.
//!
//! Heartbeats and ends draw from a bucket of their own: a worker that floods one never loses a lease or a result for it.
//! (Protocol, *Errors*: `rate_limited`.)

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::id::WorkerId;
use leasehold_core::limits;
use leasehold_core::rate::{Bucket, Rate};
use leasehold_core::time::{Clock, Millis};
use leasehold_core::trigger::TriggerKey;

/// Who draws from a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A worker's ordinary calls.
    Worker(WorkerId),
    /// A worker's heartbeats and ends.
    Vital(WorkerId),
    /// Whoever enrolls from here.
    Address(IpAddr),
    /// Who calls this webhook with its token.
    Webhook(TriggerKey),
}

/// More than any worker needs: a loop that went wrong is slowed down, a busy worker never is.
const WORKER: Rate = Rate { per_second: 2000, burst: 8000 };
const VITAL: Rate = Rate { per_second: 1000, burst: 4000 };
/// Enrolling is rare, and the only thing that strangers can do.
const ADDRESS: Rate = Rate { per_second: 2, burst: 64 };

const WEBHOOK: Rate = Rate { per_second: limits::WEBHOOK_CALLS_PER_SECOND, burst: limits::WEBHOOK_CALLS_BURST };

/// Buckets kept; those that are full again are forgotten first.
const BUCKETS: usize = 8192;

impl Key {
    const fn rate(&self) -> Rate {
        match self {
            Self::Worker(_) => WORKER,
            Self::Vital(_) => VITAL,
            Self::Address(_) => ADDRESS,
            Self::Webhook(_) => WEBHOOK,
        }
    }
}

/// Every bucket of one side of the server.
pub(crate) struct Rates {
    clock: Arc<dyn Clock>,
    buckets: Mutex<HashMap<Key, Bucket>>,
}

impl Rates {
    /// Full buckets.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, buckets: Mutex::default() }
    }

    /// Draws one call; an error says when there will be one.
    pub(crate) fn draw(&self, key: Key) -> Result<(), Millis> {
        let (rate, now) = (key.rate(), self.clock.boot());
        let mut buckets = self.buckets();
        if buckets.len() >= BUCKETS && !buckets.contains_key(&key) {
            buckets.retain(|key, bucket| !bucket.is_full(key.rate(), now));
            if buckets.len() >= BUCKETS {
                // Every bucket is in use: strangers wait, nobody's count is forgotten.
                return Err(Millis::from_secs(1));
            }
        }
        let bucket = buckets.entry(key).or_insert_with(|| Bucket::full(rate, now));
        *bucket = bucket.drawn(rate, now)?;
        Ok(())
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<Key, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use leasehold_core::time::{BootInstant, UtcMillis};

    use super::*;

    #[derive(Default)]
    struct Hand(AtomicI64);
    impl Clock for Hand {
        fn utc(&self) -> UtcMillis {
            UtcMillis::new(0)
        }
        fn boot(&self) -> BootInstant {
            BootInstant::new(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let clock = Arc::new(Hand::default());
        let rates = Rates::new(clock.clone());
        let here = || Key::Address([127, 0, 0, 1].into());
        for _ in 0..ADDRESS.burst {
            assert_eq!(rates.draw(here()), Ok(()));
        }
        assert_eq!(rates.draw(here()), Err(Millis::new(500)));
        assert_eq!(rates.draw(Key::Address([127, 0, 0, 2].into())), Ok(()), "another address has its own");
        clock.0.store(500, Ordering::SeqCst);
        assert_eq!(rates.draw(here()), Ok(()));
        assert!(rates.draw(here()).is_err());
    }

    #[test]
    fn a_flood_of_calls_leaves_heartbeats_their_budget() {
        let rates = Rates::new(Arc::new(Hand::default()));
        let worker: WorkerId = "nas".parse().unwrap();
        while rates.draw(Key::Worker(worker.clone())).is_ok() {}
        assert_eq!(rates.draw(Key::Vital(worker)), Ok(()));
    }

    #[test]
    fn buckets_are_bounded_and_full_ones_make_room() {
        let clock = Arc::new(Hand::default());
        let rates = Rates::new(clock.clone());
        let address = |n: usize| Key::Address(IpAddr::from((n as u128).to_be_bytes()));
        for n in 0..BUCKETS {
            assert_eq!(rates.draw(address(n)), Ok(()));
        }
        assert!(rates.draw(address(BUCKETS)).is_err());
        clock.0.store(1000, Ordering::SeqCst);
        assert_eq!(rates.draw(address(BUCKETS)), Ok(()));
        assert_eq!(rates.buckets.lock().unwrap().len(), 1);
    }
}
