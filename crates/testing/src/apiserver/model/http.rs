//! Requests and responses as values, and the HTTP/1.1 syntax that the server writes.

use super::status::StatusError;

/// The request line and the headers.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    /// The path, percent-encoded and without the query.
    pub(crate) path: String,
    /// The decoded parameters, in order.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// Returns the first header with this name, ignoring case.
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

    /// Parses a bool parameter. Every value except `0` and `false` is true.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.param(name)
            .map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether the connection stays open for another request.
    pub(crate) fn keep_alive(&self) -> bool {
        let tokens = self
            .header("connection")
            .unwrap_or_default()
            .to_ascii_lowercase();
        !tokens.split(',').any(|token| token.trim() == "close")
    }
}

/// Parses a query. As in forms, `+` is a space.
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

/// Decodes percent-encoding. Invalid sequences stay unchanged.
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

/// A complete response. Its body is JSON by default.
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
}

impl From<StatusError> for Response {
    fn from(status: StatusError) -> Self {
        let mut response = Self::json(status.code(), status.body());
        response.body.push(b'\n');
        if let Some(seconds) = status.retry_after() {
            response
                .headers
                .push(("Retry-After".to_owned(), seconds.to_string()));
        }
        response
    }
}

/// The end of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Returns the head of a response whose body is an endless stream.
pub(crate) fn stream_head(keep_alive: bool) -> Vec<u8> {
    let mut out = start_line(200, keep_alive);
    out.extend_from_slice(b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    out
}

pub(crate) fn push_chunk(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
    out.extend_from_slice(part);
    out.extend_from_slice(b"\r\n");
}

/// Returns the first lines of a response. They have no reason phrase, which clients ignore.
pub(crate) fn start_line(status: u16, keep_alive: bool) -> Vec<u8> {
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&jiff::Timestamp::now())
        .unwrap_or_default();
    let connection = if keep_alive {
        ""
    } else {
        "Connection: close\r\n"
    };
    format!(
        "HTTP/1.1 {status} \r\nCache-Control: no-cache, private\r\nDate: {date}\r\n{connection}"
    )
    .into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn percent_decode_keeps_invalid_sequences() {
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
}
