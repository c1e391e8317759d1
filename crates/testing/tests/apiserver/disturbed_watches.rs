//! Faults that disturb a watch, from its first byte or while it is open.

use std::io::ErrorKind;
use std::time::Duration;

use k8s_informer_testing::{ApiServer, Fault, Verb};
use serde_json::json;

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS, TIMEOUT};

const STREAMING: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A server with the objects a, b and c, at the versions 5, 6 and 7.
fn server() -> ApiServer {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b", "c"] {
        server
            .create(CONFIGMAPS, json!({ "metadata": { "name": name } }))
            .unwrap();
    }
    server
}

fn watch(server: &ApiServer) -> Client {
    Client::watch(server, &format!("{CONFIGMAPS}?watch=true"))
}

/// Changes an object, which sends an event to every watch.
fn touch(server: &ApiServer, name: &str) {
    let value = server.resource_version().to_string();
    server
        .patch(
            &format!("{CONFIGMAPS}/{name}"),
            json!({ "data": { "value": value } }),
        )
        .unwrap();
}

#[test]
fn watch_breaks_after_an_event_or_within_one() {
    for (fault, end) in [
        (Fault::close(), None),
        (Fault::reset(), Some(ErrorKind::ConnectionReset)),
    ] {
        let server = server();
        server.fail_next(fault.clone().after_events(2));
        let mut broken = watch(&server);
        let (text, error) = broken.read_to_end();
        assert_eq!(error, end);
        if end.is_none() {
            let events: Vec<&str> = text
                .split("\r\n")
                .filter(|line| line.starts_with('{'))
                .collect();
            assert_eq!(events.len(), 2, "{text}");
            assert!(
                events[1].contains("\"b\"") && text.ends_with("}\n\r\n"),
                "{text}"
            );
        }
        server.fail_next(fault.after_events(1).after_bytes(15));
        let mut broken = watch(&server);
        let (text, error) = broken.read_to_end();
        assert_eq!(error, end);
        assert!(
            end.is_some() || text.ends_with("\r\n{\"type\":\"ADDED\""),
            "{text}"
        );
        server.wait_for_watches(0, TIMEOUT).unwrap();
        server.wait_for_connections(0, TIMEOUT).unwrap();
    }
}

#[test]
fn stalled_watch_stays_open_without_further_events() {
    let server = server();
    server.fail_next(Fault::stall().after_events(4));
    let mut stalled = watch(&server);
    assert_eq!(
        (stalled.event(), stalled.event()),
        ("ADDED a 5".to_owned(), "ADDED b 6".to_owned())
    );
    assert_eq!(stalled.event(), "ADDED c 7");
    touch(&server, "a");
    assert_eq!(stalled.event(), "MODIFIED a 8");
    touch(&server, "a");
    let mut other = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=8"),
    );
    assert_eq!(other.event(), "MODIFIED a 9");
    assert_eq!(server.open_watches(), 2);
    drop(other);
    server.wait_for_watches(1, TIMEOUT).unwrap();
    drop(server);
    assert_eq!(stalled.read_to_end().0, "", "more data arrived");
}

#[test]
fn stalled_watch_ends_when_its_client_disconnects() {
    let server = server();
    server.fail_next(Fault::stall().after_events(1));
    let mut stalled = watch(&server);
    assert_eq!(stalled.event(), "ADDED a 5");
    drop(stalled);
    server.wait_for_watches(0, TIMEOUT).unwrap();
    server.wait_for_connections(0, TIMEOUT).unwrap();
}

#[test]
fn garbage_is_sent_between_or_within_events() {
    let server = server();
    let long = "x".repeat(1 << 20);
    for garbage in ["no json\n", "\0\0\0\n", &long, "\n"] {
        server.fail_next(Fault::garbage(garbage).after_events(1));
        let mut watch = watch(&server);
        assert_eq!(watch.event(), "ADDED a 5");
        assert_eq!(watch.chunk().unwrap().as_deref(), Some(garbage.as_bytes()));
        assert_eq!(watch.event(), "ADDED b 6");
    }
    server.fail_next(Fault::garbage([0xc3]).after_events(1).after_bytes(3));
    let mut watch = watch(&server);
    assert_eq!(watch.event(), "ADDED a 5");
    let parts: Vec<Vec<u8>> = (0..3).map(|_| watch.chunk().unwrap().unwrap()).collect();
    assert_eq!((&*parts[0], &*parts[1]), (&b"{\"t"[..], &b"\xc3"[..]));
    assert!(parts[2].starts_with(b"ype\":"));
    assert_eq!(watch.event(), "ADDED c 7");
}

#[test]
fn status_after_events_is_an_error_event_ending_the_watch() {
    let server = server();
    for (code, reason) in [
        (410, "Expired"),
        (500, "InternalError"),
        (429, "TooManyRequests"),
    ] {
        server.fail_next(Fault::status(code).retry_after(3).after_events(2));
        let mut watch = watch(&server);
        assert_eq!(
            (watch.event(), watch.event()),
            ("ADDED a 5".to_owned(), "ADDED b 6".to_owned())
        );
        let error = watch.event_json();
        assert_eq!(
            (&error["type"], &error["object"]["code"]),
            (&"ERROR".into(), &code.into())
        );
        assert_eq!(
            (&error["object"]["kind"], &error["object"]["reason"]),
            (&"Status".into(), &reason.into())
        );
        assert_eq!(error["object"]["details"]["retryAfterSeconds"], 3);
        watch.assert_end();
        assert_eq!(
            watch.get(CONFIGMAPS).status,
            200,
            "the connection stays usable"
        );
    }
    server.fail_next(Fault::status(410).after_events(0));
    let mut watch = watch(&server);
    assert_eq!(watch.event_json()["type"], "ERROR");
    watch.assert_end();
}

#[test]
fn watch_can_be_ended_at_once_or_after_events() {
    let server = server();
    server.fail_next(Fault::end_watch());
    server.fail_next(Fault::end_watch().after_events(3));
    let mut short = watch(&server);
    short.assert_end();
    short.send(
        "GET",
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=4"),
        &[],
        "",
    );
    assert_eq!(short.head().status, 200);
    for expected in ["ADDED a 5", "ADDED b 6", "ADDED c 7"] {
        assert_eq!(short.event(), expected);
    }
    short.assert_end();
    assert_eq!(server.open_watches(), 0);
}

#[test]
fn streaming_list_without_bookmarks_ends_without_completing() {
    let server = ApiServer::builder()
        .bookmark_interval(Duration::from_millis(1))
        .start()
        .unwrap();
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    server.fail_next(Fault::no_bookmarks());
    let mut watch = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?{STREAMING}&timeoutSeconds=1"),
    );
    assert_eq!(watch.event(), "ADDED a 5");
    touch(&server, "a");
    assert_eq!(watch.event(), "MODIFIED a 6");
    watch.assert_end();
}

#[test]
fn disabled_streaming_list_returns_422() {
    let server = ApiServer::builder().watch_list(false).start().unwrap();
    let mut client = Client::connect(&server);
    let refused = client.get(&format!("{CONFIGMAPS}?{STREAMING}"));
    assert_eq!(refused.status, 422);
    let causes = &refused.json()["details"]["causes"];
    assert_eq!(causes[0]["field"], "sendInitialEvents");
    assert_eq!(causes[0]["reason"], "FieldValueForbidden");
    assert_eq!(client.get(CONFIGMAPS).status, 200);
    watch(&server);
}

#[test]
fn dripped_initial_events_arrive_complete_and_in_parts() {
    let server = server();
    server.fail_next(Fault::drip(64, Duration::from_millis(1)));
    let mut slow = Client::watch(&server, &format!("{CONFIGMAPS}?{STREAMING}"));
    for expected in ["ADDED a 5", "ADDED b 6", "ADDED c 7", "BOOKMARK - 7"] {
        assert_eq!(slow.event(), expected);
    }
    server.fail_next(Fault::drip(10, Duration::from_secs(3600)).after_events(2));
    let mut slow = watch(&server);
    assert_eq!(
        (slow.event(), slow.event()),
        ("ADDED a 5".to_owned(), "ADDED b 6".to_owned())
    );
    let mut drip = [0; 10];
    std::io::Read::read_exact(&mut slow.0, &mut drip).unwrap();
    drop(server);
    assert_eq!(slow.read_to_end().0, "", "more than one drip arrived");
}

#[test]
fn faults_that_count_events_affect_only_watches() {
    let server = server();
    for fault in [
        Fault::close().after_events(0),
        Fault::end_watch(),
        Fault::no_bookmarks(),
    ] {
        server.fail_next(fault);
    }
    let mut client = Client::connect(&server);
    assert_eq!(client.get(CONFIGMAPS).names(), ["a", "b", "c"]);
    assert_eq!(server.pending_faults(), 3);
    let refused = client.get(&format!("{CONFIGMAPS}?watch=true&resourceVersion=x"));
    assert_eq!(
        refused.status, 500,
        "a watch rejected before its events is answered normally"
    );
    assert_eq!(server.pending_faults(), 2);
}

#[test]
fn fail_watches_affects_matching_open_watches_in_order() {
    let server = server();
    let mut maps = watch(&server);
    let mut pods = Client::watch(&server, &format!("{PODS}?watch=true"));
    assert_eq!(maps.event(), "ADDED a 5");
    let of_maps = |fault: Fault| fault.resource("configmaps");
    assert_eq!(server.fail_watches(&Fault::reset().resource("nodes")), 0);
    assert_eq!(server.fail_watches(&Fault::reset().on(Verb::List)), 0);
    assert_eq!(
        server.fail_watches(&Fault::reset().when(|request| request.param("limit").is_some())),
        0
    );

    // Faults take effect in order, after the events before them.
    touch(&server, "a");
    assert_eq!(server.fail_watches(&of_maps(Fault::garbage("garbage"))), 1);
    touch(&server, "b");
    assert_eq!(
        server.fail_watches(&of_maps(Fault::status(410).after_events(1))),
        1
    );
    touch(&server, "c");
    touch(&server, "c");
    assert_eq!(
        (maps.event(), maps.event()),
        ("ADDED b 6".to_owned(), "ADDED c 7".to_owned())
    );
    assert_eq!(maps.event(), "MODIFIED a 8");
    assert_eq!(maps.chunk().unwrap().as_deref(), Some(&b"garbage"[..]));
    assert_eq!(maps.event(), "MODIFIED b 9");
    assert_eq!(maps.event(), "MODIFIED c 10");
    assert_eq!(maps.event_json()["object"]["code"], 410);
    maps.assert_end();

    assert_eq!(
        server.fail_watches(&Fault::response(500, "text/plain", "no response follows")),
        1
    );
    assert_eq!(server.fail_watches(&Fault::reset()), 1);
    assert_eq!(
        pods.read_to_end(),
        (String::new(), Some(ErrorKind::ConnectionReset))
    );
    server.wait_for_watches(0, TIMEOUT).unwrap();
    assert_eq!(server.fail_watches(&Fault::stall()), 0);
}

#[test]
fn fail_watches_stops_bookmarks_or_stalls_open_watches() {
    let server = ApiServer::builder()
        .bookmark_interval(Duration::from_millis(1))
        .start()
        .unwrap();
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}?{STREAMING}"));
    assert_eq!(
        (watch.event(), watch.event()),
        ("ADDED a 5".to_owned(), "BOOKMARK - 5".to_owned())
    );
    assert_eq!(server.fail_watches(&Fault::no_bookmarks()), 1);
    assert_eq!(server.write_to_watches("from here on\n"), 1);
    while watch.chunk().unwrap().as_deref() != Some(b"from here on\n") {}
    touch(&server, "a");
    assert_eq!(watch.event(), "MODIFIED a 6");
    assert_eq!(server.fail_watches(&Fault::stall()), 1);
    touch(&server, "a");
    drop(server);
    assert_eq!(watch.read_to_end().0, "", "more data arrived");
}
