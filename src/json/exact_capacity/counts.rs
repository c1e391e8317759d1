use std::cell::{Cell, RefCell};

use crate::json::block::{BLOCK, in_order, lanes};

/// Nesting, and arrays, beyond which elements are not counted: nothing but brackets must not become many times as
/// much memory.
const MAX_DEPTH: usize = 128;
const MAX_ARRAYS: usize = 1 << 16;

/// How many elements the arrays of a JSON value have. An array is counted when its number is requested, together
/// with the arrays in it. Numbers must be requested in the order of the arrays.
pub(super) struct Counts<'a> {
    json: &'a [u8],
    /// Where the key ends that was read last, if the next value is its own.
    key_end: Cell<Option<usize>>,
    counted: RefCell<Counted>,
}

#[derive(Default)]
struct Counted {
    /// In the order in which they begin.
    arrays: Vec<Array>,
    /// The first array that may still be requested.
    next: usize,
    /// Everything before this position has been counted.
    until: usize,
    /// Scratch: the open brackets from the outermost inwards, with the index of the array, or `None` for a brace.
    open: Vec<Option<usize>>,
}

struct Array {
    start: usize,
    /// How many elements are strings, arrays or objects.
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

    /// Remembers where a string ends that may be a key, if it is part of the JSON.
    #[inline]
    pub(super) fn saw_string(&self, string: &str) {
        let start = string
            .as_ptr()
            .addr()
            .checked_sub(self.json.as_ptr().addr());
        let end = start.map(|start| start + string.len() + "\"".len());
        self.key_end.set(end.filter(|end| *end <= self.json.len()));
    }

    /// The next value has no key.
    #[inline]
    pub(super) fn forget_key(&self) {
        self.key_end.set(None);
    }

    /// Returns how many elements the array has whose key has just been read: fewer than there are if some are neither
    /// strings, arrays nor objects, and `None` if all are.
    pub(super) fn array_behind_key(&self) -> Option<usize> {
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
        // Arrays before this one will not be requested any more.
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
    /// Counts the array that begins here and those in it. Returns where it stops, which is mostly the array's end.
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
