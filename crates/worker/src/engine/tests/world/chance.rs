//! What is random in the world comes from one seed.

use std::cell::Cell;
use std::rc::Rc;

use leasehold_core::time::Entropy;

/// A small generator of our own, so that a seed means the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Dice(Rc<Cell<u64>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }

    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The same dice as randomness for ids and tokens. One thread only, as the simulation is.
struct Chance(std::sync::Mutex<u64>);

impl Entropy for Chance {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap();
        for byte in bytes {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (*state >> 33).to_le_bytes()[0];
        }
    }
}

pub(crate) fn chance(seed: u64) -> Box<dyn Entropy> {
    Box::new(Chance(std::sync::Mutex::new(seed)))
}
