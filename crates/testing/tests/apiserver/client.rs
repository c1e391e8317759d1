//! A minimal HTTP client, so that tests see the exact bytes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use k8s_informer_testing::ApiServer;
use serde_json::Value;

use crate::apiserver::TIMEOUT;

pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// For example, `HTTP/1.1 200 OK`.
    pub(crate) start: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let json = self.json();
        let items = json["items"]
            .as_array()
            .unwrap_or_else(|| panic!("not a list: {json}"));
        items
            .iter()
            .map(|item| {
                item["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }
}

impl Client {
    pub(crate) fn connect(server: &ApiServer) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.write(format!("{text}\r\n{body}").as_bytes());
    }

    /// Reads the status and headers of a response.
    pub(crate) fn head(&mut self) -> Response {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.0.read_line(&mut line).unwrap(),
                0,
                "the connection closed in the response head, after {lines:?}"
            );
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let start = lines.remove(0);
        let status = start
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap();
        let pair = |line: &String| {
            line.split_once(": ")
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .unwrap()
        };
        Response {
            status,
            start,
            headers: lines.iter().map(pair).collect(),
            body: Vec::new(),
        }
    }

    /// Reads one chunk. Returns `None` for the last one.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
        let mut bytes = vec![0; size + 2];
        self.0.read_exact(&mut bytes)?;
        assert!(bytes.ends_with(b"\r\n"));
        bytes.truncate(size);
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    pub(crate) fn response(&mut self) -> Response {
        let mut response = self.head();
        if response.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().unwrap() {
                response.body.extend(chunk);
            }
        } else {
            let length = response.header("content-length").unwrap().parse().unwrap();
            response.body.resize(length, 0);
            self.0.read_exact(&mut response.body).unwrap();
        }
        response
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send("GET", path, &[], "");
        self.response()
    }

    /// Sends JSON, as a merge patch if the method is PATCH.
    pub(crate) fn json(&mut self, method: &str, path: &str, body: &Value) -> Response {
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        self.send(
            method,
            path,
            &[("Content-Type".to_owned(), kind.to_owned())],
            &body.to_string(),
        );
        self.response()
    }

    /// Starts a watch, whose events are read one by one.
    pub(crate) fn watch(server: &ApiServer, path_and_query: &str) -> Self {
        let mut client = Self::connect(server);
        client.send("GET", path_and_query, &[], "");
        let head = client.head();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.header("content-type"), Some("application/json"));
        client
    }

    /// Returns the type, name and resource version of the next event.
    pub(crate) fn event(&mut self) -> String {
        let event = self.event_json();
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        format!(
            "{} {} {}",
            text(&event["type"]),
            text(&metadata["name"]),
            text(&metadata["resourceVersion"])
        )
    }

    pub(crate) fn event_json(&mut self) -> Value {
        let chunk = self.chunk().unwrap().expect("the watch has ended");
        assert!(chunk.ends_with(b"\n"));
        serde_json::from_slice(&chunk).unwrap()
    }

    /// Asserts that the watch ends cleanly.
    pub(crate) fn assert_end(&mut self) {
        assert_eq!(
            self.chunk()
                .unwrap()
                .map(|chunk| String::from_utf8_lossy(&chunk).into_owned()),
            None
        );
    }

    /// Asserts that the server closes the connection without another byte.
    pub(crate) fn assert_closed(&mut self) {
        match self.0.fill_buf() {
            Ok(rest) => assert_eq!(String::from_utf8_lossy(rest), ""),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    /// Reads until the connection ends. Returns the data, and the error unless it ends cleanly.
    pub(crate) fn read_to_end(&mut self) -> (String, Option<io::ErrorKind>) {
        let mut bytes = Vec::new();
        let end = self
            .0
            .read_to_end(&mut bytes)
            .err()
            .map(|error| error.kind());
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }

    /// Connects and sends a request. The caller reads the response.
    pub(crate) fn request(server: &ApiServer, path_and_query: &str) -> Self {
        let mut client = Self::connect(server);
        client.send("GET", path_and_query, &[], "");
        client
    }
}
