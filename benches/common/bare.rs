//! The minimum work for the bytes of a server: read them from a socket, cut out skipped fields,
//! decode the rest. There is no client, queue, cache or second thread, only one connection and a
//! preallocated buffer. The difference to an informer is the cost of everything except decoding.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};
use serde::de::DeserializeOwned;

/// The maximum number of bytes per read.
const BUFFER: usize = 64 * 1024;

/// A watch, frame by frame. A frame ends with a newline. Most frames are returned from the read
/// buffer without a copy.
pub(crate) struct Bare {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The unprocessed bytes in `buffer`.
    read: Range<usize>,
    /// The number of bytes of the current chunk after `piece`. `piece` is the position in `buffer`
    /// of the bytes of the chunk that were read.
    left: usize,
    piece: Range<usize>,
    /// The beginning of a frame that continues outside `buffer`.
    line: Vec<u8>,
    line_is_done: bool,
}

impl Bare {
    /// Sends a GET request for `target` to the server at `http://address:port`.
    pub(crate) fn open(url: &str, target: &str) -> io::Result<Self> {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
        let mut bare = Self {
            stream,
            buffer: vec![0; BUFFER],
            read: 0..0,
            left: 0,
            piece: 0..0,
            line: Vec::new(),
            line_is_done: false,
        };
        // The head ends with an empty line.
        let mut newlines = 0;
        while newlines < 2 {
            match bare.byte()? {
                Some(b'\n') => newlines += 1,
                Some(b'\r') => {}
                Some(_) => newlines = 0,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(bare)
    }

    /// Returns the next frame, or `None` at the end.
    pub(crate) fn frame(&mut self) -> io::Result<Option<&[u8]>> {
        if self.line_is_done {
            self.line.clear();
            self.line_is_done = false;
        }
        loop {
            if self.piece.is_empty() && !self.more()? {
                return Ok(None);
            }
            let piece = &self.buffer[self.piece.clone()];
            let Some(end) = memchr(b'\n', piece) else {
                self.line.extend_from_slice(piece);
                self.piece.start = self.piece.end;
                continue;
            };
            let start = self.piece.start;
            self.piece.start += end + 1;
            if self.line.is_empty() {
                return Ok(Some(&self.buffer[start..start + end]));
            }
            self.line.extend_from_slice(&piece[..end]);
            self.line_is_done = true;
            return Ok(Some(&self.line));
        }
    }

    /// Finds the next piece of the body: the part of a chunk that has been read.
    fn more(&mut self) -> io::Result<bool> {
        // Chunks are separated by a line end and a line with the size.
        let (mut size, mut is_size) = (0, false);
        while self.left == 0 {
            match self.byte()? {
                None => return Ok(false),
                Some(b'\r') => {}
                Some(b'\n') if is_size && size == 0 => return Ok(false),
                Some(b'\n') => self.left = size,
                Some(digit) => {
                    let digit = char::from(digit)
                        .to_digit(16)
                        .ok_or(io::ErrorKind::InvalidData)?;
                    (size, is_size) = (size * 16 + digit as usize, true);
                }
            }
        }
        if self.read.is_empty() && !self.fill()? {
            return Ok(false);
        }
        let length = self.read.len().min(self.left);
        self.piece = self.read.start..self.read.start + length;
        self.read.start += length;
        self.left -= length;
        Ok(true)
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        if self.read.is_empty() && !self.fill()? {
            return Ok(None);
        }
        self.read.start += 1;
        Ok(Some(self.buffer[self.read.start - 1]))
    }

    fn fill(&mut self) -> io::Result<bool> {
        self.read = 0..self.stream.read(&mut self.buffer)?;
        Ok(!self.read.is_empty())
    }
}

/// Decodes the objects of frames.
pub(crate) struct Decoder {
    /// Finds `managedFields`, if they are skipped.
    managed_fields: Option<Finder<'static>>,
    /// The object without the skipped field.
    rest: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new(skip_managed_fields: bool) -> Self {
        let finder = skip_managed_fields.then(|| Finder::new(br#","managedFields":["#));
        Self {
            managed_fields: finder,
            rest: Vec::new(),
        }
    }

    /// Decodes the object of an event.
    pub(crate) fn object<T: DeserializeOwned>(&mut self, frame: &[u8]) -> serde_json::Result<T> {
        serde_json::from_slice(self.cut(object(frame)))
    }

    fn cut<'a>(&'a mut self, object: &'a [u8]) -> &'a [u8] {
        let Some(start) = self
            .managed_fields
            .as_ref()
            .and_then(|finder| finder.find(object))
        else {
            return object;
        };
        let end = start + end_of_brackets(&object[start..]);
        self.rest.clear();
        self.rest.extend_from_slice(&object[..start]);
        self.rest.extend_from_slice(&object[end..]);
        &self.rest
    }
}

/// Whether the frame is the bookmark that ends the initial events of a watch.
pub(crate) fn ends_initial_events(frame: &[u8]) -> bool {
    frame.starts_with(br#"{"type":"BOOKMARK""#)
}

/// Returns the part after the type. This relies on the order in which API servers write the fields.
fn object(frame: &[u8]) -> &[u8] {
    let start = frame
        .iter()
        .position(|&byte| byte == b',')
        .map_or(0, |comma| comma + br#","object":"#.len());
    &frame[start..frame.len() - 1]
}

/// Returns the end of the first bracketed value.
fn end_of_brackets(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (memchr(b'[', bytes).unwrap_or(0), 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'[' => depth += 1,
            b']' => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            b'"' => at += end_of_string(&bytes[at..]),
            _ => {}
        }
    }
    at
}

fn end_of_string(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
        at += next + 1;
        if bytes[at - 1] == b'"' {
            break;
        }
        at += 1;
    }
    at
}
