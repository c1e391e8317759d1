//! HTTP/1.1 as far as an API server needs it: request heads and bodies in, responses and chunks out.
//!
//! Everything read is bounded; what is malformed or too large becomes a [`Refusal`], never a panic.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::outlet::{End, Outlet};

/// The most bytes of request line and headers. Go's net/http, and so kube-apiserver, allows 1 MiB; no client
/// comes near.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// Go answers bodies smaller than this with a Content-Length, larger ones in chunks: clients must meet both.
const CHUNKED_FROM: usize = 2048;
/// How much of a body is written as one chunk.
const CHUNK: usize = 32 << 10;

/// Request line and headers.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    /// Still percent-encoded, without the query.
    pub(crate) path: String,
    /// Decoded, in order.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    /// HTTP/1.1, so chunks and keep-alive are understood.
    pub(crate) http11: bool,
}

/// Why no request could be read.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client is gone, or nothing more can be said to it.
    Gone,
    /// Answered with this status in plain text, and the connection is closed.
    Bad(u16, &'static str),
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl Head {
    /// The first header of that name (lower case).
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the client wants to send another request on this connection.
    pub(crate) fn keep_alive(&self) -> bool {
        let tokens = self
            .header("connection")
            .unwrap_or_default()
            .to_ascii_lowercase();
        let has = |token: &str| tokens.split(',').any(|t| t.trim() == token);
        if self.http11 {
            !has("close")
        } else {
            has("keep-alive")
        }
    }
}

/// The reading side of a connection.
pub(crate) struct Reader<'a> {
    stream: &'a TcpStream,
    /// What was read and not yet consumed.
    buffer: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Waits until something unconsumed is there; false if the client has closed instead.
    pub(crate) fn wait(&mut self) -> bool {
        !self.buffer.is_empty() || self.fill().is_ok()
    }

    /// Reads some more; an error at the end.
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

    /// Reads the head of the next request.
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

    /// Reads the body that belongs to `head`; `None` if it is larger than `limit`, and then the connection is
    /// of no more use.
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
                // Digits that don't fit are a body too large.
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

    /// Skips what may follow the last chunk, up to the empty line.
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

/// The head at the start of `bytes` and its length, if it is all there.
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
    // Proxies send the whole URL.
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

/// Takes a query apart; `+` is a space here, as in forms.
pub(crate) fn parse_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (
                percent_decode(&key.replace('+', " ")),
                percent_decode(&value.replace('+', " ")),
            )
        })
        .collect()
}

/// Undoes percent-encoding; what is not one stays as it is.
pub(crate) fn percent_decode(text: &str) -> String {
    let hex = |b: u8| char::from(b).to_digit(16);
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%'
            && let [high, low, after @ ..] = after
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            plain.push((high * 16 + low) as u8);
            rest = after;
        } else {
            plain.push(first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// A whole answer. Its body is JSON unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type: "application/json".to_owned(),
            headers: Vec::new(),
            body,
        }
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8".to_owned(),
            headers: vec![("X-Content-Type-Options".to_owned(), "nosniff".to_owned())],
            body: body.as_bytes().to_vec(),
        }
    }

    /// Writes the response; `keep_alive` says whether the connection stays open after it.
    pub(crate) fn write(
        &self,
        outlet: &mut Outlet<'_>,
        head: &Head,
        keep_alive: bool,
    ) -> Result<(), End> {
        let chunked = head.http11 && self.body.len() >= CHUNKED_FROM;
        let mut start = start_line(self.status, head.http11, keep_alive);
        start.extend_from_slice(format!("Content-Type: {}\r\n", self.content_type).as_bytes());
        for (name, value) in &self.headers {
            start.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if chunked {
            start.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        } else {
            let length = self.body.len() + outlet.extra(self.body.len());
            start.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
        }
        outlet.head(&start, chunked)?;
        if head.method == "HEAD" {
            return outlet.flush();
        }
        let size = if chunked {
            CHUNK
        } else {
            self.body.len().max(1)
        };
        self.body
            .chunks(size)
            .try_for_each(|part| outlet.send(&[part]))?;
        outlet.finish()
    }
}

/// What ends a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The head of a response whose body is a stream without end.
pub(crate) fn stream_head(http11: bool, keep_alive: bool) -> Vec<u8> {
    let mut out = start_line(200, http11, keep_alive);
    out.extend_from_slice(b"Content-Type: application/json\r\n");
    if http11 {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

pub(crate) fn push_chunk(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
    out.extend_from_slice(part);
    out.extend_from_slice(b"\r\n");
}

fn start_line(status: u16, http11: bool, keep_alive: bool) -> Vec<u8> {
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&jiff::Timestamp::now())
        .unwrap_or_default();
    let connection = match (http11, keep_alive) {
        (true, true) => "",
        (false, true) => "Connection: keep-alive\r\n",
        (_, false) => "Connection: close\r\n",
    };
    format!(
        "HTTP/1.{} {status} {}\r\nCache-Control: no-cache, private\r\nDate: {date}\r\n{connection}",
        u8::from(http11),
        phrase(status)
    )
    .into_bytes()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_undone_and_nonsense_left_alone() {
        assert_eq!(percent_decode("a%3Db%2c"), "a=b,");
        assert_eq!(percent_decode("100%"), "100%");
        assert_eq!(percent_decode("%zz%4"), "%zz%4");
        assert_eq!(percent_decode("%ff"), "\u{fffd}");
        let query = parse_query("a=1&b&c=x+y%2Bz&&d==");
        let pairs: Vec<(&str, &str)> = query
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(pairs, [("a", "1"), ("b", ""), ("c", "x y+z"), ("d", "=")]);
    }

    #[test]
    fn keep_alive_follows_version_and_header() {
        let parse = |text: &str| parse_head(text.as_bytes()).unwrap().unwrap().0;
        assert!(parse("GET / HTTP/1.1\r\n\r\n").keep_alive());
        assert!(!parse("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n").keep_alive());
        assert!(!parse("GET / HTTP/1.0\r\n\r\n").keep_alive());
        assert!(parse("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").keep_alive());
        assert_eq!(parse("GET http://h:1/p?q=1 HTTP/1.1\r\n\r\n").path, "/p");
    }

    #[test]
    fn malformed_heads_are_refused() {
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
