use memchr::{memchr2, memmem};

/// Finds where a JSON value ends that begins with a brace or a bracket, in bytes that come bit by bit.
///
/// It counts brackets and knows strings, and nothing else: whether the value is valid shows when it is
/// decoded.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// How many braces and brackets are open.
    depth: usize,
    in_string: bool,
    /// Whether the next byte is one of a string and escaped.
    escaped: bool,
}

impl Scanner {
    /// For a value of which the first bracket has been seen already.
    pub(crate) fn inside() -> Self {
        Self { depth: 1, ..Self::default() }
    }

    /// Whether a value has begun and not ended.
    pub(crate) fn is_inside(&self) -> bool {
        self.depth > 0
    }

    /// How many of these bytes belong to the value, if its end is among them. Bytes before its beginning
    /// belong to it.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        // Where the byte is that a backslash escapes.
        let mut escaped = if self.escaped { 0 } else { usize::MAX };
        for (number, block) in blocks.iter().enumerate() {
            if let Some(end) = self.end_in(block, number * BLOCK, &mut escaped) {
                return Some(end);
            }
        }
        let mut last = [b' '; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let end = self.end_in(&last, blocks.len() * BLOCK, &mut escaped);
        self.escaped = escaped == bytes.len();
        end
    }

    /// Where the value ends, if in this block, which is the one that begins at `start`.
    fn end_in(&mut self, block: &[u8; BLOCK], start: usize, escaped: &mut usize) -> Option<usize> {
        let mut marks = marks(block);
        while marks != 0 {
            let place = marks.trailing_zeros() as usize;
            marks &= marks - 1;
            let at = start + place;
            match block[place] {
                _ if at == *escaped => {}
                b'"' => self.in_string = !self.in_string,
                b'\\' if self.in_string => *escaped = at + 1,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.escaped = false;
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// How many of these bytes belong to a value that begins with neither brace nor bracket and stands in an
    /// array: all up to the comma or bracket that follows, if that is among them.
    pub(crate) fn scalar_end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b',' | b']' if !self.in_string => return Some(at),
                _ => {}
            }
        }
        None
    }
}

/// How many bytes are looked at together.
const BLOCK: usize = 64;

/// A bit for each quote, backslash, brace and bracket. Most bytes are none of them, and the compiler compares
/// many at once; so this is twice as fast as a look at one byte after the other.
fn marks(block: &[u8; BLOCK]) -> u64 {
    let is_mark = |byte: u8| {
        // Braces are brackets with this bit.
        let brace = byte | 0x20;
        (byte == b'"') | (byte == b'\\') | (brace == b'{') | (brace == b'}')
    };
    let flags = block.map(|byte| u8::from(is_mark(byte)));
    let (words, _) = flags.as_chunks::<8>();
    let mut marks = 0;
    for (number, word) in words.iter().enumerate() {
        // Moves the lowest bit of each byte into the highest byte, in order.
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        marks |= bits << (8 * number);
    }
    marks
}

/// Whether these bytes end where the object or array with which they begin is closed.
pub(crate) fn is_one_value(bytes: &[u8]) -> bool {
    Scanner::default().end(bytes) == Some(bytes.len())
}

/// Whether something may stand behind the object with which these bytes begin that would make another frame,
/// which has a key `object`.
pub(crate) fn may_be_several(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\"object\"").is_some() && !is_one_value(bytes)
}

/// An array of which the elements have been counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) start: usize,
    /// Those that are strings, arrays and objects.
    pub(crate) elements: usize,
}

/// How deep, and how many arrays, are looked at to count elements: bytes that are all brackets must not
/// become many times as much memory.
const DEEPEST: usize = 128;
const MOST: usize = 1 << 16;

/// Counts the elements of the array that begins here and of those that are in it, in the order in which they
/// begin. Answers up to where: mostly where that one ends. `open` is room for which array each open bracket
/// is, from the outermost inwards; of a brace, none.
pub(crate) fn count(
    bytes: &[u8],
    start: usize,
    arrays: &mut Vec<Array>,
    open: &mut Vec<Option<usize>>,
) -> usize {
    open.clear();
    let (mut in_string, mut escaped) = (false, usize::MAX);
    let (blocks, rest) = bytes[start..].as_chunks::<BLOCK>();
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    for (number, block) in blocks.iter().chain([&last]).enumerate() {
        let mut marks = marks(block);
        while marks != 0 {
            let place = marks.trailing_zeros() as usize;
            marks &= marks - 1;
            let at = start + number * BLOCK + place;
            match block[place] {
                _ if at == escaped => {}
                b'"' if in_string => in_string = false,
                b'\\' if in_string => escaped = at + 1,
                b'\\' => {}
                _ if in_string => {}
                b'}' | b']' => {
                    open.pop();
                    if open.is_empty() {
                        return at + 1;
                    }
                }
                begins => {
                    if let Some(Some(array)) = open.last() {
                        arrays[*array].elements += 1;
                    }
                    match begins {
                        b'"' => in_string = true,
                        _ if open.len() == DEEPEST => return bytes.len(),
                        b'[' if arrays.len() < MOST => {
                            open.push(Some(arrays.len()));
                            arrays.push(Array { start: at, elements: 0 });
                        }
                        _ => open.push(None),
                    }
                }
            }
        }
    }
    bytes.len()
}

/// How deep arrays and objects are nested in a JSON value.
pub(crate) fn nesting(value: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(after),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// What follows a string of which the first quote has been read.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}
