//! What a connection reads into and writes from.

use ureq::unversioned::transport::Buffers;

use super::BUFFER;

/// How far the input grows: what comes in a burst is read in few system calls.
pub(super) const LARGEST: usize = 128 * 1024;

/// After so many reads in a row that a quarter would have been too large for, the input is small again.
const SMALL_READS: u32 = 32;

/// The buffers of one connection. Most connections are watches, and most watches are silent most of the time:
/// then there is a small input and no output; and nothing at all while a connection is in the pool.
///
/// ureq's own `LazyBuffers` are of one size from the first use on.
pub(super) struct GrowingBuffers {
    /// The size of the input to begin with.
    small: usize,
    /// The size that the input is to have from the next read on.
    wanted: usize,
    /// As far as `filled` it holds what came; from `consumed` on it is still wanted.
    input: Vec<u8>,
    consumed: usize,
    filled: usize,
    /// Reads in a row that took less than a quarter.
    small_reads: u32,
    /// Whether the last use of the input took something of it.
    progress: bool,
    output_size: usize,
    /// Empty unless something is being sent.
    output: Vec<u8>,
}

impl GrowingBuffers {
    /// Allocates nothing yet. `small` is the size of the input to begin with, `output` that of the output.
    pub(super) fn new(small: usize, output: usize) -> Self {
        Self {
            small,
            wanted: small,
            input: Vec::new(),
            consumed: 0,
            filled: 0,
            small_reads: 0,
            progress: false,
            output_size: output,
            output: Vec::new(),
        }
    }

    /// Frees what is not in use. For a connection that has nothing to do.
    pub(super) fn release(&mut self) {
        self.output = Vec::new();
        if self.input().is_empty() {
            (self.input, self.consumed, self.filled) = (Vec::new(), 0, 0);
            (self.wanted, self.small_reads) = (self.small, 0);
        }
    }

    fn allocate_output(&mut self) {
        if self.output.is_empty() {
            self.output = vec![0; self.output_size];
        }
    }

    /// Makes the input as large as it is to be, with room for one byte at least; what is unconsumed goes to
    /// its beginning. It is next to nothing when a body is read: the end of a chunk, at most.
    fn make_room(&mut self) {
        let unconsumed = self.filled - self.consumed;
        let mut size = self.wanted;
        while size <= unconsumed {
            size *= 2;
        }
        self.wanted = LARGEST.min(size);
        if size == self.input.len() {
            self.input.copy_within(self.consumed..self.filled, 0);
        } else {
            let mut input = vec![0; size];
            input[..unconsumed].copy_from_slice(self.input());
            self.input = input;
        }
        (self.consumed, self.filled) = (0, unconsumed);
    }
}

impl Buffers for GrowingBuffers {
    fn output(&mut self) -> &mut [u8] {
        self.allocate_output();
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        &self.input[self.consumed..self.filled]
    }

    /// Empty if what is unconsumed is as much as may be: the head of an answer that has no end. An input that
    /// is larger holds a larger one, but it is small when an answer begins.
    fn input_append_buf(&mut self) -> &mut [u8] {
        // Who reads has sent what there was to send.
        self.output = Vec::new();
        if self.input().len() >= BUFFER {
            return &mut [];
        }
        self.make_room();
        &mut self.input[self.filled..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled += amount;
        assert!(
            self.filled <= self.input.len(),
            "more was read than there was room for"
        );
        let size = self.input.len();
        if self.filled == size {
            self.wanted = LARGEST.min(size * 2);
        }
        self.small_reads = if amount < size / 4 {
            self.small_reads + 1
        } else {
            0
        };
        if self.small_reads >= SMALL_READS {
            (self.wanted, self.small_reads) = (self.small, 0);
        }
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.consumed += amount;
        assert!(
            self.consumed <= self.filled,
            "more was consumed than there was"
        );
    }

    /// The first is for what is to be sent in chunks, and can't be empty then.
    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.allocate_output();
        self.make_room();
        (&mut self.input[self.filled..], &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        !self.input().is_empty() && self.progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 8 * 1024;

    fn buffers() -> GrowingBuffers {
        GrowingBuffers::new(SMALL, 100)
    }

    /// Reads `amount`, or as much as there is room for, and consumes it; the size of the input.
    fn read(buffers: &mut GrowingBuffers, amount: usize) -> usize {
        let room = buffers.input_append_buf().len();
        buffers.input_appended(amount.min(room));
        buffers.input_consume(amount.min(room));
        room
    }

    #[test]
    fn buffers_are_allocated_on_use_and_freed_when_idle() {
        let mut buffers = buffers();
        assert_eq!(
            (buffers.input.capacity(), buffers.output.capacity()),
            (0, 0)
        );
        assert_eq!(buffers.output().len(), 100);
        assert_eq!(buffers.input.capacity(), 0);
        assert_eq!(buffers.input_append_buf().len(), SMALL);
        assert_eq!(
            buffers.output.capacity(),
            0,
            "what was sent needs no room any longer"
        );
        for _ in 0..10 {
            read(&mut buffers, LARGEST);
        }
        buffers.output();
        buffers.release();
        assert_eq!(
            (buffers.input.capacity(), buffers.output.capacity()),
            (0, 0)
        );
        assert_eq!(read(&mut buffers, 1), SMALL);
    }

    #[test]
    fn buffer_grows_on_full_reads_shrinks_after_small_ones() {
        let mut buffers = buffers();
        let sizes: Vec<usize> = (0..7).map(|_| read(&mut buffers, LARGEST) / 1024).collect();
        assert_eq!(sizes, [8, 16, 32, 64, 128, 128, 128]);
        // One that is not small begins the count anew; one that is not full does not let it grow.
        for _ in 0..3 {
            for _ in 1..SMALL_READS {
                assert_eq!(read(&mut buffers, 1000), LARGEST);
            }
            assert_eq!(read(&mut buffers, LARGEST / 4), LARGEST);
        }
        for _ in 0..SMALL_READS {
            assert_eq!(read(&mut buffers, 1000), LARGEST);
        }
        for _ in 0..100 {
            assert_eq!(read(&mut buffers, 1000), SMALL);
        }
        assert_eq!(buffers.input.capacity(), SMALL);
    }

    #[test]
    fn what_is_not_consumed_makes_it_grow_up_to_the_largest_head() {
        let mut buffers = buffers();
        let mut total = 0;
        // A byte at a time as well: reads are small, but there has to be room.
        while let room @ 1.. = buffers.input_append_buf().len() {
            let amount = room.min(700);
            buffers.input_appended(amount);
            buffers.input_consume(0);
            total += amount;
            assert_eq!(buffers.input().len(), total);
            assert!(!buffers.can_use_input());
        }
        assert!((BUFFER..BUFFER + 700).contains(&total), "{total}");
        assert!(!buffers.tmp_and_output().0.is_empty());
        buffers.release();
        assert_eq!(buffers.input().len(), total, "it is in use");
    }

    #[test]
    fn no_byte_is_lost_whatever_comes_and_is_taken() {
        const PERIOD: usize = 251;
        let pattern: Vec<u8> = (0..PERIOD as u8)
            .cycle()
            .take(PERIOD + 2 * LARGEST)
            .collect();
        for seed in 1..=50_u64 {
            // xorshift
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = move |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                usize::try_from(state % below as u64).unwrap()
            };
            let mut buffers = buffers();
            let (mut came, mut taken) = (0, 0);
            for _ in 0..2000 {
                match random(10) {
                    0 => {
                        buffers.output().fill(255);
                    }
                    1 => buffers.release(),
                    2 => {
                        let (tmp, output) = buffers.tmp_and_output();
                        tmp.fill(255);
                        output.fill(255);
                    }
                    3..=6 => {
                        let unconsumed = came - taken;
                        let free = buffers.input_append_buf();
                        assert_eq!(free.is_empty(), unconsumed >= BUFFER);
                        let most = if random(3) == 0 {
                            free.len()
                        } else {
                            free.len().min(1000)
                        };
                        let amount = random(most + 1);
                        let amount = if random(4) == 0 { most } else { amount };
                        free[..amount].copy_from_slice(&pattern[came % PERIOD..][..amount]);
                        came += amount;
                        buffers.input_appended(amount);
                    }
                    _ => {
                        let there = buffers.input().len();
                        let amount = if random(2) == 0 {
                            there
                        } else {
                            random(there + 1)
                        };
                        buffers.input_consume(amount);
                        taken += amount;
                        assert_eq!(buffers.can_use_input(), amount > 0 && came > taken);
                    }
                }
                assert!(buffers.input() == &pattern[taken % PERIOD..][..came - taken]);
                assert!(buffers.input.len() <= 2 * LARGEST);
            }
            assert!(came > LARGEST, "{came}");
        }
    }
}
