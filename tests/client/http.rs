use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use k8s_informer::client::{Request, Response};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Error, Stop};

use super::server::{Reply, Server, ServerEvent, first_chunk, reply};

fn client(server: &Server) -> Client {
    Client::new(Config::new(server.url()).connect_timeout(Duration::from_secs(5))).unwrap()
}

fn get(server: &Server) -> Result<Response, Error> {
    client(server).request(
        &Request::get("/api/v1/pods?continue=s3cret").retries(0),
        &Stop::never(),
    )
}

/// Returns the error of this response. Asserts that its message contains the request, but not the
/// query.
fn failure(bytes: Vec<u8>) -> Error {
    let server = Server::start(move |_| Reply::WriteAndClose(bytes.clone()));
    let error = get(&server).unwrap_err();
    let request_prefix = format!("GET http://{}/api/v1/pods: ", server.address);
    assert!(error.to_string().starts_with(&request_prefix), "{error}");
    assert!(
        !format!("{error} {error:?}").contains("s3cret"),
        "{error:?}"
    );
    error
}

#[test]
fn client_and_config_are_clone_send_sync() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Client>();
    shared::<Config>();
}

/// Returns the file name of this test program.
fn program() -> String {
    let path = std::env::args().next().unwrap();
    Path::new(&path)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

#[test]
fn request_has_expected_path_and_headers() {
    let server = Server::answering("{}");
    let client =
        Client::new(Config::new(format!("{}/prefix/", server.url())).token("abc")).unwrap();
    client
        .request(&Request::get("/version").query("a", "b c"), &Stop::never())
        .unwrap();
    let request = server.request().to_ascii_lowercase();
    assert!(
        request.starts_with("get /prefix/version?a=b%20c http/1.1\r\n"),
        "{request}"
    );
    for line in [
        format!("host: {}", server.address),
        "authorization: bearer abc".to_owned(),
        "accept: application/json".to_owned(),
        "accept-encoding: identity".to_owned(),
        format!(
            "user-agent: {}/{} ({}/{}) k8s-informer",
            program(),
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        ),
    ] {
        assert!(
            request.lines().any(|given| given == line),
            "{line} in {request}"
        );
    }
    assert!(!request.contains("content-"), "{request}");
}

#[test]
fn user_agent_is_sent_as_utf8() {
    let server = Server::answering("{}");
    let config = Config::new(server.url()).user_agent("prögräm 1/2");
    let client = Client::new(config).unwrap();
    client
        .request(&Request::get("/version"), &Stop::never())
        .unwrap();
    let request = server.request();
    assert!(request.contains("prögräm 1/2\r\n"), "{request}");
}

#[test]
fn bodies_are_sent_with_every_write_method() {
    let server = Server::answering("{}");
    let client = Client::new(Config::new(server.url()).user_agent("mine/1")).unwrap();
    let json = serde_json::json!({"a": 1});
    for (request, expected) in [
        (Request::post("/p").json(&json).unwrap(), "POST"),
        (Request::put("/p").json(&json).unwrap(), "PUT"),
        (
            Request::patch("/p")
                .json(&json)
                .unwrap()
                .content_type("application/merge-patch+json"),
            "PATCH",
        ),
        (Request::delete("/p").json(&json).unwrap(), "DELETE"),
    ] {
        assert_eq!(
            client
                .request(&request, &Stop::never())
                .unwrap()
                .json::<serde_json::Value>()
                .unwrap(),
            serde_json::json!({})
        );
        let sent = server.request();
        assert!(
            sent.starts_with(expected) && sent.ends_with("\r\n\r\n{\"a\":1}"),
            "{sent}"
        );
        assert!(sent.contains("user-agent: mine/1\r\n"), "{sent}");
        assert_eq!(
            sent.contains("application/merge-patch+json"),
            expected == "PATCH"
        );
    }
    client
        .request(&Request::post("/p"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    assert!(server.request().contains("content-length: 0\r\n"));
    client
        .request(&Request::delete("/p"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    assert!(!server.request().contains("content-"));
}

#[test]
fn error_responses_become_status_errors() {
    let forbidden = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#;
    let error = failure(reply("403 Forbidden", "", forbidden));
    assert!(error.is_forbidden() && !error.is_retryable());
    assert_eq!(
        error.status().unwrap().details.as_ref().unwrap().kind,
        "pods"
    );

    let error = failure(reply("404 Not Found", "", "404 page not found\n"));
    assert!(error.is_not_found());
    let error = error.to_string();
    assert!(
        error.contains("404 page not found: ") && error.contains("CustomResourceDefinition"),
        "{error}"
    );

    let error = failure(reply(
        "500 Oops",
        "Content-Type: text/html\r\n",
        "<html>\x07bad</html>",
    ));
    assert!(error.is_retryable() && error.is_internal_error());
    assert!(
        error.to_string().ends_with(r"<html>\u{7}bad</html> (500)"),
        "{error}"
    );

    let error = failure(reply("429 Slow", "Retry-After: 3\r\n", ""));
    assert!(error.is_too_many_requests());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));

    let error = failure(reply(
        "302 Found",
        "Location: http://elsewhere/x?t=s3cret\r\n",
        "",
    ));
    assert!(
        error
            .to_string()
            .ends_with("redirects to http://elsewhere/x; redirects are not followed (302)"),
        "{error}"
    );
    assert_eq!(error.status().unwrap().code, 302);

    // An error response with a truncated body keeps its status.
    let error = failure(b"HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\nbusy".to_vec());
    assert_eq!(error.status().unwrap().code, 503);
}

#[test]
fn broken_response_is_a_connection_or_decode_error() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 20",
        b"\x15\x03\x01\x00\x02s3cret\r\n\r\n",
        b"SSH-2.0-OpenSSH s3cret\r\n\r\n",
    ] {
        let error = failure(bytes.to_vec());
        assert!(
            error.is_connection() && error.is_retryable(),
            "{bytes:?}: {error:?}"
        );
        assert!(!error.is_connection_refused() && !error.is_tls());
    }
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let error = failure(huge.into_bytes());
    assert!(error.is_decode(), "{error:?}");
    assert!(error.to_string().contains("larger than 32 KiB"), "{error}");
}

#[test]
fn refused_or_unresolvable_server_is_a_connection_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(Config::new(format!("http://{address}"))).unwrap();
    let error = client
        .request(&Request::get("/version"), &Stop::never())
        .unwrap_err();
    assert!(error.is_connection_refused() && error.is_connection() && error.is_retryable());
    assert!(
        error.to_string().starts_with(&format!(
            "GET http://{address}/version: connect to {address}: "
        )),
        "{error}"
    );

    let client = Client::new(Config::new("http://no-such-host.invalid:1")).unwrap();
    let error = client
        .request(&Request::get("/version"), &Stop::never())
        .unwrap_err();
    assert!(
        error.is_connection() && !error.is_connection_refused(),
        "{error:?}"
    );
}

#[test]
fn token_of_20_kb_is_sent_and_of_40_kb_is_an_error() {
    let server = Server::answering("{}");
    let send = |length| {
        let client = Client::new(Config::new(server.url()).token("t".repeat(length))).unwrap();
        client.request(&Request::get("/"), &Stop::never())
    };
    send(20_000).unwrap();
    let error = send(40_000).unwrap_err();
    assert!(!error.to_string().contains("ttt"), "{error}");
}

#[test]
fn connection_is_reused_after_body_is_read() {
    let server = Server::start(|_| {
        Reply::Write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_vec(),
        )
    });
    let client = client(&server);
    for _ in 0..5 {
        let mut body = client
            .request(&Request::get("/"), &Stop::never())
            .unwrap()
            .into_body();
        let mut text = String::new();
        body.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{}");
    }
    assert_eq!(server.accepted(), 1);
    // Error responses are read to the end, so their connections are reused.
    let server = Server::start(|_| Reply::Write(reply("404 No", "", "no")));
    let client = self::client(&server);
    for _ in 0..3 {
        client
            .request(&Request::get("/"), &Stop::never())
            .unwrap_err();
    }
    assert_eq!(server.accepted(), 1);
}

#[test]
fn dropped_body_closes_its_connection() {
    let server = Server::start(|_| Reply::WriteAndHang(first_chunk("{")));
    let client = client(&server);
    let response = client.request(&Request::get("/"), &Stop::never()).unwrap();
    server.request();
    drop(response);
    assert_eq!(server.next(), ServerEvent::Closed);
}

#[test]
fn get_on_closed_pooled_connection_is_retried() {
    // Closes the connection at the second request. The client cannot notice this before it sends.
    fn server() -> Server {
        let count = std::sync::atomic::AtomicUsize::new(0);
        Server::start(
            move |_| match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                1 => Reply::WriteAndClose(Vec::new()),
                _ => Reply::Write(reply("200 OK", "", "{}")),
            },
        )
    }
    let server1 = server();
    let first = client(&server1);
    for _ in 0..3 {
        first
            .request(&Request::get("/"), &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
    }
    assert_eq!(server1.accepted(), 2);

    let server2 = server();
    let second = client(&server2);
    second
        .request(&Request::post("/"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    let error = second
        .request(&Request::post("/"), &Stop::never())
        .unwrap_err();
    assert!(
        error.is_connection(),
        "a write must not be sent twice: {error:?}"
    );
    assert_eq!(server2.accepted(), 1);
}

#[test]
fn truncated_body_error_names_the_request() {
    let server = Server::start(|_| Reply::WriteAndClose(first_chunk("{\"a\"")));
    let mut body = get(&server).unwrap().into_body();
    let mut text = Vec::new();
    let error = body.read_to_end(&mut text).unwrap_err();
    assert_eq!(text, b"{\"a\"");
    let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert!(inner.is_connection(), "{inner:?}");
    assert!(
        inner
            .to_string()
            .contains("/api/v1/pods: the server closed the connection"),
        "{inner}"
    );
    assert!(
        body.read(&mut [0; 10]).is_err(),
        "a read after an error must fail"
    );

    let error = get(&server)
        .unwrap()
        .json::<serde_json::Value>()
        .unwrap_err();
    assert!(error.is_connection(), "{error:?}");
}

#[test]
fn json_type_error_has_position_without_value() {
    let server = Server::answering("{\"a\":\n \"s3cret\"}");
    let error = get(&server)
        .unwrap()
        .json::<std::collections::BTreeMap<String, u32>>()
        .unwrap_err();
    assert!(error.is_decode());
    assert!(
        error
            .to_string()
            .ends_with("[…]: invalid type: string, expected u32 at line 2 column 9"),
        "{error}"
    );
    assert!(!format!("{error:?}").contains("s3cret"));
    assert!(get(&server).unwrap().json::<serde_json::Value>().is_ok());
}

#[test]
fn silent_server_causes_timeout() {
    let server = Server::start(|_| Reply::WriteAndHang(Vec::new()));
    let request = Request::get("/").response_timeout(Duration::from_millis(50));
    let error = client(&server)
        .request(&request, &Stop::never())
        .unwrap_err();
    assert!(error.is_timeout() && error.is_retryable(), "{error:?}");

    let server = Server::start(|_| Reply::WriteAndHang(first_chunk("{")));
    let request = Request::get("/").idle_timeout(Duration::from_millis(50));
    let mut body = client(&server)
        .request(&request, &Stop::never())
        .unwrap()
        .into_body();
    let error = io::copy(&mut body, &mut io::sink()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(
        error
            .get_ref()
            .unwrap()
            .downcast_ref::<Error>()
            .unwrap()
            .is_timeout()
    );
    // `Duration::MAX` and `None` set no limit.
    let server = Server::answering("{}");
    let client = Client::new(
        Config::new(server.url())
            .connect_timeout(Duration::MAX)
            .response_timeout(None),
    )
    .unwrap();
    client
        .request(
            &Request::get("/").idle_timeout(Duration::MAX),
            &Stop::never(),
        )
        .unwrap()
        .bytes()
        .unwrap();
}

#[test]
fn lister_watcher_sends_resource_path_and_names_it_in_errors() {
    let server = Server::start(|_| Reply::Write(reply("403 No", "", "no")));
    let client = client(&server);
    let deployments = GroupVersionResource::new("apps", "v1", "deployments");
    let watcher = client.lister_watcher(&deployments, Some("a b"));
    assert_eq!(
        watcher.description(),
        r#"deployments.apps in namespace "a b""#
    );
    let mut options = ListOptions::default();
    options.limit = Some(5);
    let error = watcher.list(&options, &Stop::never()).unwrap_err();
    assert!(
        server
            .request()
            .starts_with("GET /apis/apps/v1/namespaces/a%20b/deployments?limit=5 HTTP")
    );
    let expected = format!(
        "list deployments.apps in namespace \"a b\": GET http://{}/apis/apps/v1/namespaces/a%20b/deployments: no (403)",
        server.address
    );
    assert_eq!(error.to_string(), expected);

    let pods = GroupVersionResource::new("", "v1", "pods");
    let all_namespaces = client.lister_watcher(&pods, None);
    assert_eq!(all_namespaces.description(), "pods");
    all_namespaces
        .watch(&ListOptions::default(), &Stop::never())
        .unwrap_err();
    let request = server.request();
    assert!(
        request.starts_with("GET /api/v1/pods?watch=true HTTP"),
        "{request}"
    );
    assert!(
        request.contains("accept-encoding: identity\r\n"),
        "{request}"
    );
}

#[test]
fn localhost_is_reached_at_its_ipv4_address() {
    // On most machines, `localhost` is also `::1`, where nothing listens.
    let server = Server::answering("{}");
    let url = format!("http://localhost:{}", server.address.port());
    Client::new(Config::new(url))
        .unwrap()
        .request(&Request::get("/"), &Stop::never())
        .unwrap();
}

fn raw_response(head: &str, body: &str) -> Result<Response, Error> {
    let bytes = format!("{head}\r\n\r\n{body}").into_bytes();
    get(&Server::start(move |_| Reply::WriteAndClose(bytes.clone())))
}

#[test]
fn unusual_but_valid_http_responses_are_accepted() {
    for (head, body) in [
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2",
            "{}",
        ),
        (
            "HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2",
            "{}",
        ),
        ("HTTP/1.1 200\r\nContent-Length: 2", "{}"),
        ("HTTP/1.1 200 \r\ncontent-LENGTH:2", "{}"),
        ("HTTP/1.1 200 OK\r\nX-Empty:\r\nContent-Length: 2", "{}"),
        ("HTTP/1.1 299 Fine\r\nContent-Length: 2", "{}"),
        // The body ends with the connection.
        ("HTTP/1.1 200 OK\r\nConnection: close", "{}"),
        ("HTTP/1.0 200 OK", "{}"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
            "2;name=\"value\"\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
            "0000002\r\n{}\r\n000;last\r\n\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
            "1\r\n{\r\n1\r\n}\r\n0\r\nTrailer: value\r\n\r\n",
        ),
    ] {
        match raw_response(head, body).and_then(Response::bytes) {
            Ok(bytes) => assert_eq!(bytes, b"{}", "{head}"),
            Err(error) => panic!("{head:?} {body:?}: {error}"),
        }
    }
}

#[test]
fn response_without_body_is_empty() {
    for head in [
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 204 No Content\r\nContent-Length: 0",
        "HTTP/1.1 200 OK\r\nContent-Length: 0",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0",
    ] {
        assert_eq!(
            raw_response(head, "").unwrap().bytes().unwrap(),
            b"",
            "{head}"
        );
        let error = raw_response(head, "")
            .unwrap()
            .json::<serde_json::Value>()
            .unwrap_err();
        assert!(
            error.is_decode() && error.to_string().contains("EOF while parsing"),
            "{head}: {error}"
        );
    }
    // The client sends no conditional requests, so 304 is an error.
    let error = raw_response("HTTP/1.1 304 Not Modified\r\nETag: \"a\"", "").unwrap_err();
    assert_eq!(error.status().unwrap().code, 304);
    // A 204 has no body. The bytes after its head are not the next response.
    let server = Server::start(|_| {
        Reply::Write(
            b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
                .to_vec(),
        )
    });
    let client = client(&server);
    for _ in 0..3 {
        assert_eq!(
            client
                .request(&Request::get("/"), &Stop::never())
                .unwrap()
                .bytes()
                .unwrap(),
            b""
        );
    }
    assert_eq!(server.accepted(), 3);
}
