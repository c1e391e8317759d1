use std::cell::RefCell;

use crate::scan;

/// How many elements the arrays of a JSON value have. They are counted when they are asked for, each array
/// together with those in it, and are to be asked for in the order in which they stand.
pub(super) struct Counts<'a> {
    json: &'a [u8],
    counted: RefCell<Counted>,
}

#[derive(Default)]
struct Counted {
    /// Where they begin and how many elements they have, in order.
    arrays: Vec<scan::Array>,
    /// The first of them that may still be asked for.
    next: usize,
    /// Up to where they are counted.
    until: usize,
    /// Room to count in.
    open: Vec<Option<usize>>,
}

impl<'a> Counts<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        Self {
            json,
            counted: RefCell::default(),
        }
    }

    /// Where this key ends, if it stands in the bytes.
    pub(super) fn end_of(&self, key: &str) -> Option<usize> {
        let start = key.as_ptr().addr().checked_sub(self.json.as_ptr().addr())?;
        // Behind its quote.
        Some(start + key.len() + 1).filter(|end| *end <= self.json.len())
    }

    /// How many elements the array has that is the value of the key that ends here: never more than there
    /// are, fewer where some of them are not strings, arrays or objects, and `None` if none of them is.
    pub(super) fn array_behind(&self, key_end: usize) -> Option<usize> {
        let value = self
            .json
            .get(key_end..)?
            .trim_ascii_start()
            .strip_prefix(b":")?
            .trim_ascii_start();
        let start = self.json.len() - value.len();
        if value.first() != Some(&b'[') {
            return None;
        }
        let mut counted = self.counted.borrow_mut();
        let Counted {
            arrays,
            next,
            until,
            open,
        } = &mut *counted;
        if start >= *until {
            arrays.clear();
            *next = 0;
            *until = scan::count(self.json, start, arrays, open);
        }
        let rest = &arrays[*next..];
        // Those before it won't be asked for any more, also if there are none behind them.
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
