use std::borrow::Cow;

use super::cursor::Cursor;

/// A JSON pointer to fields of objects. The step `*` matches every key or element.
pub(crate) type Path = Vec<Step<'static>>;

/// One step of a JSON pointer (RFC 6901).
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// The key, if the value is an object.
    pub(crate) key: Cow<'a, str>,
    /// The index, if the value is an array and the step is a number.
    pub(crate) index: Option<usize>,
}

impl<'a> Step<'a> {
    /// Parses the part of a pointer between two slashes.
    pub(crate) fn new(token: impl Into<Cow<'a, str>>) -> Self {
        let mut key = token.into();
        if key.contains('~') {
            key = Cow::Owned(key.replace("~1", "/").replace("~0", "~"));
        }
        // "+1" and "01" are not valid indexes.
        let is_index = key.bytes().all(|byte| byte.is_ascii_digit())
            && (!key.starts_with('0') || key.len() == 1);
        Self {
            index: key.parse().ok().filter(|_| is_index),
            key,
        }
    }

    /// Whether this step of a field path is `*`, which matches every key and element.
    pub(crate) fn is_any(&self) -> bool {
        self.key == "*"
    }
}

/// Returns the value at a JSON pointer in its original notation. `json` must be valid. If a key is
/// repeated, the last one counts, as in a decoded tree.
pub(crate) fn find<'a>(json: &'a str, pointer: &str) -> Option<&'a str> {
    if pointer.is_empty() {
        return Some(json);
    }
    let mut steps = pointer.strip_prefix('/')?.split('/').map(Step::new);
    steps.try_fold(json, |value, step| member(value, &step))
}

/// Returns the first member with this key, if the object that `json` begins with has it as a whole.
pub(crate) fn first_member<'a>(json: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut cursor = Cursor::new(json);
    if !cursor.enter(b'{') {
        return None;
    }
    while let Some(found) = cursor.key()? {
        let value = cursor.value()?;
        if found.is(key) {
            return Some(&json[value]);
        }
    }
    None
}

fn member<'a>(json: &'a str, step: &Step<'_>) -> Option<&'a str> {
    let mut cursor = Cursor::new(json.as_bytes());
    let mut found = None;
    if cursor.enter(b'{') {
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            if key.is(&step.key) {
                found = Some(value);
            }
        }
    } else if cursor.enter(b'[') {
        for _ in 0..=step.index? {
            if !cursor.element()? {
                return None;
            }
            found = Some(cursor.value()?);
        }
    }
    json.get(found?)
}
