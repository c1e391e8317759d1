use memchr::{memchr, memrchr};

use super::{Room, SplitError};
use crate::scan::Scanner;

/// Cuts a watch stream into its frames: JSON objects, one after the other.
///
/// API servers write one a line, and a frame that lies whole and on a line of its own in the bytes that came
/// is handed out where it is, without a look at what is in it. One that is cut by their end is put together
/// until its line ends. Only where a frame may have ended without its line, or shares it, the closing brace
/// is looked for. A frame ends with its line, whatever it is, so that a broken one can't take others with it;
/// only one whose first line is just the opening brace may stand on several.
#[derive(Debug, Default)]
pub(crate) struct FrameSplitter {
    /// A line that has not ended: nothing of it has been looked at.
    line: Room,
    /// The beginning of a frame whose end has not come yet.
    partial: Room,
    /// Looks for its closing brace.
    scanner: Scanner,
    /// Whether it stands on several lines.
    several_lines: bool,
    limit: usize,
}

/// What became of a frame that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was a frame.
    Whole,
    /// It was several on one line: hand them out one by one.
    Several,
}

impl FrameSplitter {
    /// Of objects that have at most so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Hands each frame that is complete now to `frame`. Stops where that fails.
    pub(crate) fn feed<E: From<SplitError>>(
        &mut self,
        mut bytes: &[u8],
        mut frame: impl FnMut(&[u8]) -> Result<Taken, E>,
    ) -> Result<(), E> {
        // Room that is not used is too large, too.
        for room in [&mut self.line, &mut self.partial] {
            if room.is_empty() {
                room.clear();
            }
        }
        if !self.line.is_empty() {
            let rest_of_line = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (begun, rest) = bytes.split_at(rest_of_line);
            self.line.bytes().extend_from_slice(begun);
            bytes = rest;
            if self.line_may_wait() {
                return Ok(());
            }
            self.split_line(&mut frame)?;
        }
        let lines = memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        self.split(&bytes[..lines], &mut frame)?;
        let begun = &bytes[lines..];
        if !self.partial.is_empty() || begun.is_empty() {
            return self.split(begun, &mut frame);
        }
        self.line.bytes().extend_from_slice(begun);
        if self.line_may_wait() {
            Ok(())
        } else {
            self.split_line(&mut frame)
        }
    }

    /// Whether more of the line that has begun is waited for: it does not end where a frame may, and is not
    /// too large. If a frame has ended within it, that waits, too.
    fn line_may_wait(&self) -> bool {
        self.line.first() == Some(&b'{')
            && self
                .line
                .last()
                .is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != b'}')
            && self.line.len() <= self.limit
    }

    /// Splits the line that has begun, as far as it has come.
    fn split_line<E: From<SplitError>>(
        &mut self,
        frame: &mut impl FnMut(&[u8]) -> Result<Taken, E>,
    ) -> Result<(), E> {
        let mut line = std::mem::take(&mut self.line);
        let result = self.split(line.bytes(), frame);
        line.clear();
        self.line = line;
        result
    }

    fn split<E: From<SplitError>>(
        &mut self,
        mut bytes: &[u8],
        frame: &mut impl FnMut(&[u8]) -> Result<Taken, E>,
    ) -> Result<(), E> {
        loop {
            if self.partial.is_empty() {
                bytes = bytes.trim_ascii_start();
                if bytes.is_empty() {
                    return Ok(());
                }
                // One that is too large may be several.
                if let Some(line) = whole_line(bytes)
                    && line.trim_ascii_end().len() <= self.limit
                    && frame(line.trim_ascii_end())? == Taken::Whole
                {
                    bytes = &bytes[line.len()..];
                    continue;
                }
            }
            let end = self.end(bytes);
            let (begun, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.check(self.partial.len() + begun.len())?;
            self.partial.bytes().extend_from_slice(begun);
            bytes = rest;
            if end.is_none() {
                return Ok(());
            }
            self.hand_out(frame)?;
        }
    }

    /// The stream is at its end: hands out what is left of it, unless it is only the beginning of a frame.
    pub(crate) fn finish<E: From<SplitError>>(
        &mut self,
        mut frame: impl FnMut(&[u8]) -> Result<Taken, E>,
    ) -> Result<(), E> {
        self.split_line(&mut frame)?;
        if self.partial.is_empty() || self.scanner.is_inside() {
            Ok(())
        } else {
            self.hand_out(&mut frame)
        }
    }

    fn hand_out<E>(&mut self, frame: &mut impl FnMut(&[u8]) -> Result<Taken, E>) -> Result<(), E> {
        self.scanner = Scanner::default();
        self.several_lines = false;
        let mut whole = std::mem::take(&mut self.partial);
        frame(whole.bytes().trim_ascii())?;
        whole.clear();
        self.partial = whole;
        Ok(())
    }

    /// Where the frame that has begun ends, if that is in these bytes.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.partial.first().or(bytes.first()) != Some(&b'{') {
            return memchr(b'\n', bytes).map(|at| at + 1);
        }
        if self.several_lines {
            return self.scanner.end(bytes);
        }
        let line_end = memchr(b'\n', bytes).map(|at| at + 1);
        let line = &bytes[..line_end.unwrap_or(bytes.len())];
        let brace = self.scanner.end(line);
        if brace.is_some() || line_end.is_none() {
            return brace;
        }
        self.several_lines = match &*self.partial {
            [] => line.trim_ascii() == b"{",
            partial => partial.trim_ascii_end() == b"{" && line.trim_ascii().is_empty(),
        };
        match self.several_lines {
            true => self
                .scanner
                .end(&bytes[line.len()..])
                .map(|end| line.len() + end),
            false => line_end,
        }
    }

    fn check(&self, length: usize) -> Result<(), SplitError> {
        if length > self.limit {
            return Err(SplitError::TooLarge {
                what: "a watch event",
                limit: self.limit,
            });
        }
        Ok(())
    }
}

/// The first line, if it has come whole and looks like a frame.
fn whole_line(bytes: &[u8]) -> Option<&[u8]> {
    let line = &bytes[..memchr(b'\n', bytes)?];
    (line.starts_with(b"{") && line.trim_ascii_end().ends_with(b"}")).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, SplitError> {
        let mut frames = Vec::new();
        let mut splitter = FrameSplitter::new(limit);
        let mut take = |frame: &[u8]| {
            if crate::wire::has_several(frame) {
                return Ok(Taken::Several);
            }
            frames.push(String::from_utf8_lossy(frame).into_owned());
            Ok::<_, SplitError>(Taken::Whole)
        };
        for chunk in chunks {
            splitter.feed(chunk, &mut take)?;
        }
        splitter.finish(&mut take)?;
        Ok(frames)
    }

    fn split_anywhere(stream: &str, frames: &[&str]) {
        let stream = stream.as_bytes();
        for cut in 0..stream.len() {
            assert_eq!(
                split(&[&stream[..cut], &stream[cut..]], 99).unwrap(),
                frames,
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn frames_are_lines_wherever_the_chunks_end() {
        split_anywhere(
            "{\"a\":1}\n\n{\"b\":\"}\\\"\"}\r\n{\"c\":3}\n",
            &["{\"a\":1}", "{\"b\":\"}\\\"\"}", "{\"c\":3}"],
        );
    }

    #[test]
    fn frames_may_stand_on_several_lines_share_one_or_end_without_one() {
        split_anywhere(
            " {\"a\":{}}{\"b\":{}} {\"c\":3}\n{\n\"d\": [\n1]\n}{ \r\n \"e\":5}\n{\"f\":6}",
            &[
                "{\"a\":{}}",
                "{\"b\":{}}",
                "{\"c\":3}",
                "{\n\"d\": [\n1]\n}",
                "{ \r\n \"e\":5}",
                "{\"f\":6}",
            ],
        );
    }

    #[test]
    fn frames_that_share_a_line_are_told_apart_whatever_bytes_are_in_their_strings() {
        let line = b"{\"a\":\"\xff}\"} {\"b\":1}\n";
        for cut in 0..line.len() {
            let frames = split(&[&line[..cut], &line[cut..]], 99).unwrap();
            assert_eq!(
                frames,
                ["{\"a\":\"\u{fffd}}\"}", "{\"b\":1}"],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_is_no_frame_ends_with_its_line() {
        split_anywhere(
            "garbage\n{\"a\":1}\n{\"b\":{\n{\"c\":3}\nmore",
            &["garbage", "{\"a\":1}", "{\"b\":{", "{\"c\":3}", "more"],
        );
        split_anywhere("7 {\"a\":1}\nnull, 7", &["7 {\"a\":1}", "null, 7"]);
    }

    #[test]
    fn a_frame_that_is_cut_is_none() {
        split_anywhere("{\"a\":1}\n{\"b\":{\"c\":\"", &["{\"a\":1}"]);
    }

    #[test]
    fn a_frame_over_the_limit_is_an_error_before_its_end_has_come() {
        let too_large = Err(SplitError::TooLarge {
            what: "a watch event",
            limit: 4,
        });
        assert_eq!(split(&[b"{12}\n", b"{1", b"234"], 4), too_large);
        for several in ["{12}{34}\n", "{12} \r\n{34}\n"] {
            for cut in 0..several.len() {
                let (begin, end) = several.as_bytes().split_at(cut);
                assert_eq!(
                    split(&[begin, end], 4).unwrap(),
                    ["{12}", "{34}"],
                    "{several} cut at {cut}"
                );
            }
        }
        assert_eq!(split(&[b"{123}\n"], 4), too_large);
        assert_eq!(split(&[b"12345\n"], 4), too_large);
    }
}
