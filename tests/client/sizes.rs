//! Requests and responses of all sizes, through buffers that grow and shrink, with and without TLS.

use std::io::Read;

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Stop};

use super::server::{Reply, Server, reply};
use super::tls::Authority;

const LARGEST_HEAD: usize = 32 << 10;

/// Two servers, without and with TLS, each with its client.
fn clients(script: fn(&str) -> Reply) -> [(Server, Client); 2] {
    let authority = Authority::new();
    let (plain, tls) = (
        Server::start(script),
        Server::with_tls(Some(authority.server("127.0.0.1")), script),
    );
    let to_plain = Client::new(Config::new(plain.url())).unwrap();
    let to_tls = Client::new(Config::new(tls.https()).ca_pem(authority.pem)).unwrap();
    [(plain, to_plain), (tls, to_tls)]
}

/// A text of `length` bytes that does not repeat.
fn text(length: usize) -> String {
    let mut text: String = (0..length / 4)
        .map(|number| format!("{number:x} "))
        .collect();
    text.truncate(length);
    text
}

fn requested_size(request: &str) -> usize {
    request.split(['/', ' ']).nth(2).unwrap().parse().unwrap()
}

fn in_chunks(body: &str, mut size: impl FnMut() -> usize) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut rest = body.as_bytes();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(size().min(rest.len()));
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
        rest = after;
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

#[test]
fn large_and_small_responses_arrive_unchanged() {
    for (server, client) in clients(|request| {
        let body = text(requested_size(request));
        let mut size = 0;
        Reply::Write(match request.contains("chunked") {
            false => reply("200 OK", "", &body),
            true => in_chunks(&body, || {
                size = (size + 7919) % 100_003;
                size + 1
            }),
        })
    }) {
        for size in [10 << 20, 1, 128 << 10, 0, 100_000] {
            for kind in ["", "/chunked"] {
                let request = Request::get(format!("/{size}{kind}"));
                let body = client
                    .request(&request, &Stop::never())
                    .unwrap()
                    .bytes()
                    .unwrap();
                assert!(body == text(size).as_bytes(), "{size}{kind}");
            }
        }
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn large_and_small_request_bodies_are_sent_unchanged() {
    for (server, client) in clients(|_| Reply::Write(reply("200 OK", "", "{}"))) {
        for size in [1 << 20, 1, 32 << 10, 100_000] {
            let body = text(size);
            let request = Request::post("/").json(&body).unwrap();
            client
                .request(&request, &Stop::never())
                .unwrap()
                .bytes()
                .unwrap();
            assert!(
                server.request().ends_with(&format!("\r\n\r\n\"{body}\"")),
                "{size}"
            );
        }
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn response_head_above_32_kib_is_rejected() {
    for (_server, client) in clients(|request| {
        let mut size = requested_size(request);
        let mut bytes = Vec::new();
        if request.contains("interim") {
            // The interim responses grow the input buffer, which may then hold a head that is too
            // large.
            bytes = "HTTP/1.1 103 Early Hints\r\n\r\n"
                .repeat(10_000)
                .into_bytes();
        }
        let body = text(if request.contains("body") { 100_000 } else { 0 });
        size -= reply("200 OK", "X: \r\n", &body).len() - body.len();
        bytes.extend(reply(
            "200 OK",
            &format!("X: {}\r\n", "x".repeat(size)),
            &body,
        ));
        Reply::Write(bytes)
    }) {
        for kind in ["", "/body", "/interim", "/interim/body"] {
            for size in [LARGEST_HEAD, LARGEST_HEAD + 1, 200_000] {
                if size == LARGEST_HEAD + 1 && kind.starts_with("/interim") {
                    continue;
                }
                let result = client
                    .request(
                        &Request::get(format!("/{size}{kind}")).retries(0),
                        &Stop::never(),
                    )
                    .and_then(|response| response.bytes());
                match result {
                    Ok(body) if size == LARGEST_HEAD => {
                        assert_eq!(body.len(), if kind.ends_with("body") { 100_000 } else { 0 });
                    }
                    Err(error) if size > LARGEST_HEAD => {
                        assert!(error.is_decode(), "{size}{kind}: {error:?}");
                        assert!(error.to_string().contains("larger than 32 KiB"), "{error}");
                    }
                    Ok(_) => panic!("{size}{kind}: a too large head was accepted"),
                    Err(error) => panic!("{size}{kind}: {error:?}"),
                }
            }
        }
    }
}

#[test]
fn watch_in_one_byte_chunks_arrives_unchanged() {
    for (_server, client) in clients(|_| Reply::WriteAndClose(in_chunks(&text(50_000), || 1))) {
        let pods = client.lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
        for size in [1, 7, 4 << 10, 128 << 10] {
            let mut body = pods.watch(&ListOptions::default(), &Stop::never()).unwrap();
            let (mut buffer, mut all) = (vec![0; size], Vec::new());
            while let amount @ 1.. = body.read(&mut buffer).unwrap() {
                all.extend_from_slice(&buffer[..amount]);
            }
            assert!(all == text(50_000).as_bytes(), "{size}");
        }
    }
}
