//! Invalid responses. Each ends soon in an error of a known class that quotes nothing of the
//! response.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Error, Stop};

use super::server::{Reply, SOON, Server, listen, read_request, reply};

/// Far more than the buffers of the client and the sockets hold.
const ENDLESS_BYTES: usize = 64 << 20;

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn list(address: SocketAddr, response_timeout: Duration) -> Result<u64, Error> {
    let config = Config::new(format!("http://{address}")).response_timeout(response_timeout);
    let client = Client::new(config).unwrap();
    let body = client
        .lister_watcher(&pods(), None)
        .list(&ListOptions::default(), &Stop::never())?;
    Ok(io::copy(&mut body.take(1 << 20), &mut io::sink())?)
}

/// Answers one request with `first`, then with `rest` repeatedly until the client closes. The
/// receiver gets the number of bytes that the server wrote after `first`.
fn hostile(first: &str, rest: &str) -> (SocketAddr, Receiver<usize>) {
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let (first, rest) = (first.to_owned(), rest.repeat(10_000 / rest.len().max(1)));
    let (sender, written) = channel();
    thread::spawn(move || {
        let mut total = 0;
        let (mut stream, _) = listener.accept().unwrap();
        // Ignore errors: the client may close at any moment.
        let _ = (|| {
            read_request(&mut stream)?;
            stream.write_all(first.as_bytes())?;
            while !rest.is_empty() && total < ENDLESS_BYTES {
                stream.write_all(rest.as_bytes())?;
                total += rest.len();
            }
            io::Result::Ok(())
        })();
        let _ = sender.send(total);
    });
    (address, written)
}

fn error_of(first: &str, rest: &str) -> Error {
    let (address, written) = hostile(first, rest);
    let error = list(address, SOON).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("s3cret"), "{text}");
    let total = written
        .recv_timeout(SOON)
        .expect("the client did not close the connection");
    assert!(
        total < ENDLESS_BYTES,
        "the client read the whole endless response"
    );
    error
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn endless_head_is_read_up_to_its_limit() {
    for (first, rest) in [
        ("", "s3cret"),
        ("HTTP/1.1 200 ", "s3cret "),
        ("HTTP/1.1 200 OK\r\ns3cret: ", "s3cret"),
        ("HTTP/1.1 200 OK\r\n", "s3cret: s3cret\r\n"),
        ("HTTP/1.1 200 OK\r\ns3cret: a\r\n", " s3cret\r\n"),
        ("HTTP/1.1 200 OK\r\n", "\0"),
    ] {
        let error = error_of(first, rest);
        assert!(
            error.is_connection() || error.is_decode(),
            "{first:?} {rest:?}: {error:?}"
        );
    }
    let error = error_of("HTTP/1.1 200 OK\r\ns3cret: ", "s3cret");
    assert!(
        error.is_decode() && error.to_string().contains("larger than 32 KiB"),
        "{error}"
    );
}

#[test]
fn too_many_headers_are_rejected() {
    let headers = "s3cret: 1\r\n".repeat(1000);
    let error = error_of(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n"), "");
    assert!(error.is_connection(), "{error:?}");
}

#[test]
fn invalid_content_length_is_rejected() {
    for length in [
        "-1",
        "+1",
        "1 2",
        "0x10",
        "99999999999999999999999",
        "1, 2",
        "s3cret",
    ] {
        let error = error_of(
            &format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{}}"),
            "",
        );
        assert!(error.is_connection(), "{length}: {error:?}");
    }
    // A huge Content-Length allocates no memory. The error is that the body ends early.
    for length in [u64::MAX, u64::MAX / 2] {
        let error = error_of(
            &format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{}}"),
            "",
        );
        assert!(
            error.is_connection() && error.to_string().contains("before the end"),
            "{error:?}"
        );
    }
}

#[test]
fn ambiguous_body_length_is_rejected() {
    for headers in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 2",
        "Transfer-Encoding: s3cret, chunked",
    ] {
        let error = error_of(
            &format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"),
            "",
        );
        assert!(
            error.is_decode() && error.to_string().contains("Transfer-Encoding"),
            "{error}"
        );
    }
}

#[test]
fn invalid_chunk_ends_the_body_with_an_error() {
    for (chunk, rest) in [
        ("", "1"),
        ("", "0"),
        ("1;", "s3cret"),
        ("1; s3cret=s3cret s3cret s3cret\r\n{\r\n", ""),
        ("s3cret\r\n", ""),
        ("-1\r\n", ""),
        ("fffffffffffffffff\r\n{", ""),
        ("1\r\n{s3cret\r\n", ""),
        ("1\r\n{\r\n\r\n", ""),
        ("1\r\n{\r\n0\r\n", "s3cret"),
        ("ffffffffffffffff\r\n{", ""),
    ] {
        let error = error_of(&format!("{CHUNKED}{chunk}"), rest);
        assert!(
            error.is_connection() || error.is_decode(),
            "{chunk:?} {rest:?}: {error:?}"
        );
    }
}

#[test]
fn endless_interim_responses_hit_the_response_timeout() {
    for rest in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\ns3cret: s3cret\r\n\r\n",
    ] {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let flood = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_request(&mut stream)?;
            loop {
                stream.write_all(rest.as_bytes())?;
            }
        });
        let error = list(address, Duration::from_millis(250)).unwrap_err();
        assert!(
            error.is_timeout() && !error.to_string().contains("s3cret"),
            "{error:?}"
        );
        let flood_result: io::Result<()> = flood.join().unwrap();
        flood_result.unwrap_err();
    }
}

#[test]
fn switching_protocols_response_is_an_error() {
    let error = error_of(
        "HTTP/1.1 101 Switching\r\nUpgrade: s3cret\r\n\r\ns3cret",
        "",
    );
    assert_eq!(error.status().unwrap().code, 101);
}

#[test]
fn bytes_after_response_are_not_used_as_next_response() {
    let server = Server::start(|_| {
        let mut bytes = reply("200 OK", "", "{}");
        bytes.extend(reply("200 OK", "", "{\"smuggled\":true}"));
        Reply::Write(bytes)
    });
    let client = Client::new(Config::new(server.url())).unwrap();
    for _ in 0..5 {
        let body = client
            .lister_watcher(&pods(), None)
            .list(&ListOptions::default(), &Stop::never())
            .unwrap();
        assert_eq!(io::read_to_string(body).unwrap(), "{}");
    }
    assert_eq!(server.accepted(), 5);
}

#[test]
fn list_or_watch_with_wrong_content_type_is_rejected() {
    for (headers, expected) in [
        (
            "Content-Type: text/html; charset=s3cret\r\n",
            "the content type is text/html, not application/json",
        ),
        (
            "Content-Type: application/vnd.kubernetes.protobuf;stream=watch\r\n",
            "kubernetes.protobuf, not",
        ),
        (
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
            "the body is encoded as gzip",
        ),
    ] {
        let server =
            Server::start(move |_| Reply::Write(reply("200 OK", headers, "<html>s3cret</html>")));
        let config = Config::new(server.url()).compression(false);
        let pods = Client::new(config).unwrap().lister_watcher(&pods(), None);
        for (verb, body) in [
            ("list", pods.list(&ListOptions::default(), &Stop::never())),
            ("watch", pods.watch(&ListOptions::default(), &Stop::never())),
        ] {
            let error = body.unwrap_err();
            assert!(error.is_decode(), "{error:?}");
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("{verb} pods: GET {}/api/v1/pods: ", server.url())),
                "{text}"
            );
            assert!(
                text.contains(expected) && text.ends_with("is there a proxy in between?"),
                "{text}"
            );
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
    for headers in [
        "",
        "Content-Type: application/json;stream=watch\r\nContent-Encoding: identity\r\n",
    ] {
        let server = Server::start(move |_| Reply::Write(reply("200 OK", headers, "{}")));
        let pods = Client::new(Config::new(server.url()))
            .unwrap()
            .lister_watcher(&pods(), None);
        for body in [
            pods.list(&ListOptions::default(), &Stop::never()),
            pods.watch(&ListOptions::default(), &Stop::never()),
        ] {
            assert_eq!(io::read_to_string(body.unwrap()).unwrap(), "{}");
        }
    }
}

#[test]
fn watch_with_status_other_than_200_fails() {
    for status in ["204 No Content", "202 Accepted"] {
        let server = Server::start(move |_| Reply::Write(reply(status, "", "")));
        let pods = Client::new(Config::new(server.url()))
            .unwrap()
            .lister_watcher(&pods(), None);
        let error = pods
            .watch(&ListOptions::default(), &Stop::never())
            .unwrap_err();
        assert_eq!(error.status().unwrap().code.to_string(), status[..3]);
        assert!(
            !error.is_retryable() && error.to_string().starts_with("watch pods: GET "),
            "{error}"
        );
    }
}
