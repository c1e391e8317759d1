//! HTTP CONNECT: RFC 9110, section 9.3.6.

use std::io::{self, Read, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ureq::http::StatusCode;

use super::User;

/// The maximum size of a response head.
const HEAD_LIMIT: usize = 16 * 1024;

/// Requests a tunnel to `host`. An IPv6 address has brackets.
pub(super) fn open(
    stream: &mut (impl Read + Write),
    host: &str,
    port: u16,
    user: Option<&User>,
) -> io::Result<()> {
    let mut request = format!(
        "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: k8s-informer/{}\r\n",
        env!("CARGO_PKG_VERSION")
    );
    if let Some(user) = user {
        let credentials = BASE64_STANDARD.encode([&user.name[..], b":", &user.password].concat());
        request.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;

    let head = read_head(stream)?;
    // Accepts only 200, as Go does. Of the proxy's response, the error shows only the status code.
    match status(&head) {
        None => Err(io::Error::other("the response is not HTTP")),
        Some(200) => Ok(()),
        Some(code) => {
            let reason = StatusCode::from_u16(code)
                .ok()
                .and_then(|code| code.canonical_reason());
            let hint = match (code, user) {
                (407, None) => {
                    ": a user name and a password are required; set them in the proxy's URL"
                }
                (407, Some(_)) => ": the user name and password were rejected",
                _ => "",
            };
            let reason = reason.map_or(String::new(), |reason| format!(" {reason}"));
            Err(io::Error::other(format!(
                "the tunnel to {host}:{port} was refused with {code}{reason}{hint}"
            )))
        }
    }
}

/// Reads the head of the response, byte by byte, because the bytes after it belong to the tunnel.
/// This is not slow, because the transport is buffered.
fn read_head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    const START: &[u8] = b"HTTP/1.";
    let mut head = Vec::new();
    while head.len() < HEAD_LIMIT {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
        // Stops early if the response is not HTTP.
        let is_other = !START
            .iter()
            .zip(&head)
            .all(|(expected, byte)| expected == byte);
        if is_other || head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n") {
            return Ok(head);
        }
    }
    Err(io::Error::other(format!(
        "the head of the response is larger than {} KiB",
        HEAD_LIMIT / 1024
    )))
}

/// The code in `HTTP/1.x code reason`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [b'0'..=b'9', b' ', code @ ..] = rest else {
        return None;
    };
    let code = code.split(|byte| *byte == b' ').next()?;
    let is_code = code.len() == 3 && code.iter().all(u8::is_ascii_digit);
    is_code.then(|| std::str::from_utf8(code).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Peer(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Peer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Peer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn open_with(response: &[u8], user: Option<&User>) -> (io::Result<()>, String, usize) {
        let mut peer = Peer(io::Cursor::new(response.to_vec()), Vec::new());
        let opened = open(&mut peer, "[fd00::1]", 6443, user);
        (
            opened,
            String::from_utf8(peer.1).unwrap(),
            peer.0.position() as usize,
        )
    }

    #[test]
    fn connect_request_has_host_port_and_credentials() {
        let (opened, request, _) = open_with(b"HTTP/1.0 200 Connection established\r\n\r\n", None);
        opened.unwrap();
        let head =
            "CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\nUser-Agent: k8s-informer/";
        assert!(
            request.starts_with(head) && request.ends_with("\r\n\r\n"),
            "{request:?}"
        );
        assert!(!request.contains("Proxy-Authorization"), "{request}");
        let user = User {
            name: b"Aladdin".to_vec(),
            password: b"open sesame".to_vec(),
        };
        let (_, request, _) = open_with(b"", Some(&user));
        assert!(
            request.contains("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"),
            "{request}"
        );
    }

    #[test]
    fn bytes_after_response_head_are_not_read() {
        for head in [
            "HTTP/1.1 200 OK\r\nX: y\r\n\r\n",
            "HTTP/1.1 200\n\n",
            "HTTP/1.1 200\r\n\r\n",
        ] {
            let (opened, _, read) = open_with(format!("{head}rest").as_bytes(), None);
            opened.unwrap();
            assert_eq!(read, head.len());
        }
    }

    #[test]
    fn failed_connect_response_is_not_quoted() {
        let user = User {
            name: b"me".to_vec(),
            password: b"s3cret".to_vec(),
        };
        let huge = format!("HTTP/1.1 200 OK\r\nX: {}", "s3cret".repeat(10_000));
        for (response, user, expected) in [
            (
                "HTTP/1.1 407 s3cret\r\n\r\ns3cret",
                None,
                "407 Proxy Authentication Required: a user name",
            ),
            (
                "HTTP/1.1 407 s3cret\r\n\r\n",
                Some(&user),
                "the user name and password were rejected",
            ),
            (
                "HTTP/1.1 502 s3cret\r\n\r\n",
                None,
                "the tunnel to [fd00::1]:6443 was refused with 502 Bad Gateway",
            ),
            ("HTTP/1.1 204 No\r\n\r\n", None, "with 204"),
            ("HTTP/1.1 101 No\r\n\r\n", None, "with 101"),
            ("HTTP/1.1 799 s3cret\r\n\r\n", None, "with 799"),
            ("HTTP/1.1 2000 OK\r\n\r\n", None, "the response is not HTTP"),
            ("HTTP/1.1 +20 OK\r\n\r\n", None, "the response is not HTTP"),
            ("HTTP/1.1\r\n\r\n", None, "the response is not HTTP"),
            ("HTTP/1.\r\n\r\n", None, "the response is not HTTP"),
            ("HTTP/2 200 OK\r\n\r\n", None, "the response is not HTTP"),
            ("SSH-2.0-s3cret", None, "the response is not HTTP"),
            ("\x05\x00", None, "the response is not HTTP"),
            ("HTTP/1.1 200 OK\r\n", None, "UnexpectedEof"),
            ("", None, "UnexpectedEof"),
            (&huge, None, "larger than 16 KiB"),
        ] {
            let (opened, _, read) = open_with(response.as_bytes(), user);
            let error = opened.unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
            assert!(read <= HEAD_LIMIT);
        }
    }
}
