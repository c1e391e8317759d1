use super::Response;

/// A GET or HEAD request. Its headers are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(super) is_head: bool,
    path: String,
    query: Vec<(String, String)>,
}

impl Request {
    /// Parses the head of a request. Returns an error response if it is invalid, or has another
    /// method.
    pub(super) fn parse(head: &[u8]) -> Result<Self, Response> {
        let bad = || Response::of_status(400);
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = str::from_utf8(line).map_err(|_| bad())?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad());
        };
        if !version.starts_with("HTTP/") || line.contains(char::is_control) {
            return Err(bad());
        }
        if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
            return Err(Response::of_status(505));
        }
        if !matches!(method, "GET" | "HEAD") {
            return Err(Response::of_status(405));
        }
        Self::of_target(method == "HEAD", target).ok_or_else(bad)
    }

    #[cfg(test)]
    pub(crate) fn get(target: &str) -> Self {
        Self::of_target(false, target).unwrap()
    }

    /// Returns the decoded path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the decoded values of a query parameter, in their order.
    pub(crate) fn query<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let parameters = self.query.iter().filter(move |(key, _)| key == name);
        parameters.map(|(_, value)| &**value)
    }

    /// Returns `None` if the target is not a path, or has an invalid escape.
    fn of_target(is_head: bool, target: &str) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if !path.starts_with('/') {
            return None;
        }
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
        let query = parameters.map(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let decoded = |text: &str| decoded(&text.replace('+', " "));
            Some((decoded(key)?, decoded(value)?))
        });
        Some(Self {
            is_head,
            path: decoded(path)?,
            query: query.collect::<Option<_>>()?,
        })
    }
}

fn decoded(text: &str) -> Option<String> {
    String::from_utf8(percent_decoded(text)?).ok()
}

/// Decodes the percent escapes. Returns `None` if one is invalid.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        decoded.push(match byte {
            b'%' => (digit()? * 16 + digit()?) as u8,
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> u16 {
        Request::parse(head).map_or_else(|response| response.status, |_| 200)
    }

    #[test]
    fn path_and_query_are_decoded() {
        let head = b"GET /readyz/my%20check?verbose&exclude=a+b&exclude=%C3%A9%26&&= HTTP/1.1\r\n";
        let request = Request::parse(head).unwrap();
        assert_eq!(request.path(), "/readyz/my check");
        assert_eq!(request.query("verbose").collect::<Vec<_>>(), [""]);
        assert_eq!(request.query("exclude").collect::<Vec<_>>(), ["a b", "é&"]);
        assert_eq!(request.query("other").count(), 0);
    }

    #[test]
    fn invalid_request_line_is_refused() {
        for (head, expected) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], 200),
            (b"HEAD / HTTP/1.0\n\n", 200),
            (b"", 400),
            (b"\r\n\r\n", 400),
            (b"GET\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET  / HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1 \r\n\r\n", 400),
            (b"GET / HTTX/1.1\r\n\r\n", 400),
            (b"GET /\0 HTTP/1.1\r\n\r\n", 400),
            (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
            (b"GET /%zz HTTP/1.1\r\n\r\n", 400),
            (b"GET /% HTTP/1.1\r\n\r\n", 400),
            (b"GET /%ff HTTP/1.1\r\n\r\n", 400),
            (b"GET /?a=%f HTTP/1.1\r\n\r\n", 400),
            (b"GET metrics HTTP/1.1\r\n\r\n", 400),
            (b"GET http://host/metrics HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\rGET / HTTP/1.1\r\n\r\n", 400),
            (b"PRI * HTTP/2.0\r\n\r\n", 505),
            (b"GET / HTTP/11\r\n\r\n", 505),
            (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
            (b"get / HTTP/1.1\r\n\r\n", 405),
            (b" / HTTP/1.1\r\n\r\n", 405),
        ] {
            assert_eq!(
                status(head),
                expected,
                "{:?}",
                String::from_utf8_lossy(head)
            );
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let pattern = b"GET /%2f?verbose=%41&exclude HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize
        };
        for _ in 0..100_000 {
            let mut head = pattern.to_vec();
            for _ in 0..=next() % 4 {
                let at = next() % head.len();
                match next() % 3 {
                    0 => head[at] = next() as u8,
                    1 => head.truncate(at.max(1)),
                    _ => head.insert(at, b"% &=?/\r\n\0\xc3"[next() % 10]),
                }
            }
            let _ = Request::parse(&head);
        }
    }
}
