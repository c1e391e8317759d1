#[cfg(test)]
mod tests;

use super::block::{BLOCK, Block, escaped, in_order, lanes, toggled};

/// Finds the end of a JSON object or array in bytes that arrive in chunks.
///
/// It only counts brackets outside strings; decoding shows whether the value is valid. It processes
/// 64 bytes at once, which takes a fifth of the instructions of a loop over bytes: 20,000 instead
/// of 95,000 for a Pod of 6 kB.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    depth: usize,
    deepest: usize,
    in_string: bool,
    /// Whether the next byte is escaped inside a string.
    escaped: bool,
}

impl Scanner {
    /// Creates a scanner for a value whose opening bracket has already been read.
    pub(crate) fn inside() -> Self {
        Self {
            depth: 1,
            ..Self::default()
        }
    }

    /// Returns the number of open braces and brackets.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns an upper bound of the greatest [`depth`](Self::depth) so far. It assumes that a
    /// block opens all its brackets before it closes any.
    pub(crate) fn deepest(&self) -> usize {
        self.deepest
    }

    pub(crate) fn is_in_string(&self) -> bool {
        self.in_string
    }

    /// Returns the number of bytes that belong to the value, or `None` if the value does not end in
    /// `bytes`. Bytes before the opening bracket count as well.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            if let Some(end) = self.end_in_block(block) {
                return Some(number * BLOCK + end);
            }
        }
        self.end_by_byte(rest).map(|end| blocks.len() * BLOCK + end)
    }

    fn end_in_block(&mut self, block: &Block) -> Option<usize> {
        let backslashes = lanes(block, |byte| byte == b'\\');
        let (escaped, ends_escaped) = escaped(backslashes, self.escaped);
        let quotes = lanes(block, |byte| byte == b'"') & !escaped;
        let (strings, in_string) = toggled(quotes, self.in_string);
        // Valid JSON has backslashes only in strings. Elsewhere a backslash escapes nothing, and
        // only `step` handles that.
        if backslashes & !strings != 0 {
            return self.end_by_byte(block);
        }
        self.escaped = ends_escaped;
        self.in_string = in_string;
        // The bit 0x20 turns a bracket into a brace.
        let opening = lanes(block, |byte| byte | 0x20 == b'{') & !strings;
        let closing = lanes(block, |byte| byte | 0x20 == b'}') & !strings;
        let closed = closing.count_ones() as usize;
        let most = self.depth + opening.count_ones() as usize;
        self.deepest = self.deepest.max(most);
        if closed < self.depth {
            self.depth = most - closed;
            return None;
        }
        self.close(in_order(opening), in_order(closing))
    }

    /// Returns the position after the bracket that ends the value, if the block contains it.
    fn close(&mut self, opening: u64, closing: u64) -> Option<usize> {
        let mut brackets = opening | closing;
        while brackets != 0 {
            let at = brackets.trailing_zeros();
            brackets &= brackets - 1;
            if opening >> at & 1 == 1 {
                self.depth += 1;
            } else {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    *self = Self {
                        deepest: self.deepest,
                        ..Self::default()
                    };
                    return Some(at as usize + 1);
                }
            }
        }
        None
    }

    fn end_by_byte(&mut self, bytes: &[u8]) -> Option<usize> {
        let end = bytes.iter().position(|byte| self.step(*byte));
        end.map(|at| at + 1)
    }

    /// Reads one byte. Returns whether the value ends with it.
    #[inline]
    pub(crate) fn step(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => {
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// Returns the number of bytes that belong to an array element that is neither an object nor an
    /// array. The element ends before the next comma or closing bracket. Returns `None` if `bytes`
    /// contains neither.
    pub(crate) fn scalar_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let is_end = |byte: &u8| {
            let is_end = !self.in_string && matches!(byte, b',' | b']');
            if !is_end {
                self.step(*byte);
            }
            is_end
        };
        let end = bytes.iter().position(is_end)?;
        // Brackets inside a malformed scalar must not affect the next value.
        *self = Self::default();
        Some(end)
    }
}

/// Whether the object or array at the start of these bytes ends with them.
pub(crate) fn is_one_value(bytes: &[u8]) -> bool {
    Scanner::default().end(bytes) == Some(bytes.len())
}
