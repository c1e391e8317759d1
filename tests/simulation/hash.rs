//! Hash keys that are a function of the seed. `src/base/hash.rs` includes this file.

use std::cell::Cell;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

thread_local!(static SEED: Cell<u64> = const { Cell::new(0) });

/// Sets the keys of all hashes of this thread, and the seed of the jitter.
pub fn seed(seed: u64) {
    SEED.set(seed);
}

#[derive(Clone, Default)]
pub struct RandomState;

impl BuildHasher for RandomState {
    type Hasher = <FixedState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        FixedState::with_seed(SEED.get()).build_hasher()
    }
}
