//! Reads requests from a connection.
//!
//! All input is bounded. Malformed or too large input becomes a [`Refusal`], never a panic.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::testing::apiserver::model::http::{Head, parse_query};

/// The maximum size of the request line and headers. Go's net/http, and therefore kube-apiserver,
/// allows 1 MiB, but clients stay far below this limit.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// The reason why no request could be read.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client is gone, or no response can be sent to it anymore.
    Gone,
    /// The response is this status in plain text, and the connection is closed.
    Bad(u16, &'static str),
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// The reading side of a connection.
pub(crate) struct Reader<'a> {
    stream: &'a TcpStream,
    /// Bytes that were read but not consumed.
    buffer: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Blocks until unconsumed input is available. Returns `false` if the client closed the
    /// connection instead.
    pub(crate) fn wait(&mut self) -> bool {
        !self.buffer.is_empty() || self.fill().is_ok()
    }

    /// Reads more input. Fails at the end of the input.
    fn fill(&mut self) -> Result<(), Refusal> {
        let mut more = [0; 8192];
        let mut stream = self.stream;
        loop {
            match stream.read(&mut more) {
                Ok(0) => return Err(Refusal::Gone),
                Ok(count) => {
                    self.buffer.extend_from_slice(&more[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Refusal::Gone),
            }
        }
    }

    pub(crate) fn head(&mut self) -> Result<Head, Refusal> {
        loop {
            if !self.buffer.is_empty()
                && let Some((head, length)) = parse_head(&self.buffer)?
            {
                self.buffer.drain(..length);
                return Ok(head);
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(Refusal::Bad(431, "Request Header Fields Too Large"));
            }
            self.fill()?;
        }
    }

    /// Reads the body of the request with `head`. Returns `None` if the body is larger than
    /// `limit`. The connection must not be used again after that.
    pub(crate) fn body(&mut self, head: &Head, limit: usize) -> Result<Option<Vec<u8>>, Refusal> {
        const BAD: Refusal = Refusal::Bad(400, "Bad Request");
        let lengths: Vec<&str> = head
            .headers
            .iter()
            .filter(|(k, _)| k.eq_ignore_ascii_case("content-length"))
            .map(|(_, v)| &**v)
            .collect();
        let encoding = head.header("transfer-encoding");
        let length = match (encoding, lengths.as_slice()) {
            (None, []) => return Ok(Some(Vec::new())),
            (None, [length]) if length.bytes().all(|b| b.is_ascii_digit()) => {
                // A number that overflows means a body that is too large.
                length.parse().unwrap_or(usize::MAX)
            }
            (Some(encoding), []) if encoding.eq_ignore_ascii_case("chunked") => {
                self.expect_continue(head)?;
                return self.chunked_body(limit);
            }
            (Some(_), []) => return Err(Refusal::Bad(501, "Unsupported transfer encoding")),
            _ => return Err(BAD),
        };
        if length > limit {
            return Ok(None);
        }
        if length > 0 {
            self.expect_continue(head)?;
        }
        while self.buffer.len() < length {
            self.fill()?;
        }
        Ok(Some(self.buffer.drain(..length).collect()))
    }

    fn expect_continue(&mut self, head: &Head) -> Result<(), Refusal> {
        let expected = head
            .header("expect")
            .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expected && head.http11 {
            let mut stream = self.stream;
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        Ok(())
    }

    fn chunked_body(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Refusal> {
        const BAD: Refusal = Refusal::Bad(400, "Bad Request");
        let mut body = Vec::new();
        loop {
            let (line, size) = loop {
                match httparse::parse_chunk_size(&self.buffer) {
                    Ok(httparse::Status::Complete(found)) => break found,
                    Ok(httparse::Status::Partial) if self.buffer.len() < 1024 => self.fill()?,
                    _ => return Err(BAD),
                }
            };
            self.buffer.drain(..line);
            if size == 0 {
                self.trailers()?;
                return Ok(Some(body));
            }
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size > limit.saturating_sub(body.len()) {
                return Ok(None);
            }
            while self.buffer.len() < size + 2 {
                self.fill()?;
            }
            if self.buffer[size..size + 2] != *b"\r\n" {
                return Err(BAD);
            }
            body.extend(self.buffer.drain(..size + 2).take(size));
        }
    }

    /// Skips the trailers after the last chunk, up to the empty line.
    fn trailers(&mut self) -> Result<(), Refusal> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                let empty = matches!(&self.buffer[..end], b"" | b"\r");
                self.buffer.drain(..=end);
                if empty {
                    return Ok(());
                }
            } else if self.buffer.len() > MAX_HEAD {
                return Err(Refusal::Bad(431, "Request Header Fields Too Large"));
            } else {
                self.fill()?;
            }
        }
    }
}

/// Parses the head at the start of `bytes`. Returns it with its length, or `None` if it is
/// incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::Bad(431, "Request Header Fields Too Large"));
        }
        Err(_) => return Err(Refusal::Bad(400, "Bad Request")),
    };
    if length > MAX_HEAD {
        return Err(Refusal::Bad(431, "Request Header Fields Too Large"));
    }
    let target = request.path.unwrap_or_default();
    // Also accept a whole URL as the target: clients send it to a proxy, and some proxies forward
    // it.
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: parse_query(query),
        headers: request
            .headers
            .iter()
            .map(|h| {
                (
                    h.name.to_owned(),
                    String::from_utf8_lossy(h.value).into_owned(),
                )
            })
            .collect(),
        http11: request.version == Some(1),
    };
    Ok(Some((head, length)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_depends_on_http_version_and_connection_header() {
        let parse = |text: &str| parse_head(text.as_bytes()).unwrap().unwrap().0;
        assert!(parse("GET / HTTP/1.1\r\n\r\n").keep_alive());
        assert!(!parse("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n").keep_alive());
        assert!(!parse("GET / HTTP/1.0\r\n\r\n").keep_alive());
        assert!(parse("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").keep_alive());
        assert_eq!(parse("GET http://h:1/p?q=1 HTTP/1.1\r\n\r\n").path, "/p");
    }

    #[test]
    fn malformed_request_heads_are_rejected() {
        assert!(matches!(
            parse_head(b"\0\0\0\r\n\r\n"),
            Err(Refusal::Bad(400, _))
        ));
        assert!(parse_head(b"GET / HTTP/1.1\r\nA: b\r\n").unwrap().is_none());
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "A: b\r\n".repeat(MAX_HEADERS + 1)
        );
        assert!(matches!(
            parse_head(many.as_bytes()),
            Err(Refusal::Bad(431, _))
        ));
    }
}
