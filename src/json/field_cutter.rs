use super::cursor::Cursor;
use super::pointer::{Path, Step};

/// Returns the JSON without the fields to which the paths lead. The returned slice is `json` itself
/// if it has none of these fields, or else a copy of the rest in `scratch`. Bytes that cannot be
/// parsed are returned unchanged.
///
/// If a key is repeated and a path ends at it, every field with this key is cut. If the path
/// continues below the key, it is followed only into the first field, so that the search can end
/// early.
pub(crate) fn cut_fields<'a>(paths: &[Path], json: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    scratch.clear();
    // The search adds an entry whenever a path leads into a value. Twice the paths is usually
    // enough, because most paths lead into one value at a time.
    let mut followed = Vec::with_capacity(2 * paths.len());
    followed.extend(paths.iter().map(Vec::as_slice));
    let mut cutter = Cutter {
        json,
        cursor: Cursor::new(json),
        paths: followed,
        scratch: &mut *scratch,
        copied: 0,
    };
    let is_understood = cutter.walk(0, false).is_some();
    let copied = cutter.copied;
    if !is_understood || copied == 0 {
        return json;
    }
    scratch.extend_from_slice(&json[copied..]);
    scratch
}

struct Cutter<'a, 's> {
    json: &'a [u8],
    cursor: Cursor<'a>,
    /// The remaining steps of the paths that lead into the values around the cursor, from the
    /// outermost value to the innermost. A path that needs no further search is empty.
    paths: Vec<&'s [Step<'static>]>,
    scratch: &'s mut Vec<u8>,
    /// The position up to which everything has been copied to `scratch` or cut.
    copied: usize,
}

impl Cutter<'_, '_> {
    /// Cuts the fields to which `paths[first..]` lead from the current value. `continues` is
    /// whether the enclosing values must be searched further. If not, the cursor may stop before
    /// the end of the value.
    fn walk(&mut self, first: usize, continues: bool) -> Option<()> {
        let is_object = self.cursor.enter(b'{');
        if !is_object && !self.cursor.enter(b'[') {
            return self.cursor.value().map(drop);
        }
        let mut any_kept = false;
        for index in 0.. {
            let (key, start) = if is_object {
                let Some(key) = self.cursor.key()? else {
                    break;
                };
                (Some(key.bytes()?), key.start)
            } else if self.cursor.element()? {
                (None, self.cursor.position())
            } else {
                break;
            };
            let own = first..self.paths.len();
            let (mut is_cut, mut is_done) = (false, true);
            for at in own.clone() {
                let [step, rest @ ..] = self.paths[at] else {
                    continue;
                };
                let matches_step = match &key {
                    _ if step.is_any() => true,
                    Some(key) => *step.key.as_bytes() == **key,
                    None => step.index == Some(index),
                };
                if matches_step && !rest.is_empty() {
                    self.paths.push(rest);
                    if !step.is_any() {
                        self.paths[at] = &[];
                        continue;
                    }
                }
                is_cut |= matches_step && rest.is_empty();
                is_done = false;
            }
            if is_cut {
                self.cursor.value()?;
                self.cut(start, any_kept);
            } else if self.paths.len() > own.end {
                any_kept = true;
                self.walk(own.end, continues || !is_done)?;
                if is_done {
                    return if continues {
                        self.cursor.leave()
                    } else {
                        Some(())
                    };
                }
            } else {
                any_kept = true;
                self.cursor.value()?;
            }
            self.paths.truncate(own.end);
        }
        Some(())
    }

    /// Cuts the member from `start` to the cursor. Also cuts the comma before it, or, if no earlier
    /// member is kept, the comma after it.
    fn cut(&mut self, start: usize, any_kept: bool) {
        let (before, end) = (&self.json[..start], self.cursor.position());
        let behind = self.json[end..].trim_ascii_start();
        let cut = match behind.strip_prefix(b",") {
            _ if any_kept => before.trim_ascii_end().len() - 1..end,
            Some(rest) => start..self.json.len() - rest.len(),
            None => start..end,
        };
        self.scratch
            .extend_from_slice(&self.json[self.copied..cut.start]);
        self.copied = cut.end;
    }
}
