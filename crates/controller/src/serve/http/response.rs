/// A response with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Response {
    /// A response with the type `text/plain`.
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type,
            body: body.into(),
        }
    }

    /// A status without a text of its own.
    pub(super) fn of_status(status: u16) -> Self {
        Self::text(status, format!("{}\n", reason(status)))
    }

    /// Returns the bytes to send, without the body if the request is a HEAD.
    pub(super) fn into_bytes(self, is_head: bool) -> Vec<u8> {
        let Self {
            status,
            content_type,
            body,
        } = self;
        let allow = if status == 405 {
            "Allow: GET, HEAD\r\n"
        } else {
            ""
        };
        let mut bytes = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             X-Content-Type-Options: nosniff\r\n{allow}Connection: close\r\n\r\n",
            reason(status),
            body.len(),
        )
        .into_bytes();
        if !is_head {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}
