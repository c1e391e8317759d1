//! Faults that make a response late, slow, cut, reset, garbled or endless.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer_testing::{ApiServer, Fault, Verb};
use serde_json::json;

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, TIMEOUT};

/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(3600);

/// A server with one object, either small enough for a Content-Length or too large for it.
fn server_with(bytes: usize) -> ApiServer {
    let server = ApiServer::start().unwrap();
    let object = json!({ "metadata": { "name": "a" }, "data": { "x": "x".repeat(bytes) } });
    server.create(CONFIGMAPS, object).unwrap();
    server
}

/// Returns the body of a response with its framing, and the error if the connection does not end
/// cleanly.
fn body(server: &ApiServer) -> (String, Option<ErrorKind>) {
    let mut client = Client::request(server, CONFIGMAPS);
    assert_eq!(client.head().status, 200);
    client.read_to_end()
}

#[test]
fn delayed_response_arrives_late_and_complete() {
    let server = server_with(10);
    let delay = Duration::from_millis(30);
    let mut client = Client::connect(&server);
    for fault in [
        Fault::delay(delay),
        Fault::delay(delay).after_bytes(20),
        Fault::status(503).after(delay),
    ] {
        server.fail_next(fault);
        let start = Instant::now();
        let response = client.get(CONFIGMAPS);
        assert!(start.elapsed() >= delay);
        assert!(
            response.status == 503 || response.names() == ["a"],
            "{response:?}"
        );
    }
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
}

#[test]
fn delay_within_response_does_not_change_its_content() {
    let server = server_with(10);
    server.fail_next(Fault::delay(Duration::from_millis(30)).after_bytes(0));
    let mut client = Client::request(&server, CONFIGMAPS);
    let head = client.head();
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "b" } }))
        .unwrap();
    let mut body = vec![0; head.header("content-length").unwrap().parse().unwrap()];
    std::io::Read::read_exact(&mut client.0, &mut body).unwrap();
    assert!(!String::from_utf8(body).unwrap().contains("\"b\""));
    assert_eq!(client.get(CONFIGMAPS).names(), ["a", "b"]);
}

#[test]
fn reset_before_or_within_response_is_client_error() {
    for bytes in [10, 5000] {
        let server = server_with(bytes);
        server.fail_next(Fault::reset());
        let mut client = Client::request(&server, CONFIGMAPS);
        assert_eq!(
            client.read_to_end(),
            (String::new(), Some(ErrorKind::ConnectionReset))
        );
        server.fail_next(Fault::reset().after_bytes(9));
        let (body, end) = body(&server);
        assert_eq!(end, Some(ErrorKind::ConnectionReset));
        // The operating system of the client may drop data that the client has not read yet.
        assert!(body.len() < 20, "{body}");
        server.wait_for_connections(0, TIMEOUT).unwrap();
    }
}

#[test]
fn closed_response_is_shorter_than_announced() {
    let server = server_with(10);
    server.fail_next(Fault::close().after_bytes(9));
    assert_eq!(body(&server), ("{\"kind\":\"".to_owned(), None));
    server.fail_next(Fault::close().after_bytes(0));
    assert_eq!(body(&server), (String::new(), None));

    let server = server_with(40_000);
    server.fail_next(Fault::close().after_bytes(9));
    assert_eq!(
        body(&server),
        ("8000\r\n{\"kind\":\"".to_owned(), None),
        "within a chunk"
    );
    server.fail_next(Fault::close().after_bytes(0x8000));
    let (body, _) = body(&server);
    assert_eq!(body.len(), "8000\r\n\r\n".len() + 0x8000, "between chunks");
}

#[test]
fn fault_position_past_the_response_has_no_effect() {
    let server = server_with(10);
    server.fail_next(Fault::reset().after_bytes(1_000_000));
    let mut client = Client::connect(&server);
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
    assert_eq!(server.pending_faults(), 0);
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
}

#[test]
fn stalled_response_stops_and_keeps_connection_open() {
    for (fault, expected) in [
        (Fault::stall(), ""),
        (Fault::stall().after_bytes(9), "{\"kind\":\""),
    ] {
        let server = server_with(10);
        server.fail_next(fault);
        let mut client = Client::request(&server, CONFIGMAPS);
        server
            .wait_for_requests(|all| all.len() == 1, TIMEOUT)
            .unwrap();
        if !expected.is_empty() {
            assert_eq!(client.head().status, 200);
            let mut start = vec![0; expected.len()];
            std::io::Read::read_exact(&mut client.0, &mut start).unwrap();
            assert_eq!(start, expected.as_bytes());
        }
        assert_eq!(server.open_connections(), 1);
        drop(server);
        assert_eq!(client.read_to_end().0, "", "more data arrived");
    }
}

#[test]
fn client_disconnect_ends_any_wait_of_a_fault() {
    let server = server_with(10);
    for fault in [
        Fault::stall(),
        Fault::stall().after_bytes(3),
        Fault::delay(FOREVER),
        Fault::drip(1, FOREVER),
        Fault::close().after_bytes(3).after(FOREVER),
    ] {
        server.clear_requests();
        server.fail_next(fault);
        let client = Client::request(&server, CONFIGMAPS);
        server
            .wait_for_requests(|all| all.len() == 1, TIMEOUT)
            .unwrap();
        server.wait_for_connections(1, TIMEOUT).unwrap();
        drop(client);
        server.wait_for_connections(0, TIMEOUT).unwrap();
    }
}

#[test]
fn server_drop_ends_any_wait_of_a_fault() {
    let server = server_with(10);
    server.fail_next(Fault::stall());
    server.fail_next(Fault::delay(FOREVER));
    server.fail_next(Fault::drip(1, FOREVER));
    server.fail_next(Fault::stall().after_events(0));
    let mut clients: Vec<Client> = (1..4)
        .map(|count| {
            let client = Client::request(&server, CONFIGMAPS);
            server
                .wait_for_requests(|all| all.len() == count, TIMEOUT)
                .unwrap();
            client
        })
        .collect();
    clients.push(Client::watch(&server, &format!("{CONFIGMAPS}?watch=true")));
    // This client has already sent its next request, so the server no longer waits for the client
    // to close the connection. Dropping the server must still end the stall.
    clients[0].send("GET", CONFIGMAPS, &[], "");
    let start = Instant::now();
    drop(server);
    assert!(
        start.elapsed() < TIMEOUT,
        "dropping the server did not end the waits"
    );
    for client in &mut clients {
        client.read_to_end();
    }
}

#[test]
fn garbage_replaces_a_response_or_is_inserted_into_it() {
    let server = server_with(10);
    server.fail_next(Fault::garbage("HTTP/1.1 200 OK\r\nContent-Len\0"));
    let mut client = Client::request(&server, CONFIGMAPS);
    assert_eq!(
        client.read_to_end(),
        ("HTTP/1.1 200 OK\r\nContent-Len\0".to_owned(), None)
    );

    // Garbage in the body keeps the framing valid, both with a length and with chunks. Only the
    // reader of the body can notice the garbage.
    for bytes in [10, 5000] {
        let server = server_with(bytes);
        let mut client = Client::connect(&server);
        let right = client.get(CONFIGMAPS).body;
        for place in [0, 9, right.len()] {
            server.fail_next(Fault::garbage([0xff, 0, b'{']).after_bytes(place));
            let response = client.get(CONFIGMAPS);
            let expected = [&right[..place], &[0xff, 0, b'{'], &right[place..]].concat();
            assert_eq!(response.body, expected);
        }
        server.fail_next(Fault::garbage("too late").after_bytes(right.len() + 1));
        assert_eq!(client.get(CONFIGMAPS).body, right);
    }
}

#[test]
fn dripped_response_is_complete_and_arrives_in_parts() {
    for bytes in [10, 5000] {
        let server = server_with(bytes);
        server.fail_next(Fault::drip(200, Duration::from_millis(1)));
        let mut client = Client::connect(&server);
        assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
        assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
    }
    let server = server_with(10);
    server.fail_next(Fault::drip(4, FOREVER).after_bytes(5));
    let mut client = Client::request(&server, CONFIGMAPS);
    client.head();
    let mut start = [0; 9];
    std::io::Read::read_exact(&mut client.0, &mut start).unwrap();
    assert_eq!(&start, b"{\"kind\":\"");
    drop(server);
    assert_eq!(client.read_to_end().0, "", "more than one drip arrived");
}

#[test]
fn write_is_lost_only_if_fault_comes_before_the_response() {
    let server = ApiServer::start().unwrap();
    let faults = [
        Fault::reset(),
        Fault::close(),
        Fault::reset().after_bytes(0),
        Fault::close().after_bytes(0),
    ];
    for (name, fault) in ["a", "b", "c", "d"].into_iter().zip(faults) {
        server.fail_next(fault.on(Verb::Create));
        let mut client = Client::connect(&server);
        client.send(
            "POST",
            CONFIGMAPS,
            &[],
            &json!({ "metadata": { "name": name } }).to_string(),
        );
        client.read_to_end();
    }
    assert_eq!(Client::connect(&server).get(CONFIGMAPS).names(), ["c", "d"]);
}

#[test]
fn pipelined_request_waits_for_the_delayed_response() {
    let server = server_with(10);
    server.fail_next(Fault::delay(Duration::from_millis(10)).times(2));
    let mut client = Client::connect(&server);
    (0..4).for_each(|_| client.send("GET", CONFIGMAPS, &[], ""));
    (0..4).for_each(|_| assert_eq!(client.response().names(), ["a"]));
}

#[test]
fn faults_of_one_connection_do_not_affect_others() {
    let server = server_with(5000);
    server.fail_next(
        Fault::stall()
            .when(|request| request.param("limit") == Some("0"))
            .always(),
    );
    server.fail_next(
        Fault::drip(100, Duration::from_micros(1))
            .when(|r| r.param("limit") == Some("1"))
            .always(),
    );
    server.fail_next(
        Fault::reset()
            .after_bytes(3)
            .when(|r| r.param("limit") == Some("2"))
            .always(),
    );
    let path = |limit: usize| format!("{CONFIGMAPS}?limit={limit}");
    let stalled: Vec<Client> = (0..4).map(|_| Client::request(&server, &path(0))).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut slow = Client::connect(&server);
                for _ in 0..10 {
                    assert_eq!(slow.get(&path(1)).names(), ["a"]);
                    let mut reset = Client::request(&server, &path(2));
                    assert_eq!(reset.read_to_end().1, Some(ErrorKind::ConnectionReset));
                    assert_eq!(Client::connect(&server).get(&path(3)).names(), ["a"]);
                }
            });
        }
    });
    server.wait_for_connections(4, TIMEOUT).unwrap();
    drop(stalled);
    server.wait_for_connections(0, TIMEOUT).unwrap();
}
