//! The scripted responses, as bytes on a connection and as a client returns them.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use k8s_informer::Error;
use serde_json::{Value, json};

use super::gzip;
use crate::client_go_traces::object::text;

/// How many more bytes the size line of a short chunk announces than the chunk has.
const MISSING: usize = 64;

/// The chunk size of a complete body that is sent in chunks.
const CHUNK: usize = 100;

/// The outcome of one request.
pub(super) enum Response {
    /// The connection is refused.
    Refused,
    /// The connection ends in this way before a response.
    Dropped(End),
    Answered(Answer),
}

pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    chunked: bool,
    /// The `Content-Length`, if the head has one.
    length: Option<usize>,
    pub(super) parts: VecDeque<Part>,
    pub(super) end: End,
}

/// A piece of a body. It includes the framing, except in the result of [`Answer::received`].
pub(super) enum Part {
    Bytes(Vec<u8>),
    Pause(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// A regular end.
    Close,
    /// The connection is closed early.
    Cut,
    /// The connection is reset.
    Reset,
    /// The connection stays open.
    Hold,
}

impl Response {
    pub(super) fn parse(response: &Value) -> Self {
        if response["refuse"] == true {
            return Self::Refused;
        }
        match response["drop"].as_str() {
            None => Self::Answered(Answer::parse(response)),
            Some("reset") => Self::Dropped(End::Reset),
            Some(_) => Self::Dropped(End::Cut),
        }
    }
}

impl Answer {
    fn parse(response: &Value) -> Self {
        let headers = response["headers"].as_object().into_iter().flatten();
        let mut reply = Self {
            status: response["status"].as_u64().unwrap().try_into().unwrap(),
            headers: headers
                .map(|(name, value)| (name.clone(), text(value).to_owned()))
                .collect(),
            chunked: response["chunked"] == true || response["stream"].is_array(),
            length: None,
            parts: VecDeque::new(),
            end: End::Close,
        };
        if let Some(stream) = response["stream"].as_array() {
            reply.parts.extend(stream.iter().map(stream_part));
            reply.end = match text(&response["end"]) {
                "close" => End::Close,
                "cut" => End::Cut,
                "reset" => End::Reset,
                "hold" => End::Hold,
                other => panic!("end {other}"),
            };
        } else {
            let body = match response["body_b64"].as_str() {
                Some(encoded) => gzip::base64(encoded),
                None => response["body"]
                    .as_str()
                    .unwrap_or_default()
                    .as_bytes()
                    .to_vec(),
            };
            reply.whole(&body, response["cut_after"].as_u64());
        }
        if reply.chunked && reply.end == End::Close {
            reply.parts.push_back(Part::Bytes(b"0\r\n\r\n".to_vec()));
        }
        reply
    }

    fn whole(&mut self, body: &[u8], cut_after: Option<u64>) {
        let mut left = body.len();
        if let Some(cut_after) = cut_after {
            left = cut_after.try_into().unwrap();
            self.end = End::Cut;
        }
        if !self.chunked {
            self.length = (self.status != 204).then_some(body.len());
            self.parts.push_back(Part::Bytes(body[..left].to_vec()));
            return;
        }
        for chunk in body.chunks(CHUNK) {
            if left == 0 {
                break;
            }
            let mut bytes = chunk_of(chunk, chunk.len());
            if left < chunk.len() {
                bytes.truncate(bytes.len() - 2 - (chunk.len() - left));
            }
            left = left.saturating_sub(chunk.len());
            self.parts.push_back(Part::Bytes(bytes));
        }
    }

    /// Returns the status line and the headers.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only sockets need it")
    )]
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\nConnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if self.chunked {
            head += "Transfer-Encoding: chunked\r\n";
        }
        if let Some(length) = self.length {
            head += &format!("Content-Length: {length}\r\n");
        }
        (head + "\r\n").into_bytes()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Removes the framing of the body. An end without a final chunk becomes a cut.
    fn unframed(mut self) -> (VecDeque<Part>, End) {
        if !self.chunked {
            return (self.parts, self.end);
        }
        let mut framing = Chunked::default();
        for part in &mut self.parts {
            if let Part::Bytes(bytes) = part {
                *bytes = framing.decode_chunks(bytes);
            }
        }
        let ends_well = framing.is_complete || self.end != End::Close;
        (self.parts, if ends_well { self.end } else { End::Cut })
    }

    /// Returns the unframed bytes of the body and the end.
    fn bytes(self) -> (Vec<u8>, End) {
        let (parts, end) = self.unframed();
        let bytes = parts.into_iter().map(|part| match part {
            Part::Bytes(bytes) => bytes,
            Part::Pause(_) => Vec::new(),
        });
        (bytes.flatten().collect(), end)
    }

    /// Returns what a client makes of the response: its body or an error. The crate's client does
    /// not request compressed bodies; this method unpacks them so that their content can be
    /// compared.
    pub(super) fn received(self, is_watch: bool) -> Result<(VecDeque<Part>, End), Error> {
        let media_type = self
            .header("Content-Type")
            .map(|value| value.split(';').next().unwrap_or_default());
        let is_json = media_type.is_none_or(|media_type| media_type.trim() == "application/json");
        match self.status {
            200 => {}
            201..300 if !is_watch => {}
            _ => return Err(self.failure()),
        }
        if !is_json {
            return Err(Error::other(
                "unexpected response: its content type is not JSON",
            ));
        }
        if self.header("Content-Encoding") != Some("gzip") {
            return Ok(self.unframed());
        }
        let (packed, end) = self.bytes();
        let unpacked = match end {
            End::Close => gzip::unpack(&packed),
            _ => Some(Vec::new()),
        };
        let bytes =
            unpacked.ok_or_else(|| Error::other("unexpected response: it can't be unpacked"))?;
        Ok((VecDeque::from([Part::Bytes(bytes)]), end))
    }

    /// Returns the `Status` in the body, or an equivalent one.
    fn failure(self) -> Error {
        let (code, retry_after) = (
            self.status,
            self.header("Retry-After").and_then(|it| it.parse().ok()),
        );
        let (body, _) = self.bytes();
        let mut status = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status["kind"] != "Status" {
            status = json!({"status": "Failure", "message": String::from_utf8_lossy(&body)});
        }
        if status["code"].as_u64().unwrap_or_default() == 0 {
            status["code"] = json!(code);
        }
        if let Some(seconds) = retry_after {
            let seconds: u32 = seconds;
            status["details"]["retryAfterSeconds"] = json!(seconds);
        }
        Error::from_status(serde_json::from_value(status).unwrap())
    }
}

impl End {
    /// Returns what a read of the body returns at the end.
    pub(super) fn read(self) -> io::Result<usize> {
        match self {
            Self::Close => Ok(0),
            Self::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            Self::Cut | Self::Hold => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn stream_part(item: &Value) -> Part {
    if let Some(millis) = item["pause_ms"].as_u64() {
        return Part::Pause(Duration::from_millis(millis));
    }
    Part::Bytes(if let Some(line) = item["line"].as_str() {
        let line = format!("{line}\n");
        chunk_of(line.as_bytes(), line.len())
    } else if let Some(raw) = item["raw"].as_str() {
        chunk_of(raw.as_bytes(), raw.len())
    } else {
        let short = text(&item["short"]).as_bytes();
        let mut bytes = chunk_of(short, short.len() + MISSING);
        bytes.truncate(bytes.len() - 2);
        bytes
    })
}

fn chunk_of(bytes: &[u8], announced: usize) -> Vec<u8> {
    if announced == 0 {
        return Vec::new();
    }
    [format!("{announced:x}\r\n").as_bytes(), bytes, b"\r\n"].concat()
}

/// Removes the framing of chunks.
#[derive(Default)]
struct Chunked {
    /// The size line of the next chunk, as far as received.
    size_line: Vec<u8>,
    /// The number of bytes left in the chunk, including the line end after it.
    left: usize,
    is_complete: bool,
    /// Whether invalid framing was received. All bytes after it are ignored.
    is_broken: bool,
}

impl Chunked {
    fn decode_chunks(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        for &byte in bytes {
            if self.left > 0 {
                self.left -= 1;
                if self.left >= 2 {
                    payload.push(byte);
                }
            } else if !self.is_complete && !self.is_broken {
                self.size_line.push(byte);
                if byte == b'\n' {
                    let line =
                        String::from_utf8_lossy(&std::mem::take(&mut self.size_line)).into_owned();
                    match usize::from_str_radix(line.trim(), 16) {
                        Ok(0) => self.is_complete = true,
                        Ok(size) => self.left = size + 2,
                        Err(_) => self.is_broken = true,
                    }
                }
            }
        }
        payload
    }
}

#[test]
fn recorded_response_is_parsed_to_its_body_and_end() {
    let whole = "0123456789".repeat(25);
    let response = json!({"status": 200, "body": whole, "chunked": true});
    let Response::Answered(reply) = Response::parse(&response) else {
        panic!()
    };
    let (parts, end) = reply.unframed();
    assert_eq!((parts.len(), end), (4, End::Close));

    let body = |response: &Value| match Response::parse(response) {
        Response::Answered(reply) => String::from_utf8(reply.bytes().0).unwrap(),
        _ => panic!(),
    };
    assert_eq!(body(&response), whole);
    assert_eq!(
        body(&json!({"status": 200, "body": whole, "chunked": true, "cut_after": 120})),
        whole[..120]
    );
    assert_eq!(
        body(&json!({"status": 200, "body": whole, "cut_after": 7})),
        whole[..7]
    );

    let stream = json!([{"line": "a"}, {"pause_ms": 1}, {"raw": "b"}, {"short": "c"}]);
    let response = json!({"status": 200, "stream": stream, "end": "close"});
    // The final chunk follows directly after the short chunk, which is not complete.
    assert_eq!(body(&response), "a\nbc0\r\n\r\n");
    let Response::Answered(reply) = Response::parse(&response) else {
        panic!()
    };
    assert_eq!(reply.unframed().1, End::Cut);
}
