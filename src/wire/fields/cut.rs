use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::Step;
use crate::scan::Scanner;

/// See [`FieldPaths::cut`](super::FieldPaths::cut).
pub(super) fn cut<'a>(paths: &[Vec<Step>], object: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    room.clear();
    // Each mostly leads on once: as many more are added.
    let mut followed = Vec::with_capacity(2 * paths.len());
    followed.extend(paths.iter().map(Vec::as_slice));
    let mut cutter = Cutter {
        bytes: object,
        at: 0,
        paths: followed,
        room: &mut *room,
        copied: 0,
    };
    cutter.white_space();
    let understood = cutter.walk(0, false).is_some();
    let copied = cutter.copied;
    if !understood || copied == 0 {
        return object;
    }
    room.extend_from_slice(&object[copied..]);
    room
}

/// Walks over one JSON value. Everything that no path leads into is passed over; only the brackets and
/// strings in it are seen. `None` is for bytes that are not understood.
struct Cutter<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What is left of the paths: those that lead into the values around the current one, from the outermost
    /// to the innermost. Each value knows where its own begin.
    paths: Vec<&'a [Step]>,
    room: &'a mut Vec<u8>,
    /// Up to where the bytes are in `room`, or left out.
    copied: usize,
}

/// What the paths say of a key or an element.
enum Turn {
    /// It is left out.
    Cut,
    /// These paths, the last ones, lead into it.
    Enter,
    Pass,
}

impl<'a> Cutter<'a> {
    /// Walks over the value that begins here, into which `paths[first..]` lead, none of them at its end. If
    /// nothing is sought `later`, in the values around this one, it may stop before the value's end.
    fn walk(&mut self, first: usize, later: bool) -> Option<()> {
        let is_object = match self.peek()? {
            b'{' => true,
            b'[' => false,
            _ => return self.pass(),
        };
        let close = if is_object { b'}' } else { b']' };
        self.at += 1;
        self.white_space();
        if self.peek()? == close {
            self.at += 1;
            return Some(());
        }
        let mut index = 0;
        let mut any_kept = false;
        let mut comma_before = self.at;
        loop {
            let start = self.at;
            let own = first..self.paths.len();
            let turn = if is_object {
                let key = self.key()?;
                self.turn(own.clone(), |step| step.key.as_bytes() == &*key)
            } else {
                index += 1;
                self.turn(own.clone(), |step| step.index == Some(index - 1))
            };
            match turn {
                (Turn::Enter, left) => {
                    self.walk(own.end, later || left > first)?;
                    self.paths.truncate(left);
                    if left == first {
                        // Nothing is sought in here any more.
                        return if later {
                            self.pass_with(Scanner::inside())
                        } else {
                            Some(())
                        };
                    }
                }
                (Turn::Cut, left) => {
                    self.pass()?;
                    self.paths.truncate(left);
                }
                (Turn::Pass, _) => self.pass()?,
            }
            let end = self.at;
            self.white_space();
            let byte = self.peek()?;
            if byte != b',' && byte != close {
                return None;
            }
            self.at += 1;
            match turn {
                // With its comma: the one before it, or the one behind it where nothing stands before.
                (Turn::Cut, _) if any_kept => self.leave_out(comma_before..end),
                (Turn::Cut, _) => self.leave_out(start..if byte == b',' { self.at } else { end }),
                _ => any_kept = true,
            }
            if byte == close {
                return Some(());
            }
            comma_before = self.at - 1;
            self.white_space();
        }
    }

    /// What `own`, the paths of a value, say of what is at a place in it. Those that lead on from there are
    /// added behind; how many remain once they have been followed is told, too.
    fn turn(&mut self, own: Range<usize>, is_there: impl Fn(&Step) -> bool) -> (Turn, usize) {
        let (mut at, mut left) = (own.start, own.end);
        let mut turn = Turn::Pass;
        while at < left {
            let path = self.paths[at];
            let (step, rest) = (&path[0], &path[1..]);
            let is_any = step.is_any();
            if !is_any && !is_there(step) {
                at += 1;
            } else if rest.is_empty() {
                turn = Turn::Cut;
                at += 1;
            } else {
                self.paths.push(rest);
                if matches!(turn, Turn::Pass) {
                    turn = Turn::Enter;
                }
                if is_any {
                    at += 1;
                } else {
                    left -= 1;
                    self.paths.swap(at, left);
                }
            }
        }
        (turn, left)
    }

    /// Passes over a key and its colon, to the value.
    fn key(&mut self) -> Option<Cow<'a, [u8]>> {
        let start = self.at;
        let escaped = self.string()?;
        let key = &self.bytes[start..self.at];
        self.white_space();
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        self.white_space();
        Some(if escaped {
            serde_json::from_slice::<String>(key)
                .ok()?
                .into_bytes()
                .into()
        } else {
            key[1..key.len() - 1].into()
        })
    }

    /// Passes over a string; says whether there is a backslash in it.
    fn string(&mut self) -> Option<bool> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let mut escaped = false;
        loop {
            self.at += memchr2(b'"', b'\\', self.bytes.get(self.at..)?)? + 1;
            if self.bytes[self.at - 1] == b'"' {
                return Some(escaped);
            }
            escaped = true;
            self.at += 1;
        }
    }

    /// Passes over a value.
    fn pass(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.pass_with(Scanner::default()),
            _ => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = self.bytes[self.at..]
                    .iter()
                    .take_while(|byte| is_part(byte))
                    .count();
                self.at += length;
                (length > 0).then_some(())
            }
        }
    }

    fn pass_with(&mut self, mut scanner: Scanner) -> Option<()> {
        self.at += scanner.end(&self.bytes[self.at..])?;
        Some(())
    }

    fn leave_out(&mut self, range: Range<usize>) {
        self.room
            .extend_from_slice(&self.bytes[self.copied..range.start]);
        self.copied = range.end;
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }
}
