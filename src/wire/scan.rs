use memchr::memchr2;

/// Finds where a JSON value ends that begins with a brace or a bracket, in bytes that come bit by bit.
///
/// It counts brackets and knows strings, and nothing else: whether the value is valid shows when it is
/// decoded.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// How many braces and brackets are open.
    depth: usize,
    /// Inside of a string, and whether its next byte is escaped.
    string: Option<Escaped>,
}

type Escaped = bool;

impl Scanner {
    /// For a value of which the first bracket has been seen already.
    pub(super) fn inside() -> Self {
        Self { depth: 1, string: None }
    }

    /// Whether a value has begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        self.depth > 0
    }

    /// How many of these bytes belong to the value, if its end is among them. Bytes before its beginning
    /// belong to it.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.string {
                Some(true) => {
                    self.string = Some(false);
                    at += 1;
                }
                Some(false) => {
                    at += memchr2(b'"', b'\\', &bytes[at..])?;
                    self.string = (bytes[at] == b'\\').then_some(true);
                    at += 1;
                }
                None => {
                    match bytes[at] {
                        b'"' => self.string = Some(false),
                        b'{' | b'[' => self.depth += 1,
                        b'}' | b']' => {
                            self.depth = self.depth.saturating_sub(1);
                            if self.depth == 0 {
                                return Some(at + 1);
                            }
                        }
                        _ => {}
                    }
                    at += 1;
                }
            }
        }
        None
    }

    /// How many of these bytes belong to a value that begins with neither brace nor bracket and stands in an
    /// array: all up to the comma or bracket that follows, if that is among them.
    pub(super) fn scalar_end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            match (self.string, byte) {
                (Some(true), _) => self.string = Some(false),
                (Some(false), b'\\') => self.string = Some(true),
                (Some(false), b'"') => self.string = None,
                (None, b'"') => self.string = Some(false),
                (None, b',' | b']') => return Some(at),
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

/// How deep arrays and objects are nested in a JSON value.
pub(super) fn nesting(value: &[u8]) -> usize {
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
