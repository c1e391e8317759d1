use std::cell::{Cell, RefCell};

use crate::json::block::{BLOCK, in_order, lanes};

/// The maximum nesting and number of arrays that are counted. The limits keep input that consists
/// of brackets from using many times its size in memory.
const MAX_DEPTH: usize = 128;
const MAX_ARRAYS: usize = 1 << 16;

/// Counts the elements of the arrays in a JSON value. An array is counted when its count is
/// requested, together with the arrays in it. Counts must be requested in the order of the arrays.
pub(super) struct Counts<'a> {
    json: &'a [u8],
    /// The position after the last key that was read, if the next value belongs to this key.
    key_end: Cell<Option<usize>>,
    counted: RefCell<Counted>,
}

#[derive(Default)]
struct Counted {
    /// Sorted by position.
    arrays: Vec<Array>,
    /// The index of the first array that may still be requested.
    next: usize,
    /// The position up to which everything has been counted.
    until: usize,
    /// Scratch: the open brackets, outermost first. The bracket of an array is the index of the
    /// array, the brace of an object is `None`.
    open: Vec<Option<usize>>,
}

struct Array {
    start: usize,
    /// The number of elements that are strings, arrays or objects.
    elements: usize,
}

impl<'a> Counts<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        Self {
            json,
            key_end: Cell::new(None),
            counted: RefCell::default(),
        }
    }

    /// Stores the position after a string that may be a key. Ignores strings that are not part of
    /// the JSON.
    #[inline]
    pub(super) fn record_string(&self, string: &str) {
        let start = string
            .as_ptr()
            .addr()
            .checked_sub(self.json.as_ptr().addr());
        let end = start.map(|start| start + string.len() + "\"".len());
        self.key_end.set(end.filter(|end| *end <= self.json.len()));
    }

    /// Forgets the last key. Call this when the next value has no key.
    #[inline]
    pub(super) fn forget_key(&self) {
        self.key_end.set(None);
    }

    /// Returns the number of elements of the array whose key was read last. Only strings, arrays
    /// and objects count; if there are none, returns `None`.
    pub(super) fn array_len_after_key(&self) -> Option<usize> {
        let value = self
            .json
            .get(self.key_end.get()?..)?
            .trim_ascii_start()
            .strip_prefix(b":")?
            .trim_ascii_start();
        let start = self.json.len() - value.len();
        if value.first() != Some(&b'[') {
            return None;
        }
        let mut counted = self.counted.borrow_mut();
        if start >= counted.until {
            counted.next = 0;
            counted.until = counted.count(self.json, start);
        }
        let Counted { arrays, next, .. } = &mut *counted;
        let rest = &arrays[*next..];
        // Skip the arrays before `start`, which will not be requested any more.
        *next += rest
            .iter()
            .position(|array| array.start >= start)
            .unwrap_or(rest.len());
        let array = arrays
            .get(*next)
            .filter(|array| array.start == start && array.elements > 0)?;
        Some(array.elements)
    }
}

impl Counted {
    /// Counts the array at `start` and the arrays in it. Returns the position where it stops,
    /// usually the end of the array.
    fn count(&mut self, json: &[u8], start: usize) -> usize {
        let Self { arrays, open, .. } = self;
        arrays.clear();
        open.clear();
        let (mut in_string, mut escaped) = (false, usize::MAX);
        let (blocks, rest) = json[start..].as_chunks::<BLOCK>();
        let mut tail = [b' '; BLOCK];
        tail[..rest.len()].copy_from_slice(rest);
        for (number, block) in blocks.iter().chain([&tail]).enumerate() {
            let mut marks = in_order(lanes(block, is_mark));
            while marks != 0 {
                let lane = marks.trailing_zeros() as usize;
                marks &= marks - 1;
                let at = start + number * BLOCK + lane;
                match block[lane] {
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
                            _ if open.len() == MAX_DEPTH => return json.len(),
                            b'[' if arrays.len() < MAX_ARRAYS => {
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
        json.len()
    }
}

fn is_mark(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte | 0x20 == b'{') | (byte | 0x20 == b'}')
}
