use std::hint::black_box;

/// Has the allocator take memory from the system in larger steps, while many objects come to stay.
///
/// Some get it by the page, with a call to the system for each: glibc for all threads but the first one. It
/// was a fifth of what a first list of Pods costs. A block that is given back at once leaves them with that
/// much; it is smaller than what they would give back to the system themselves.
#[derive(Debug, Default)]
pub(super) struct Headroom {
    /// How much JSON has been decoded since.
    decoded: usize,
}

/// As large as a block may be that glibc keeps: it returns 128 KiB.
const STEP: usize = 110 << 10;

/// After so much JSON it is used up: k8s-openapi's objects take eight times what they are decoded from.
const EVERY: usize = 12 << 10;

impl Headroom {
    /// So much JSON becomes an object that stays.
    pub(super) fn stays(&mut self, json: usize) {
        self.decoded += json;
        if self.decoded >= EVERY {
            self.decoded = 0;
            drop(black_box(Vec::<u8>::with_capacity(STEP)));
        }
    }
}
