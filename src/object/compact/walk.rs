//! Finds places in JSON text that has been validated before: it looks at brackets and strings and at nothing
//! else, builds nothing, and takes no stack however deep the text goes. Of text that is not valid it makes
//! something, and does not panic.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

/// Goes through the members of one object or array, as places in the whole text.
pub(super) struct Walk<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Through the value whose first bracket stands here.
    pub(super) fn inside(json: &'a str, at: usize) -> Self {
        Self { json: json.as_bytes(), at: at + 1 }
    }

    /// The next key of an object, as it is written between its quotes, and its value.
    pub(super) fn entry(&mut self) -> Option<(Range<usize>, Range<usize>)> {
        self.pass_over(b",");
        let key = self.at + 1..self.string()?.checked_sub(1)?;
        self.at = key.end + 1;
        self.pass_over(b":");
        Some((key, self.value()?))
    }

    /// The next element of an array.
    pub(super) fn element(&mut self) -> Option<Range<usize>> {
        self.pass_over(b",");
        if self.json.get(self.at) == Some(&b']') { None } else { self.value() }
    }

    /// Goes on behind white space and these.
    fn pass_over(&mut self, also: &[u8]) {
        while self.json.get(self.at).is_some_and(|byte| b" \t\r\n".contains(byte) || also.contains(byte)) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Range<usize>> {
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
        if self.json.get(self.at) == Some(&b'"') { string_end(self.json, self.at) } else { None }
    }

    /// Where the object or array ends that begins here.
    fn nested(&self) -> Option<usize> {
        let (mut at, mut depth) = (self.at, 0_usize);
        loop {
            match self.json.get(at)? {
                b'"' => {
                    at = string_end(self.json, at)?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Where a string ends whose first quote stands here.
fn string_end(json: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
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
        let mut walk = Walk::inside(json, value.start);
        value = match json.as_bytes().get(value.start)? {
            b'{' => {
                let entries = std::iter::from_fn(|| walk.entry());
                entries.filter(|(key, _)| is_key(&json[key.clone()], &token)).last()?.1
            }
            b'[' => {
                // Neither "+1" nor "01" is an index.
                let index = token.parse().ok().filter(|index: &usize| index.to_string() == *token)?;
                std::iter::from_fn(|| walk.element()).nth(index)?
            }
            _ => return None,
        };
    }
    if pointer.is_empty() || pointer.starts_with('/') { json.get(value) } else { None }
}
