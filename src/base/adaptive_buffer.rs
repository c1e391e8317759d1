//! Byte buffers that adapt to the data: they grow in a burst and shrink after it.

use std::ops::Deref;

/// A buffer shrinks after this number of consecutive uses that needed less than a quarter of it.
const SMALL_USES_TO_SHRINK: u32 = 32;

/// Decides the size of a buffer.
///
/// The size doubles after a use that filled the buffer. It halves after [`SMALL_USES_TO_SHRINK`]
/// consecutive uses that needed less than a quarter, so an occasional large use keeps the size.
#[derive(Debug)]
struct SizePolicy {
    min: usize,
    max: usize,
    /// The number of consecutive uses that needed less than a quarter.
    small_uses: u32,
}

impl SizePolicy {
    const fn new(min: usize, max: usize) -> Self {
        Self {
            min,
            max,
            small_uses: 0,
        }
    }

    /// Returns the size for the next use, after a use that needed `used` of `size` bytes.
    fn next_size(&mut self, size: usize, used: usize) -> usize {
        let is_small = size > self.min && used < size / 4;
        self.small_uses = if is_small { self.small_uses + 1 } else { 0 };
        let next = if used >= size {
            size.saturating_mul(2)
        } else if self.small_uses == SMALL_USES_TO_SHRINK {
            self.small_uses = 0;
            size / 2
        } else {
            size
        };
        next.clamp(self.min, self.max)
    }
}

/// A buffer that is filled for one use, then cleared for the next.
#[derive(Debug)]
pub(crate) struct AdaptiveBuffer {
    bytes: Vec<u8>,
    policy: SizePolicy,
}

impl AdaptiveBuffer {
    /// The capacity that is always kept.
    const MIN: usize = 16 << 10;

    /// Returns the bytes of the current use, for writing.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a use: clears the bytes, and shrinks the buffer after enough small uses.
    pub(crate) fn clear(&mut self) {
        let (capacity, used) = (self.bytes.capacity(), self.bytes.len());
        self.bytes.clear();
        // The buffer grows like any `Vec` while it is written, so only shrinking is left to do
        // here.
        self.bytes.shrink_to(self.policy.next_size(capacity, used));
    }
}

impl Default for AdaptiveBuffer {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            policy: SizePolicy::new(Self::MIN, usize::MAX),
        }
    }
}

impl Deref for AdaptiveBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A buffer between a stream and its consumer. Each read from the stream is one use. Dereferences
/// to the bytes that are not yet consumed.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    /// Contains data up to `filled`. The data up to `consumed` is consumed.
    bytes: Vec<u8>,
    consumed: usize,
    filled: usize,
    /// The size for the next read.
    size: usize,
    policy: SizePolicy,
}

impl ReadBuffer {
    /// Creates an empty buffer without an allocation.
    pub(crate) fn new(min: usize, max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            consumed: 0,
            filled: 0,
            size: min,
            policy: SizePolicy::new(min, max),
        }
    }

    /// Returns the free space, at least one byte. Unconsumed bytes move to the front. If they take
    /// the whole maximum size, the buffer grows beyond it.
    pub(crate) fn free(&mut self) -> &mut [u8] {
        let unconsumed = self.len();
        let mut size = self.size;
        while size <= unconsumed {
            size *= 2;
        }
        if size == self.bytes.len() {
            self.bytes.copy_within(self.consumed..self.filled, 0);
        } else {
            let mut bytes = vec![0; size];
            bytes[..unconsumed].copy_from_slice(self);
            self.bytes = bytes;
        }
        (self.consumed, self.filled) = (0, unconsumed);
        &mut self.bytes[unconsumed..]
    }

    /// Ends a read that wrote `amount` bytes into [`free`](Self::free).
    pub(crate) fn received(&mut self, amount: usize) {
        self.filled += amount;
        assert!(
            self.filled <= self.bytes.len(),
            "a read returned more bytes than the free space"
        );
        self.size = self.policy.next_size(self.bytes.len(), self.filled);
    }

    /// Removes the first `amount` bytes.
    pub(crate) fn consume(&mut self, amount: usize) {
        self.consumed += amount;
        assert!(
            self.consumed <= self.filled,
            "more bytes were consumed than were available"
        );
    }

    /// Returns the number of allocated bytes.
    #[cfg(all(test, feature = "client"))]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the memory, unless there are unconsumed bytes.
    #[cfg(feature = "client")]
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            *self = Self::new(self.policy.min, self.policy.max);
        }
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.consumed..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_once(buffer: &mut AdaptiveBuffer, length: usize) -> usize {
        buffer.bytes().resize(length, b'x');
        buffer.clear();
        buffer.bytes.capacity()
    }

    #[test]
    fn buffer_halves_after_small_uses_in_a_row() {
        let mut buffer = AdaptiveBuffer::default();
        assert_eq!(use_once(&mut buffer, 1 << 20), 1 << 20);
        for _ in 1..SMALL_USES_TO_SHRINK {
            assert_eq!(use_once(&mut buffer, 6_000), 1 << 20);
        }
        assert_eq!(use_once(&mut buffer, 6_000), 1 << 19);
        for _ in 0..100 * SMALL_USES_TO_SHRINK {
            use_once(&mut buffer, 6_000);
        }
        assert_eq!(buffer.bytes.capacity(), AdaptiveBuffer::MIN);
    }

    #[test]
    fn quarter_size_use_among_small_uses_keeps_the_size() {
        let mut buffer = AdaptiveBuffer::default();
        use_once(&mut buffer, 1 << 20);
        for _ in 0..10 {
            for _ in 1..SMALL_USES_TO_SHRINK {
                assert_eq!(use_once(&mut buffer, 6_000), 1 << 20);
            }
            assert_eq!(use_once(&mut buffer, 1 << 18), 1 << 20);
        }
    }

    #[test]
    fn buffer_of_minimum_size_does_not_shrink() {
        let mut buffer = AdaptiveBuffer::default();
        use_once(&mut buffer, AdaptiveBuffer::MIN);
        for _ in 0..10 * SMALL_USES_TO_SHRINK {
            assert_eq!(use_once(&mut buffer, 1), AdaptiveBuffer::MIN);
        }
    }

    const MIN: usize = 4 << 10;
    const MAX: usize = 128 << 10;

    /// Reads and consumes `amount` bytes, or as many as fit. Returns the size of the free space.
    fn read(buffer: &mut ReadBuffer, amount: usize) -> usize {
        let free = buffer.free().len();
        buffer.received(amount.min(free));
        buffer.consume(buffer.len());
        free
    }

    #[test]
    fn read_buffer_grows_on_full_reads_shrinks_after_small() {
        let mut buffer = ReadBuffer::new(MIN, MAX);
        assert_eq!(
            buffer.bytes.capacity(),
            0,
            "no memory before the first read"
        );
        let sizes: Vec<usize> = (0..7).map(|_| read(&mut buffer, MAX) >> 10).collect();
        assert_eq!(sizes, [4, 8, 16, 32, 64, 128, 128]);
        let sizes: Vec<usize> = (0..6 * SMALL_USES_TO_SHRINK)
            .map(|_| read(&mut buffer, 100))
            .collect();
        assert_eq!(
            (sizes[0], sizes[SMALL_USES_TO_SHRINK as usize]),
            (MAX, MAX / 2)
        );
        assert_eq!(sizes.last(), Some(&MIN));
        assert!(sizes.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn quarter_size_read_among_small_reads_keeps_the_size() {
        let mut buffer = ReadBuffer::new(MIN, MAX);
        while read(&mut buffer, MAX) < MAX {}
        for _ in 0..10 {
            (1..SMALL_USES_TO_SHRINK).for_each(|_| assert_eq!(read(&mut buffer, 1), MAX));
            assert_eq!(read(&mut buffer, MAX / 4), MAX);
        }
    }
}
