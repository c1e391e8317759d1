use memchr::memchr;

use super::SplitError;
use super::limits::max_skipped;
use crate::base::adaptive_buffer::AdaptiveBuffer;
use crate::json::Scanner;

/// Splits a watch stream into frames, which are consecutive JSON objects.
///
/// API servers write one frame per line. A line that is completely in the input is returned in
/// place, without being scanned. A line that continues after the input is buffered until it ends.
/// The splitter looks for the closing brace only if a frame may end before its line does, or if
/// several frames share a line.
///
/// A frame may span several lines only if its first line is a single opening brace. Any other frame
/// ends with its line at the latest, so a broken frame does not affect later frames.
///
/// A frame above the limit is skipped: only its beginning is kept, which contains the name of the
/// object. What does not begin like a frame is not skipped.
#[derive(Debug, Default)]
pub(crate) struct FrameSplitter {
    /// A line whose end has not arrived. The splitter has not searched it for frames, unless
    /// `in_line` is set.
    line: AdaptiveBuffer,
    /// The number of bytes of `line` that have been split. Set while the line is being split.
    in_line: Option<usize>,
    /// The beginning of a frame whose end has not arrived, or the frame that was returned last. At
    /// most `limit` bytes.
    partial: AdaptiveBuffer,
    /// The number of bytes of the frame after `partial`, which have been dropped.
    skipped: usize,
    /// Finds the closing brace of `partial`.
    scanner: Scanner,
    /// Whether `partial` spans several lines.
    several_lines: bool,
    returned: Returned,
    /// Whether the next frame shares its line with others.
    shares_line: bool,
    limit: usize,
}

/// What [`split`](FrameSplitter::split) has found.
enum Found {
    /// No frame: all bytes have been consumed.
    Nothing,
    /// A frame that is a whole line of this length, after the consumed bytes.
    Line(usize),
    /// A frame in `partial`.
    Partial,
}

/// The frame that was returned last. The next call skips it.
#[derive(Clone, Copy, Debug, Default)]
enum Returned {
    #[default]
    Nothing,
    /// A whole line of this length.
    Line(usize),
    Partial,
}

/// The position of a complete piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// Between these positions of the input.
    Input(usize, usize),
    /// Between these positions of the buffered line.
    Line(usize, usize),
    /// In the buffer of the splitter.
    Buffer,
    /// The piece is larger than allowed. The buffer of the splitter has its beginning.
    Head,
}

impl FrameSplitter {
    /// Creates a splitter for frames of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            // The first byte of a frame decides how it ends, so it is always kept.
            limit: limit.max(1),
            ..Self::default()
        }
    }

    /// Returns the number of consumed bytes and the next frame. Without a frame, all input has been
    /// consumed and more is needed.
    ///
    /// The bytes of a returned line are consumed by the next call, because the caller may find
    /// several frames in it and call [`split_line`](Self::split_line).
    pub(crate) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        let mut at = self.skip_returned();
        if self.in_line.is_none() && !self.line.is_empty() {
            let end = memchr(b'\n', &input[at..]).map_or(input.len(), |end| at + end + 1);
            self.line.bytes().extend_from_slice(&input[at..end]);
            at = end;
            if self.line_may_wait() {
                self.shrink();
                return Ok((at, None));
            }
            self.in_line = Some(0);
        }
        loop {
            if let Some(start) = self.in_line {
                let line = std::mem::take(&mut self.line);
                let split = self.split(&line[start..]);
                self.line = line;
                let (consumed, found) = split?;
                let start = start + consumed;
                // `skip_returned` advances it over the frame.
                self.in_line = Some(start);
                match found {
                    Found::Partial => return Ok((at, Some(self.buffered()))),
                    Found::Line(length) => {
                        return Ok((at, Some(Piece::Line(start, start + length))));
                    }
                    Found::Nothing => {
                        self.in_line = None;
                        self.line.clear();
                    }
                }
            }
            if self.partial.is_empty() {
                at = input.len() - input[at..].trim_ascii_start().len();
                if memchr(b'\n', &input[at..]).is_none() && at < input.len() {
                    self.line.bytes().extend_from_slice(&input[at..]);
                    at = input.len();
                    if !self.line_may_wait() {
                        self.in_line = Some(0);
                        continue;
                    }
                }
            }
            let (consumed, found) = self.split(&input[at..])?;
            at += consumed;
            let piece = match found {
                Found::Partial => Some(self.buffered()),
                Found::Line(length) => Some(Piece::Input(at, at + length)),
                Found::Nothing => {
                    self.shrink();
                    None
                }
            };
            return Ok((at, piece));
        }
    }

    /// Like [`next`](Self::next), at the end of the stream. Returns the remaining bytes, unless
    /// they are only the beginning of a frame.
    pub(crate) fn next_at_end(&mut self) -> Result<Option<Piece>, SplitError> {
        if self.in_line.is_none() && !self.line.is_empty() {
            self.in_line = Some(0);
        }
        let (_, piece) = self.next(&[])?;
        if piece.is_some() || self.partial.is_empty() || self.scanner.depth() > 0 {
            return Ok(piece);
        }
        self.return_partial();
        Ok(Some(self.buffered()))
    }

    /// Returns the bytes of a piece that [`next`](Self::next) returned for this input.
    pub(crate) fn piece<'a>(&'a self, input: &'a [u8], piece: Piece) -> &'a [u8] {
        match piece {
            Piece::Input(start, end) => &input[start..end],
            Piece::Line(start, end) => &self.line[start..end],
            Piece::Buffer | Piece::Head => self.partial.trim_ascii(),
        }
    }

    /// Reports that the line returned last contains several frames. The next calls return them one
    /// by one.
    pub(crate) fn split_line(&mut self) {
        self.shares_line = matches!(self.returned, Returned::Line(_));
        if self.shares_line {
            self.returned = Returned::Nothing;
        }
    }

    /// Returns the number of input bytes of the frame that was returned last.
    fn skip_returned(&mut self) -> usize {
        match std::mem::take(&mut self.returned) {
            Returned::Line(length) => match &mut self.in_line {
                Some(at) => *at += length,
                None => return length,
            },
            Returned::Partial => {
                self.partial.clear();
                self.skipped = 0;
            }
            Returned::Nothing => {}
        }
        0
    }

    /// Counts a use of zero bytes for each empty buffer: after enough small uses,
    /// [`AdaptiveBuffer::clear`] shrinks it.
    fn shrink(&mut self) {
        for buffer in [&mut self.line, &mut self.partial] {
            if buffer.is_empty() {
                buffer.clear();
            }
        }
    }

    /// Whether to wait for the rest of the line: the buffered bytes do not end where a frame may
    /// end, and they are within the limit. Complete frames in these bytes then wait for the rest of
    /// the line.
    fn line_may_wait(&self) -> bool {
        self.line.first() == Some(&b'{')
            && self
                .line
                .last()
                .is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != b'}')
            && self.line.len() <= self.limit
    }

    /// Finds the next frame in `bytes`. Returns it with the number of consumed bytes.
    fn split(&mut self, bytes: &[u8]) -> Result<(usize, Found), SplitError> {
        let mut at = 0;
        if self.partial.is_empty() {
            at = bytes.len() - bytes.trim_ascii_start().len();
            if at == bytes.len() {
                return Ok((at, Found::Nothing));
            }
            // A line over the limit is not returned whole, because it may contain several frames.
            if !std::mem::take(&mut self.shares_line)
                && let Some(line) = whole_line(&bytes[at..])
                && line.len() <= self.limit
            {
                self.returned = Returned::Line(line.len());
                return Ok((at, Found::Line(line.len())));
            }
        }
        let end = self.end(&bytes[at..]).map(|end| at + end);
        let begun = &bytes[at..end.unwrap_or(bytes.len())];
        let is_frame = self.partial.first().or(begun.first()) == Some(&b'{');
        let limit = match is_frame {
            true => max_skipped(self.limit),
            false => self.limit,
        };
        if self.partial.len() + self.skipped + begun.len() > limit {
            return Err(SplitError::TooLarge {
                what: "a watch event",
                limit,
            });
        }
        let kept = begun.len().min(self.limit - self.partial.len());
        self.partial.bytes().extend_from_slice(&begun[..kept]);
        self.skipped += begun.len() - kept;
        let consumed = at + begun.len();
        if end.is_none() {
            return Ok((consumed, Found::Nothing));
        }
        self.return_partial();
        Ok((consumed, Found::Partial))
    }

    /// The position of the frame in `partial`.
    fn buffered(&self) -> Piece {
        match self.skipped {
            0 => Piece::Buffer,
            _ => Piece::Head,
        }
    }

    fn return_partial(&mut self) {
        self.scanner = Scanner::default();
        self.several_lines = false;
        self.returned = Returned::Partial;
    }

    /// Returns the position after the current frame, if it ends in these bytes.
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
}

/// Returns the first line without trailing white space, if it is complete and looks like a frame.
fn whole_line(bytes: &[u8]) -> Option<&[u8]> {
    let line = bytes[..memchr(b'\n', bytes)?].trim_ascii_end();
    (line.starts_with(b"{") && line.ends_with(b"}")).then_some(line)
}

#[cfg(test)]
mod tests;
