//! Randomness of a test: one printed seed, the same choices again when it is given back.

use std::env;
use std::hash::{BuildHasher, RandomState};

/// A small generator (`SplitMix64`): enough to choose moments and sizes, and the same on every machine.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// The generator of this number.
    pub const fn of(number: u64) -> Self {
        Self(number)
    }

    /// A generator that nobody has had before.
    pub fn fresh(what: &str) -> Self {
        Self(RandomState::new().hash_one(what))
    }

    /// The seed of `LEASEHOLD_SEED`, or a new one; printed either way.
    #[expect(clippy::disallowed_methods, reason = "how a person gives a seed back to a test")]
    pub fn announced(test: &str) -> Self {
        let given = env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(test));
        println!("{test}: LEASEHOLD_SEED={seed}");
        Self(seed)
    }

    /// A number below `end`.
    ///
    /// # Panics
    ///
    /// When `end` is 0: there is no such number.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn one_seed_makes_the_same_choices() {
        let choices = |seed| {
            let mut seed = Seed(seed);
            (0..20).map(|_| seed.below(50)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert!(choices(7).iter().all(|choice| *choice < 50));
    }
}
