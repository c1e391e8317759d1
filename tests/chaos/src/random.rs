//! Random numbers from a seed.

use std::sync::{Mutex, PoisonError};

/// A SplitMix64 generator that threads share.
pub(crate) struct Random(Mutex<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a new, independent generator.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.next())
    }

    /// Returns a number less than `limit`.
    pub(crate) fn below(&self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Returns true once in `times` calls on average.
    pub(crate) fn one_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a number less than 2^`bits`. Small and large magnitudes are equally likely.
    pub(crate) fn size(&self, bits: u32) -> usize {
        self.below(1 << self.below(bits as usize + 1))
    }
}
