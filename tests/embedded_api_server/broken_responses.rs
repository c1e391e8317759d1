//! Faults that make a response late, slow, cut, reset, garbled or endless.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::testing::{ApiServer, Fault, Verb};
use serde_json::json;

use crate::embedded_api_server::client::Client;
use crate::embedded_api_server::{CONFIGMAPS, PATIENCE};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A server with one object, either small enough for a Content-Length or too large for it.
fn server_with(bytes: usize) -> ApiServer {
    let server = ApiServer::start().unwrap();
    let object = json!({ "metadata": { "name": "a" }, "data": { "x": "x".repeat(bytes) } });
    server.create(CONFIGMAPS, object).unwrap();
    server
}

/// Returns the body of a response with its framing, and how the connection ends.
fn body(server: &ApiServer) -> (String, Option<ErrorKind>) {
    let mut client = Client::ask(server, CONFIGMAPS);
    assert_eq!(client.head().status, 200);
    client.rest()
}

#[test]
fn a_delayed_answer_comes_later_and_whole() {
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
fn what_is_delayed_within_the_answer_was_decided_before() {
    let server = server_with(10);
    server.fail_next(Fault::delay(Duration::from_millis(30)).after_bytes(0));
    let mut client = Client::ask(&server, CONFIGMAPS);
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
fn reset_before_or_within_answer_is_client_error() {
    for bytes in [10, 5000] {
        let server = server_with(bytes);
        server.fail_next(Fault::reset());
        let mut client = Client::ask(&server, CONFIGMAPS);
        assert_eq!(
            client.rest(),
            (String::new(), Some(ErrorKind::ConnectionReset))
        );
        server.fail_next(Fault::reset().after_bytes(9));
        let (body, end) = body(&server);
        assert_eq!(end, Some(ErrorKind::ConnectionReset));
        // The operating system of the client may drop data that the client has not read yet.
        assert!(body.len() < 20, "{body}");
        assert!(server.wait_for_connections(0, PATIENCE));
    }
}

#[test]
fn a_cut_answer_has_promised_more_than_it_gives() {
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
fn an_answer_shorter_than_the_place_of_its_fault_is_left_alone() {
    let server = server_with(10);
    server.fail_next(Fault::reset().after_bytes(1_000_000));
    let mut client = Client::connect(&server);
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
    assert_eq!(server.pending_faults(), 0);
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
}

#[test]
fn stalled_answer_stops_and_keeps_connection_open() {
    for (fault, expected) in [
        (Fault::stall(), ""),
        (Fault::stall().after_bytes(9), "{\"kind\":\""),
    ] {
        let server = server_with(10);
        server.fail_next(fault);
        let mut client = Client::ask(&server, CONFIGMAPS);
        assert!(server.wait_for_requests(|all| all.len() == 1, PATIENCE));
        if !expected.is_empty() {
            assert_eq!(client.head().status, 200);
            let mut start = vec![0; expected.len()];
            std::io::Read::read_exact(&mut client.0, &mut start).unwrap();
            assert_eq!(start, expected.as_bytes());
        }
        assert_eq!(server.open_connections(), 1);
        drop(server);
        assert_eq!(client.rest().0, "", "more has come");
    }
}

#[test]
fn whatever_a_fault_waits_for_ends_when_the_client_leaves() {
    let server = server_with(10);
    for fault in [
        Fault::stall(),
        Fault::stall().after_bytes(3),
        Fault::delay(FOR_EVER),
        Fault::drip(1, FOR_EVER),
        Fault::close().after_bytes(3).after(FOR_EVER),
    ] {
        server.clear_requests();
        server.fail_next(fault);
        let client = Client::ask(&server, CONFIGMAPS);
        assert!(server.wait_for_requests(|all| all.len() == 1, PATIENCE));
        assert!(server.wait_for_connections(1, PATIENCE));
        drop(client);
        assert!(server.wait_for_connections(0, PATIENCE));
    }
}

#[test]
fn whatever_a_fault_waits_for_ends_when_the_server_goes() {
    let server = server_with(10);
    server.fail_next(Fault::stall());
    server.fail_next(Fault::delay(FOR_EVER));
    server.fail_next(Fault::drip(1, FOR_EVER));
    server.fail_next(Fault::stall().after_events(0));
    let mut clients: Vec<Client> = (1..4)
        .map(|count| {
            let client = Client::ask(&server, CONFIGMAPS);
            assert!(server.wait_for_requests(|all| all.len() == count, PATIENCE));
            client
        })
        .collect();
    clients.push(Client::watch(&server, &format!("{CONFIGMAPS}?watch=true")));
    // This client has already sent its next request, so the server no longer waits for the client
    // to close the connection. Dropping the server must still end the stall.
    clients[0].send("GET", CONFIGMAPS, &[], "");
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < PATIENCE, "it was not woken");
    for client in &mut clients {
        client.rest();
    }
}

#[test]
fn garbage_takes_the_place_of_an_answer_or_a_place_in_it() {
    let server = server_with(10);
    server.fail_next(Fault::garbage("HTTP/1.1 200 OK\r\nContent-Len\0"));
    let mut client = Client::ask(&server, CONFIGMAPS);
    assert_eq!(
        client.rest(),
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
fn a_dripped_answer_is_whole_and_comes_bit_by_bit() {
    for bytes in [10, 5000] {
        let server = server_with(bytes);
        server.fail_next(Fault::drip(200, Duration::from_millis(1)));
        let mut client = Client::connect(&server);
        assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
        assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
    }
    let server = server_with(10);
    server.fail_next(Fault::drip(4, FOR_EVER).after_bytes(5));
    let mut client = Client::ask(&server, CONFIGMAPS);
    client.head();
    let mut start = [0; 9];
    std::io::Read::read_exact(&mut client.0, &mut start).unwrap();
    assert_eq!(&start, b"{\"kind\":\"");
    drop(server);
    assert_eq!(client.rest().0, "", "more than a drop has come");
}

#[test]
fn fault_before_answer_prevents_write_fault_within_does_not() {
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
        client.rest();
    }
    assert_eq!(Client::connect(&server).get(CONFIGMAPS).names(), ["c", "d"]);
}

#[test]
fn pipelined_request_waits_for_delayed_one() {
    let server = server_with(10);
    server.fail_next(Fault::delay(Duration::from_millis(10)).times(2));
    let mut client = Client::connect(&server);
    (0..4).for_each(|_| client.send("GET", CONFIGMAPS, &[], ""));
    (0..4).for_each(|_| assert_eq!(client.response().names(), ["a"]));
}

#[test]
fn faults_of_many_connections_do_not_disturb_one_another() {
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
    let stalled: Vec<Client> = (0..4).map(|_| Client::ask(&server, &path(0))).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut slow = Client::connect(&server);
                for _ in 0..10 {
                    assert_eq!(slow.get(&path(1)).names(), ["a"]);
                    let mut reset = Client::ask(&server, &path(2));
                    assert_eq!(reset.rest().1, Some(ErrorKind::ConnectionReset));
                    assert_eq!(Client::connect(&server).get(&path(3)).names(), ["a"]);
                }
            });
        }
    });
    assert!(server.wait_for_connections(4, PATIENCE));
    drop(stalled);
    assert!(server.wait_for_connections(0, PATIENCE));
}
