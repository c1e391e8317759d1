//! HTTP itself: framing, keep-alive, limits and invalid input.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use k8s_informer_testing::ApiServer;
use serde_json::json;

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, TIMEOUT};

fn post(name: &str) -> String {
    json!({ "metadata": { "name": name } }).to_string()
}

/// Sends raw bytes and reads until the server closes.
fn exchange(server: &ApiServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn connection_serves_sequential_and_pipelined_requests() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    for _ in 0..3 {
        assert_eq!(client.get(CONFIGMAPS).status, 200);
    }
    client.write(
        format!("GET {CONFIGMAPS}/nope HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\n\r\n").as_bytes(),
    );
    assert_eq!(client.response().status, 404);
    assert_eq!(client.response().body, b"ok");
    assert_eq!(client.get("/version").json()["minor"], "36");
    assert_eq!(server.open_connections(), 1);
}

#[test]
fn watch_ends_before_pipelined_request_is_answered() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    let watch = format!("GET {CONFIGMAPS}?watch=true HTTP/1.1\r\n\r\n");
    client.write(format!("{watch}GET /livez HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(client.head().status, 200);
    server.close_watches();
    client.assert_end();
    assert_eq!(client.response().body, b"ok");
    // A server with a pipelined request behind an open watch can still be stopped.
    client.write(format!("{watch}GET /livez HTTP/1.1\r\n\r\n").as_bytes());
    server.wait_for_watches(1, TIMEOUT).unwrap();
    drop(server);
}

#[test]
fn connection_close_closes_the_connection() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    client.write(b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().header("connection"), Some("close"));
    client.assert_closed();
}

#[test]
fn long_responses_are_chunked_short_ones_have_a_length() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    assert!(client.get(CONFIGMAPS).header("content-length").is_some());
    let object = json!({ "metadata": { "name": "big" }, "data": { "x": "y".repeat(100_000) } });
    server.create(CONFIGMAPS, object).unwrap();
    let list = client.get(CONFIGMAPS);
    assert_eq!(list.header("content-length"), None);
    assert_eq!(list.names(), ["big"]);
}

#[test]
fn oversized_requests_are_rejected() {
    let server = ApiServer::start().unwrap();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
    assert!(exchange(&server, long.as_bytes()).starts_with("HTTP/1.1 431 "));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000));
    assert!(exchange(&server, many.as_bytes()).starts_with("HTTP/1.1 431 "));
    for framing in [
        "Content-Length: 4000000",
        "Content-Length: 99999999999999999999",
    ] {
        let head = format!("POST {CONFIGMAPS} HTTP/1.1\r\n{framing}\r\n\r\nfffffffe\r\n");
        let response = exchange(&server, head.as_bytes());
        assert!(
            response.starts_with("HTTP/1.1 413 ") && response.contains("\"Status\""),
            "{framing}: {response}"
        );
    }
}

#[test]
fn malformed_requests_are_rejected_without_side_effects() {
    let server = ApiServer::start().unwrap();
    for nonsense in [
        "\r\n\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ] {
        let response = exchange(&server, nonsense.as_bytes());
        assert!(
            response.starts_with("HTTP/1.1 400 ") && response.contains("Connection: close"),
            "{nonsense}: {response}"
        );
    }
    assert!(
        exchange(
            &server,
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        .starts_with("HTTP/1.1 501 ")
    );
    let head = exchange(
        &server,
        format!("HEAD {CONFIGMAPS} HTTP/1.1\r\n\r\n").as_bytes(),
    );
    assert!(
        head.starts_with("HTTP/1.1 405 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert_eq!(exchange(&server, b"GET / HTTP/1.1\r\nHalf: a he"), "");
    assert_eq!(
        exchange(&server, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"),
        ""
    );

    // Bodies that are not valid objects or patches. POST and PUT reject them.
    let mut client = Client::connect(&server);
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for body in [
        "[]",
        "null",
        "7",
        "{\"metadata\":[]}",
        "{\"metadata\":{\"labels\":{\"a\":1}}}",
        &deep,
        "\u{fffd}",
    ] {
        let json = [("Content-Type".to_owned(), "application/json".to_owned())];
        for method in ["POST", "PUT"] {
            let path = if method == "POST" {
                CONFIGMAPS.to_owned()
            } else {
                format!("{CONFIGMAPS}/a")
            };
            client.send(method, &path, &json, body);
            assert_eq!(client.response().status, 400, "{method} {body}");
        }
        for kind in ["merge-patch", "json-patch", "strategic-merge-patch"] {
            let kind = [(
                "Content-Type".to_owned(),
                format!("application/{kind}+json"),
            )];
            client.send("PATCH", &format!("{CONFIGMAPS}/a"), &kind, body);
            let status = client.response().status;
            assert!(status < 500, "{body}: {status}");
        }
    }
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
}

/// Damages valid requests. Whatever the result, the server answers the next request.
#[test]
fn damaged_requests_do_not_stop_the_server() {
    let server = ApiServer::start().unwrap();
    let body = post("x");
    let good = format!(
        "PATCH {CONFIGMAPS}/a?fieldManager=x&dryRun=%41ll HTTP/1.1\r\nContent-Type: application/merge-patch+json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut random = 1_u64;
    let mut next = |bound: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % bound
    };
    for _ in 0..300 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => drop(bytes.drain(at..(at + next(20)).min(bytes.len()))),
                _ => bytes.insert(at, b"\r\n %&?=/{}[]\"\0"[next(14)]),
            }
        }
        exchange(&server, &bytes);
    }
    assert_eq!(Client::connect(&server).get("/livez").status, 200);
}
