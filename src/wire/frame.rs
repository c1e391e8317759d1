use memchr::memchr;

use super::{MAX_OBJECT_BYTES, SplitError};

/// Cuts a watch stream into its frames: one JSON event a line.
///
/// A frame that lies whole in the bytes that came is handed out where it is; only one that is cut by their end is copied.
#[derive(Debug)]
pub(crate) struct FrameSplitter {
    /// The beginning of a frame whose end has not come yet.
    partial: Vec<u8>,
    limit: usize,
}

impl FrameSplitter {
    pub(crate) fn new() -> Self {
        Self { partial: Vec::new(), limit: MAX_OBJECT_BYTES }
    }

    /// Hands each frame that is complete now to `frame`, without its line end; blank lines are none. Stops where that fails.
    pub(crate) fn feed<E: From<SplitError>>(
        &mut self,
        mut bytes: &[u8],
        mut frame: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.partial.is_empty() {
                self.check(line.len())?;
                emit(line, &mut frame)?;
            } else {
                self.check(self.partial.len() + line.len())?;
                self.partial.extend_from_slice(line);
                let whole = std::mem::take(&mut self.partial);
                emit(&whole, &mut frame)?;
                self.partial = whole;
                self.partial.clear();
            }
        }
        self.check(self.partial.len() + bytes.len())?;
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn check(&self, length: usize) -> Result<(), SplitError> {
        if length > self.limit {
            return Err(SplitError::TooLarge { what: "a watch event", limit: self.limit });
        }
        Ok(())
    }
}

fn emit<E>(line: &[u8], frame: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    match line.trim_ascii() {
        [] => Ok(()),
        line => frame(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, SplitError> {
        let mut frames = Vec::new();
        let mut splitter = FrameSplitter { partial: Vec::new(), limit };
        for chunk in chunks {
            splitter.feed(chunk, |frame| {
                frames.push(String::from_utf8_lossy(frame).into_owned());
                Ok::<(), SplitError>(())
            })?;
        }
        Ok(frames)
    }

    #[test]
    fn frames_are_lines_wherever_the_chunks_end() {
        let stream = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}\n{\"cut";
        for cut in 0..stream.len() {
            let frames = split(&[&stream[..cut], &stream[cut..]], 64);
            assert_eq!(
                frames.as_deref(),
                Ok(&["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"].map(str::to_owned)[..]),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_an_error_before_its_end_has_come() {
        let too_large = Err(SplitError::TooLarge { what: "a watch event", limit: 4 });
        assert_eq!(split(&[b"1234\n", b"12", b"345"], 4), too_large);
        assert_eq!(split(&[b"12345\n"], 4), too_large);
    }
}
