//! The least that can be done with what a server sends: read it from a socket, skip what is skipped, decode
//! the rest. No client, no queue, no cache and no second thread; one connection, and a buffer that is there
//! from the beginning. What an informer costs over that is what it does beside decoding.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};
use serde::de::DeserializeOwned;

/// What is read at once at most.
const BUFFER: usize = 64 * 1024;

/// A watch, as its frames come. A frame ends with a newline, and mostly lies in the buffer where it was read.
pub(crate) struct Bare {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Where in the buffer there is what has been read and not looked at.
    read: Range<usize>,
    /// How much of a chunk is to come, and where in the buffer some of it is.
    left: usize,
    piece: Range<usize>,
    /// The beginning of a frame that goes on elsewhere.
    line: Vec<u8>,
    line_is_done: bool,
}

impl Bare {
    /// Asks for this, of a server at `http://address:port`.
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

    /// The next frame, or `None` at the end.
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

    /// The next piece of the body: as much of a chunk as has been read.
    fn more(&mut self) -> io::Result<bool> {
        // What stands between chunks are the end of a line and a line with the size.
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
    /// If it is to be skipped.
    managed_fields: Option<Finder<'static>>,
    /// What is left of an object.
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

    /// The object of an event.
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

/// Whether this is the bookmark that ends what there was when a watch began.
pub(crate) fn ends_initial_events(frame: &[u8]) -> bool {
    frame.starts_with(br#"{"type":"BOOKMARK""#)
}

/// What follows the type, as API servers write it.
fn object(frame: &[u8]) -> &[u8] {
    let start = frame
        .iter()
        .position(|&byte| byte == b',')
        .map_or(0, |comma| comma + br#","object":"#.len());
    &frame[start..frame.len() - 1]
}

/// Up to where the brackets that begin in these bytes are closed.
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
