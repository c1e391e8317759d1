//! Hash keys that are a function of the seed, and a callback of waits. `src/base/hash.rs` includes
//! this file.

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
    static WAIT_BEGAN: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Sets the keys of all hashes of this thread, and the seed of the jitter.
pub fn seed(seed: u64) {
    SEED.set(seed);
}

/// Sets what is called on this thread when its `wait_for_current_state` has been registered, and the
/// informer notified.
pub fn on_wait(callback: impl Fn() + 'static) {
    WAIT_BEGAN.set(Some(Box::new(callback)));
}

pub(crate) fn wait_began() {
    WAIT_BEGAN.with_borrow(|callback| {
        if let Some(callback) = callback {
            callback();
        }
    });
}

#[derive(Clone, Default)]
pub struct RandomState;

impl BuildHasher for RandomState {
    type Hasher = <FixedState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        FixedState::with_seed(SEED.get()).build_hasher()
    }
}
