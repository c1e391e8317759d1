//! Reads requests from a connection.
//!
//! All input is bounded. Malformed or too large input becomes a [`Refusal`], never a panic.

use std::io::{self, Read};
use std::net::TcpStream;

use crate::apiserver::model::http::{Head, parse_query};

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
        if head.header("transfer-encoding").is_some() {
            return Err(Refusal::Bad(501, "Unsupported transfer encoding"));
        }
        let length = head.header("content-length").unwrap_or("0");
        if !length.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Refusal::Bad(400, "Bad Request"));
        }
        // A number that overflows means a body that is too large.
        let length = length.parse().unwrap_or(usize::MAX);
        if length > limit {
            return Ok(None);
        }
        while self.buffer.len() < length {
            self.fill()?;
        }
        Ok(Some(self.buffer.drain(..length).collect()))
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
    if request.version != Some(1) {
        return Err(Refusal::Bad(505, "HTTP Version Not Supported"));
    }
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
    };
    Ok(Some((head, length)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_depends_on_connection_header() {
        let parse = |text: &str| parse_head(text.as_bytes()).unwrap().unwrap().0;
        assert!(parse("GET / HTTP/1.1\r\n\r\n").keep_alive());
        assert!(!parse("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n").keep_alive());
        assert_eq!(parse("GET http://h:1/p?q=1 HTTP/1.1\r\n\r\n").path, "/p");
    }

    #[test]
    fn malformed_request_heads_are_rejected() {
        assert!(matches!(
            parse_head(b"\0\0\0\r\n\r\n"),
            Err(Refusal::Bad(400, _))
        ));
        assert!(matches!(
            parse_head(b"GET / HTTP/1.0\r\n\r\n"),
            Err(Refusal::Bad(505, _))
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
