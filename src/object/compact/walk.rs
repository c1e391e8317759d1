//! Finds places in JSON text that has been validated before: it looks at brackets and strings and at nothing
//! else, builds nothing, and takes no stack however deep the text goes. Of text that is not valid it makes
//! something, and does not panic.

use std::borrow::Cow;
use std::ops::Range;

use crate::scan::Scanner;

/// Goes through the members of one object or array after the other, as places in the whole text.
pub(super) struct Walk<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// From the value on that begins here.
    pub(super) fn from(json: &'a str, at: usize) -> Self {
        Self {
            json: json.as_bytes(),
            at,
        }
    }

    /// Where it is: at the beginning of a value that has not been read, or behind one that has.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Goes into the object or array that begins here, if it begins with this bracket.
    pub(super) fn enter(&mut self, bracket: u8) -> bool {
        let is_it = self.json.get(self.at) == Some(&bracket);
        self.at += usize::from(is_it);
        is_it
    }

    /// The next key of the object that it is in, as it is written between its quotes. Its value is to be
    /// read, or entered, next. Without one it goes on behind the object.
    pub(super) fn key(&mut self) -> Option<Range<usize>> {
        self.pass_over(b",");
        let Some(end) = self.string() else {
            self.at += 1;
            return None;
        };
        let key = self.at + 1..end - 1;
        self.at = end;
        self.pass_over(b":");
        Some(key)
    }

    /// The next key and its value.
    pub(super) fn entry(&mut self) -> Option<(Range<usize>, Range<usize>)> {
        Some((self.key()?, self.value()?))
    }

    /// The next element of the array that it is in.
    pub(super) fn element(&mut self) -> Option<Range<usize>> {
        self.pass_over(b",");
        if self.json.get(self.at) == Some(&b']') {
            None
        } else {
            self.value()
        }
    }

    /// Goes on behind white space and these.
    fn pass_over(&mut self, also: &[u8]) {
        while self
            .json
            .get(self.at)
            .is_some_and(|byte| b" \t\r\n".contains(byte) || also.contains(byte))
        {
            self.at += 1;
        }
    }

    /// The value that begins here.
    pub(super) fn value(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.at = match self.json.get(start)? {
            b'"' => self.string()?,
            b'{' | b'[' => self.nested()?,
            _ => {
                let is_end = |byte: &u8| b",]} \t\r\n".contains(byte);
                let rest = &self.json[start..];
                start + rest.iter().position(is_end).unwrap_or(rest.len())
            }
        };
        Some(start..self.at)
    }

    /// Where the string ends that begins here.
    fn string(&self) -> Option<usize> {
        if self.json.get(self.at) == Some(&b'"') {
            string_end(self.json, self.at)
        } else {
            None
        }
    }

    /// Where the object or array ends that begins here.
    fn nested(&self) -> Option<usize> {
        Scanner::default()
            .end(self.json.get(self.at..)?)
            .map(|length| self.at + length)
    }
}

/// Where a string ends whose first quote stands here.
fn string_end(json: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    loop {
        at = quote_or_backslash(json, at)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Where the next one of them stands. Most strings are too short for memchr to be worth its call: of eight
/// bytes at once, those that are one of them have become zero, and those get their highest bit.
#[inline]
fn quote_or_backslash(json: &[u8], mut at: usize) -> Option<usize> {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let zeros = |word: u64| word.wrapping_sub(EACH) & !word & (EACH << 7);
    while let Some(eight) = json.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*eight);
        let found =
            zeros(word ^ (EACH * u64::from(b'"'))) | zeros(word ^ (EACH * u64::from(b'\\')));
        if found != 0 {
            // The lowest is exact.
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = json.get(at..)?;
    rest.iter()
        .position(|byte| matches!(byte, b'"' | b'\\'))
        .map(|after| at + after)
}

/// Whether a key that is written like this is that one.
pub(super) fn is_key(written: &str, key: &str) -> bool {
    if !written.contains('\\') {
        return written == key;
    }
    serde_json::from_str::<String>(&format!("\"{written}\"")).is_ok_and(|meant| meant == key)
}

/// The value at a JSON pointer (RFC 6901), as it is written. Of a key that is there twice it is the last one
/// that counts, as for a tree.
pub(super) fn find<'a>(json: &'a str, pointer: &str) -> Option<&'a str> {
    let mut value = 0..json.len();
    // The empty pointer is the whole.
    for token in pointer.split('/').skip(1) {
        let token = match token.contains('~') {
            true => Cow::from(token.replace("~1", "/").replace("~0", "~")),
            false => Cow::from(token),
        };
        let mut walk = Walk::from(json, value.start);
        value = if walk.enter(b'{') {
            let entries = std::iter::from_fn(|| walk.entry());
            entries
                .filter(|(key, _)| is_key(&json[key.clone()], &token))
                .last()?
                .1
        } else if walk.enter(b'[') {
            // Neither "+1" nor "01" is an index.
            let index = token
                .parse()
                .ok()
                .filter(|index: &usize| index.to_string() == *token)?;
            std::iter::from_fn(|| walk.element()).nth(index)?
        } else {
            return None;
        };
    }
    if pointer.is_empty() || pointer.starts_with('/') {
        json.get(value)
    } else {
        None
    }
}
