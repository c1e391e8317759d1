//! The input and output buffers of a connection.

use ureq::unversioned::transport::Buffers;

use super::cancel::Call;
use super::sizes::{BUFFER, SMALL_OUTPUT};
use crate::base::adaptive_buffer::ReadBuffer;

/// The maximum size of the input buffer. With a large input buffer, a burst of data needs few
/// system calls.
pub(super) const LARGEST: usize = 128 * 1024;

/// The buffers of one connection.
///
/// Most connections are watches, and most watches are silent most of the time. Such connections
/// have a small input buffer and no output buffer. A connection in the pool has no buffers. ureq's
/// own `LazyBuffers` keep one size after the first use.
pub(super) struct ConnectionBuffers {
    input: ReadBuffer,
    /// Whether the last use of the input consumed any bytes.
    progress: bool,
    output_size: usize,
    /// Empty unless a request is being sent.
    output: Vec<u8>,
}

impl ConnectionBuffers {
    /// Creates the buffers without allocating them. `small` is the minimum size of the input,
    /// `output` the size of the output.
    pub(super) fn new(small: usize, output: usize) -> Self {
        Self {
            input: ReadBuffer::new(small, LARGEST),
            progress: false,
            output_size: output,
            output: Vec::new(),
        }
    }

    /// Frees the unused memory of an idle connection.
    pub(super) fn release(&mut self) {
        self.output = Vec::new();
        self.input.release();
    }

    fn allocate_output(&mut self) {
        if self.output.is_empty() {
            let is_short = self.output_size == BUFFER && Call::current_is_short();
            let size = if is_short {
                SMALL_OUTPUT
            } else {
                self.output_size
            };
            self.output = vec![0; size];
        }
    }
}

impl Buffers for ConnectionBuffers {
    fn output(&mut self) -> &mut [u8] {
        self.allocate_output();
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        &self.input
    }

    /// Returns the free part of the input. It is empty if the unconsumed bytes reach the maximum
    /// size of a response head.
    ///
    /// A single read into a large input buffer could still exceed that size. This can't happen for
    /// a head, because the input buffer is small when a response begins.
    fn input_append_buf(&mut self) -> &mut [u8] {
        // Free the output, because the whole request has been sent before its response is read.
        self.output = Vec::new();
        if self.input.len() >= BUFFER {
            return &mut [];
        }
        self.input.free()
    }

    fn input_appended(&mut self, amount: usize) {
        self.input.received(amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.input.consume(amount);
    }

    /// Returns temporary space and the output. The encoding of chunked request bodies needs
    /// temporary space that is not empty.
    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.allocate_output();
        (self.input.free(), &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        !self.input.is_empty() && self.progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 8 * 1024;

    impl ConnectionBuffers {
        /// The allocated bytes of the input and the output.
        fn capacities(&self) -> (usize, usize) {
            (self.input.capacity(), self.output.capacity())
        }
    }

    fn buffers() -> ConnectionBuffers {
        ConnectionBuffers::new(SMALL, 100)
    }

    /// Reads and consumes `amount` bytes, or fewer if there is no space. Returns the size of the
    /// input.
    fn read(buffers: &mut ConnectionBuffers, amount: usize) -> usize {
        let free_len = buffers.input_append_buf().len();
        buffers.input_appended(amount.min(free_len));
        buffers.input_consume(amount.min(free_len));
        free_len
    }

    #[test]
    fn buffers_are_allocated_on_use_and_freed_when_idle() {
        let mut buffers = buffers();
        assert_eq!(buffers.capacities(), (0, 0));
        assert_eq!(buffers.output().len(), 100);
        assert_eq!(buffers.capacities().0, 0);
        assert_eq!(buffers.input_append_buf().len(), SMALL);
        assert_eq!(buffers.capacities().1, 0, "the output buffer was not freed");
        for _ in 0..10 {
            read(&mut buffers, LARGEST);
        }
        buffers.output();
        buffers.release();
        assert_eq!(buffers.capacities(), (0, 0));
        assert_eq!(read(&mut buffers, 1), SMALL);
    }

    #[test]
    fn input_buffer_grows_to_head_limit_if_nothing_is_consumed() {
        let mut buffers = buffers();
        let mut total = 0;
        // The input grows although each read is small.
        while let free_len @ 1.. = buffers.input_append_buf().len() {
            let amount = free_len.min(700);
            buffers.input_appended(amount);
            buffers.input_consume(0);
            total += amount;
            assert_eq!(buffers.input().len(), total);
            assert!(!buffers.can_use_input());
        }
        assert!((BUFFER..BUFFER + 700).contains(&total), "{total}");
        assert!(!buffers.tmp_and_output().0.is_empty());
        buffers.release();
        assert_eq!(
            buffers.input().len(),
            total,
            "release dropped unconsumed input"
        );
    }

    #[test]
    fn random_reads_and_consumes_lose_no_byte() {
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
            let (mut received, mut consumed) = (0, 0);
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
                        let unconsumed = received - consumed;
                        let free = buffers.input_append_buf();
                        assert_eq!(free.is_empty(), unconsumed >= BUFFER);
                        let most = if random(3) == 0 {
                            free.len()
                        } else {
                            free.len().min(1000)
                        };
                        let amount = random(most + 1);
                        let amount = if random(4) == 0 { most } else { amount };
                        free[..amount].copy_from_slice(&pattern[received % PERIOD..][..amount]);
                        received += amount;
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
                        consumed += amount;
                        assert_eq!(buffers.can_use_input(), amount > 0 && received > consumed);
                    }
                }
                assert!(buffers.input() == &pattern[consumed % PERIOD..][..received - consumed]);
                assert!(buffers.input.capacity() <= 2 * LARGEST);
            }
            assert!(received > LARGEST, "{received}");
        }
    }
}
