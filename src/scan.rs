mod block;
#[cfg(test)]
mod tests;

use memchr::{memchr2, memmem};

use self::block::{BLOCK, Block, escaped, in_order, lanes, toggled};

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
        Self {
            depth: 1,
            ..Self::default()
        }
    }

    /// Whether a value has begun and not ended.
    pub(crate) fn is_inside(&self) -> bool {
        self.depth > 0
    }

    /// How many of these bytes belong to the value, if its end is among them. Bytes before its beginning
    /// belong to it.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            if let Some(end) = self.end_in(block) {
                return Some(number * BLOCK + end);
            }
        }
        self.slowly(rest).map(|end| blocks.len() * BLOCK + end)
    }

    /// Where the value ends, if in this block.
    fn end_in(&mut self, block: &Block) -> Option<usize> {
        let backslashes = lanes(block, |byte| byte == b'\\');
        let (escaped, ends_escaped) = escaped(backslashes, self.escaped);
        let quotes = lanes(block, |byte| byte == b'"') & !escaped;
        let (strings, in_string) = toggled(quotes, self.in_string);
        // They escape only in strings, and are nowhere else in JSON.
        if backslashes & !strings != 0 {
            return self.slowly(block);
        }
        self.escaped = ends_escaped;
        self.in_string = in_string;
        // Braces are brackets with this bit.
        let opening = lanes(block, |byte| byte | 0x20 == b'{') & !strings;
        let closing = lanes(block, |byte| byte | 0x20 == b'}') & !strings;
        let closed = closing.count_ones() as usize;
        if closed < self.depth {
            self.depth = self.depth + opening.count_ones() as usize - closed;
            return None;
        }
        self.close(in_order(opening), in_order(closing))
    }

    /// Where the value ends, if at one of these brackets.
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
                    *self = Self::default();
                    return Some(at as usize + 1);
                }
            }
        }
        None
    }

    /// Where the value ends, if in these bytes.
    fn slowly(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
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

fn is_mark(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte | 0x20 == b'{') | (byte | 0x20 == b'}')
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
    let mut tail = [b' '; BLOCK];
    tail[..rest.len()].copy_from_slice(rest);
    for (number, block) in blocks.iter().chain([&tail]).enumerate() {
        let mut marks = in_order(lanes(block, is_mark));
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
                            arrays.push(Array {
                                start: at,
                                elements: 0,
                            });
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
