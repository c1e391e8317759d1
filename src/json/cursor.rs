use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use serde::de::IgnoredAny;

use super::scanner::Scanner;

/// Walks through one complete JSON value without building anything.
///
/// A cursor is positioned at a value or after one. [`enter`](Self::enter) moves into an object or
/// array. [`key`](Self::key) and [`element`](Self::element) move to its next value, which you then
/// read or enter. All positions count from the start of the bytes.
///
/// Every method returns `None` for bytes that it cannot parse. Do not use the cursor after that.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether the next member is the first of an object or array. It has no comma before it.
    is_first: bool,
    deepest: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the value at the start of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut cursor = Self {
            bytes,
            at: 0,
            is_first: false,
            deepest: 0,
        };
        cursor.skip_white_space();
        cursor
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Returns an upper bound of the nesting of the values that [`value`](Self::value) has passed.
    pub(crate) fn deepest(&self) -> usize {
        self.deepest
    }

    /// Enters the current value if it starts with this bracket. Returns whether it does.
    pub(crate) fn enter(&mut self, bracket: u8) -> bool {
        let begins = self.peek() == Some(bracket);
        if begins {
            self.at += 1;
            self.is_first = true;
        }
        begins
    }

    /// Moves to the next value of the object and returns its key. At the end, leaves the object and
    /// returns `Some(None)`.
    pub(crate) fn key(&mut self) -> Option<Option<Text<'a>>> {
        if !self.next_member(b'}')? {
            return Some(None);
        }
        let key = self.string()?;
        self.skip_white_space();
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        self.skip_white_space();
        Some(Some(key))
    }

    /// Moves to the next value of the array and returns true. At the end, leaves the array and
    /// returns false.
    pub(crate) fn element(&mut self) -> Option<bool> {
        self.next_member(b']')
    }

    /// Moves past the end of the object or array that was entered last.
    pub(crate) fn leave(&mut self) -> Option<()> {
        self.is_first = false;
        self.at += Scanner::inside().end(&self.bytes[self.at..])?;
        Some(())
    }

    /// Moves past the current value and returns its range. Nested values are only checked for the
    /// ends of their brackets and strings.
    pub(crate) fn value(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        match self.peek()? {
            b'"' => self.at = string_end(self.bytes, start)?.0,
            b'{' | b'[' => {
                let mut scanner = Scanner::default();
                self.at += scanner.end(&self.bytes[start..])?;
                self.deepest = self.deepest.max(scanner.deepest());
            }
            _ => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                while self.bytes.get(self.at).is_some_and(is_part) {
                    self.at += 1;
                }
            }
        }
        (self.at > start).then_some(start..self.at)
    }

    /// Moves past the current string and returns it.
    fn string(&mut self) -> Option<Text<'a>> {
        let start = self.at;
        if self.peek()? != b'"' {
            return None;
        }
        let (end, has_escapes) = string_end(self.bytes, start)?;
        self.at = end;
        Some(Text {
            start,
            quoted: &self.bytes[start..end],
            has_escapes,
        })
    }

    /// Moves past the current value. Returns the text of a string, an empty text for `null`, and
    /// `Some(None)` for any other valid value.
    pub(crate) fn string_or_null(&mut self) -> Option<Option<Cow<'a, str>>> {
        if self.peek()? == b'"' {
            return self.string()?.unescaped().map(Some);
        }
        let value = self.value()?;
        let value = &self.bytes[value];
        serde_json::from_slice::<IgnoredAny>(value).ok()?;
        Some((value == b"null").then_some(Cow::Borrowed("")))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next_member(&mut self, close: u8) -> Option<bool> {
        let is_first = std::mem::take(&mut self.is_first);
        self.skip_white_space();
        let byte = self.peek()?;
        if byte == close {
            self.at += 1;
            return Some(false);
        }
        if !is_first {
            if byte != b',' {
                return None;
            }
            self.at += 1;
            self.skip_white_space();
        }
        Some(true)
    }

    fn skip_white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }
}

/// A JSON string in its original notation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    /// The position of the opening quote.
    pub(crate) start: usize,
    pub(crate) quoted: &'a [u8],
    has_escapes: bool,
}

impl<'a> Text<'a> {
    /// Returns the bytes between the quotes, or `None` if they contain escapes.
    pub(crate) fn verbatim(self) -> Option<&'a [u8]> {
        (!self.has_escapes).then(|| &self.quoted[1..self.quoted.len() - 1])
    }

    /// Returns the decoded text, or `None` if the string is invalid.
    pub(crate) fn unescaped(self) -> Option<Cow<'a, str>> {
        match self.verbatim() {
            Some(text) if !text.iter().any(u8::is_ascii_control) => {
                std::str::from_utf8(text).ok().map(Cow::Borrowed)
            }
            _ => serde_json::from_slice(self.quoted).ok().map(Cow::Owned),
        }
    }

    /// Returns the decoded text as bytes. Without escapes, they are not checked for valid UTF-8.
    /// This is faster for keys that are only compared.
    pub(crate) fn bytes(self) -> Option<Cow<'a, [u8]>> {
        match self.verbatim() {
            Some(bytes) => Some(Cow::Borrowed(bytes)),
            None => Some(Cow::Owned(self.unescaped()?.into_owned().into_bytes())),
        }
    }

    /// Whether the decoded text is equal to `text`.
    pub(crate) fn is(self, text: &str) -> bool {
        self.bytes().is_some_and(|bytes| *bytes == *text.as_bytes())
    }
}

/// Returns how deeply arrays and objects are nested in a JSON value.
pub(crate) fn nesting(value: &[u8]) -> usize {
    let mut scanner = Scanner::default();
    for byte in value {
        scanner.step(*byte);
    }
    scanner.deepest()
}

/// Returns the position after the string that starts at `quote`, and whether the string has
/// escapes.
fn string_end(json: &[u8], quote: usize) -> Option<(usize, bool)> {
    let (mut at, mut has_escapes) = (quote + 1, false);
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some((at + 1, has_escapes));
        }
        has_escapes = true;
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_and_escape_match_serde_json() {
        for length in 0..80 {
            for escape in 0..=length {
                for inserted in ["", "\\\"", "\\\\", "\\u0041", "é"] {
                    let text = format!(
                        "{}{inserted}{}",
                        "a".repeat(escape),
                        "b".repeat(length - escape)
                    );
                    let json = format!("{{ \"{text}\" : [\"{text}\"] }}");
                    let mut cursor = Cursor::new(json.as_bytes());
                    assert!(cursor.enter(b'{'));
                    let key = cursor.key().flatten().unwrap();
                    let expected: String = serde_json::from_str(&format!("\"{text}\"")).unwrap();
                    assert_eq!(key.unescaped().unwrap(), expected);
                    assert!(key.is(&expected) && !key.is("c"));
                    assert_eq!(key.verbatim().is_none(), inserted.contains('\\'));
                    assert!(cursor.enter(b'['));
                    assert_eq!(cursor.element(), Some(true));
                    assert_eq!(cursor.string_or_null(), Some(Some(expected.into())));
                    assert_eq!(cursor.element(), Some(false));
                    assert!(cursor.key().is_some_and(|key| key.is_none()));
                }
            }
        }
    }

    #[test]
    fn malformed_members_return_none() {
        let walk = |json: &str| -> Option<()> {
            let mut cursor = Cursor::new(json.as_bytes());
            assert!(cursor.enter(b'{'));
            while cursor.key()?.is_some() {
                cursor.value()?;
            }
            Some(())
        };
        for json in [r#"{"a":1,"b":[{"c":"}"}]}"#, "{}", " {\n} "] {
            assert_eq!(walk(json), Some(()), "{json}");
        }
        for json in [
            "{",
            r#"{"a"}"#,
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            r#"{,"a":1}"#,
            r#"{"a":1 2}"#,
            r#"{"a":]}"#,
            r#"{"a":[}"#,
        ] {
            assert_eq!(walk(json), None, "{json}");
        }
    }
}
