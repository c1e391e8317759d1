/// What a body is read into: small where little comes, as on most watches most of the time, large where much
/// does, since what is read at once costs each thread one wake-up.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    /// Whether the last read has filled it.
    filled: bool,
    /// How many reads in a row have not filled a quarter.
    small: u32,
}

/// The sizes between which it is.
const SIZES: [usize; 2] = [4 << 10, 128 << 10];

/// It halves after so many small reads in a row.
const PATIENCE: u32 = 64;

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::of(SIZES[0])
    }
}

impl ReadBuffer {
    fn of(size: usize) -> Self {
        Self {
            bytes: vec![0; size],
            filled: false,
            small: 0,
        }
    }

    /// To read into. What was read before is gone.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let [least, most] = SIZES;
        let size = self.bytes.len();
        let wanted = match () {
            () if self.filled => (size * 4).min(most),
            () if self.small >= PATIENCE => (size / 2).max(least),
            () => size,
        };
        if wanted != size {
            *self = Self::of(wanted);
        }
        &mut self.bytes
    }

    /// What has been read: so many bytes.
    pub(super) fn received(&mut self, length: usize) -> &[u8] {
        let size = self.bytes.len();
        self.filled = length == size;
        self.small = if length < size / 4 {
            self.small.saturating_add(1)
        } else {
            0
        };
        &self.bytes[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_after(buffer: &mut ReadBuffer, length: usize) -> usize {
        let length = length.min(buffer.room().len());
        assert_eq!(buffer.received(length).len(), length);
        buffer.room().len()
    }

    #[test]
    fn buffer_grows_on_full_reads_shrinks_after_small_reads() {
        let mut buffer = ReadBuffer::default();
        let sizes: Vec<usize> = (0..4)
            .map(|_| size_after(&mut buffer, usize::MAX))
            .collect();
        assert_eq!(sizes, [16 << 10, 64 << 10, 128 << 10, 128 << 10]);
        let small: Vec<usize> = (0..6 * PATIENCE)
            .map(|_| size_after(&mut buffer, 100))
            .collect();
        assert_eq!(small.first(), Some(&(128 << 10)));
        assert_eq!(small.last(), Some(&(4 << 10)));
        assert!(small.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn one_large_read_among_small_ones_keeps_it() {
        let mut buffer = ReadBuffer::default();
        while size_after(&mut buffer, usize::MAX) < SIZES[1] {}
        for _ in 0..10 {
            (1..PATIENCE).for_each(|_| assert_eq!(size_after(&mut buffer, 1), SIZES[1]));
            assert_eq!(size_after(&mut buffer, SIZES[1] / 2), SIZES[1]);
        }
    }
}
