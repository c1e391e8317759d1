//! Watches of a scripted server.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::api::{Api, WatchEvent, WatchEvents};
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Error, Object, Stop, Stopper};
use serde_json::{Value, json};

use super::server::{Reply, SOON, Server, first_chunk, reply};
use super::verbs::{Counted, all, counteds, status};

fn stream(lines: &[String]) -> Reply {
    Reply::Write(reply(
        "200 OK",
        "Content-Type: application/json\r\n",
        &lines.concat(),
    ))
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn counted(name: &str, version: &str, count: u32) -> Value {
    json!({
        "kind": "Counted", "apiVersion": "example.com/v1", "count": count,
        "metadata": {"name": name, "namespace": "n", "resourceVersion": version},
    })
}

fn watch_from(api: &Api<Counted>, version: &str) -> WatchEvents<Counted> {
    let options = ListOptions::new().resource_version(ResourceVersion::new(version));
    api.watch(&options, &Stop::never()).unwrap()
}

#[test]
fn watch_continues_after_undecodable_object() {
    let mut broken = counted("b", "8", 2);
    broken["count"] = "s3cret".into();
    let mut nameless = counted("", "10", 2);
    nameless["metadata"]["name"] = Value::Null;
    let lines = [
        event("ADDED", &counted("a", "7", 1)),
        event("MODIFIED", &broken),
        event("DELETED", &{
            broken["metadata"]["resourceVersion"] = "9".into();
            broken.clone()
        }),
        event("ADDED", &nameless),
        event(
            "ADDED",
            &json!({"kind": "Other", "apiVersion": "v1", "metadata": {"name": "o", "resourceVersion": "99"}}),
        ),
        event("DELETED", &counted("a", "11", 1)),
        event(
            "BOOKMARK",
            &json!({"kind": "Counted", "apiVersion": "example.com/v1", "metadata": {"resourceVersion": "12"}}),
        ),
    ];
    let server = Server::start(move |_| stream(&lines));
    let mut events = watch_from(&counteds(&server), "6");
    let mut results = Vec::new();
    while let Some(event) = events.next() {
        let what = match event {
            Ok(WatchEvent::Added(object)) => format!("+{}", object.name()),
            Ok(WatchEvent::Deleted(object)) => format!("-{}", object.name()),
            Ok(WatchEvent::Bookmark {
                initial_events_end: false,
                ..
            }) => "bookmark".to_owned(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(
                    error.is_decode() && !format!("{error:?}").contains("s3cret"),
                    "{error:?}"
                );
                let text = error.to_string();
                text.strip_prefix("watch counteds.example.com in namespace \"n\": ")
                    .unwrap()
                    .to_owned()
            }
        };
        results.push(format!("{} {what}", reached(&events)));
    }
    let prefixes = [
        "7 +a",
        "8 n/b: unexpected response: count: invalid type: string, expected u32",
        "9 n/b: unexpected response: count: invalid type: string, expected u32",
        "9 an event: unexpected response: the object has no name",
        "9 o: unexpected response: ",
        "11 -a",
        "12 bookmark",
    ];
    assert_eq!(results.len(), prefixes.len(), "{results:?}");
    assert!(
        results
            .iter()
            .zip(prefixes)
            .all(|(result, prefix)| result.starts_with(prefix)),
        "{results:#?}"
    );
}

/// The version from which the watch can be resumed, or an empty text.
fn reached<T>(events: &WatchEvents<T>) -> String {
    events
        .resource_version()
        .map_or_else(String::new, ToString::to_string)
}

#[test]
fn watch_resumes_from_the_newest_version() {
    let bookmark = |version: &str, annotations: Value| {
        let metadata = json!({"resourceVersion": version, "annotations": annotations});
        let kind = json!({"kind": "Counted", "apiVersion": "example.com/v1", "metadata": metadata});
        event("BOOKMARK", &kind)
    };
    let lines = [
        event("MODIFIED", &counted("a", "20", 1)),
        event("DELETED", &counted("a", "5", 1)),
        bookmark("19", json!({})),
        event("ADDED", &counted("b", "21", 1)),
        bookmark("7", json!({"k8s.io/initial-events-end": "true"})),
    ];
    let server = Server::start(move |_| stream(&lines));
    let mut events = watch_from(&counteds(&server), "6");
    let mut versions = Vec::new();
    while let Some(event) = events.next() {
        event.unwrap();
        versions.push(reached(&events));
    }
    assert_eq!(versions, ["20", "20", "20", "21", "7"]);
}

#[test]
fn w9_skipped_events_do_not_count() {
    let other = json!({"kind": "Other", "apiVersion": "v1", "metadata": {"name": "o", "resourceVersion": "9"}});
    let lines = [
        event("MODIFIED", &counted("", "8", 1)),
        event("MODIFIED", &other),
        // Without an earlier change, this is one of the unordered initial events.
        event("ADDED", &counted("a", "7", 1)),
        event("MODIFIED", &counted("a", "10", 1)),
    ];
    let server = Server::start(move |_| stream(&lines));
    let mut events = counteds(&server).watch(&all(), &Stop::never()).unwrap();
    let mut results = Vec::new();
    while let Some(event) = events.next() {
        results.push((event.is_ok(), reached(&events)));
    }
    let result = |is_ok, version: &str| (is_ok, version.to_owned());
    assert_eq!(
        results,
        [
            result(false, ""),
            result(false, ""),
            result(true, ""),
            result(true, "10")
        ]
    );
}

#[test]
fn error_event_or_broken_frame_ends_watch() {
    type ErrorCheck = fn(&Error) -> bool;
    let expired: Value = serde_json::from_str(&status(410, "Expired", "too old")).unwrap();
    let cases: [(String, ErrorCheck); 5] = [
        (event("ERROR", &expired), Error::is_gone),
        (
            event("ERROR", &json!({"kind": "Pod", "s3cret": "s3cret"})),
            |error| error.status().is_some(),
        ),
        ("s3cret\n".to_owned(), Error::is_decode),
        (event("s3cret", &counted("b", "8", 1)), Error::is_decode),
        (
            "{\"type\":\"ADDED\",\"object\":{\"metadata\"}}\n".to_owned(),
            Error::is_decode,
        ),
    ];
    for (bad, is_expected) in cases {
        let lines = [
            event("ADDED", &counted("a", "7", 1)),
            bad,
            event("ADDED", &counted("c", "9", 1)),
        ];
        let server = Server::start(move |_| stream(&lines));
        let mut events = watch_from(&counteds(&server), "6");
        assert!(matches!(events.next(), Some(Ok(WatchEvent::Added(_)))));
        let error = events.next().unwrap().unwrap_err();
        let text = format!("{error} {error:?} {events:?}");
        assert!(
            is_expected(&error) && !text.contains("s3cret") && !text.contains("t0ken"),
            "{text}"
        );
        assert!(
            text.starts_with("watch counteds.example.com in namespace \"n\": "),
            "{text}"
        );
        assert!(events.next().is_none() && events.next().is_none());
        assert_eq!(reached(&events), "7");
    }
    // A broken connection ends the watch with an error. `watch` fails if the response is not a
    // watch.
    let server = Server::start(|_| {
        Reply::WriteAndClose(first_chunk(&event("ADDED", &counted("a", "7", 1))))
    });
    let mut events = watch_from(&counteds(&server), "6");
    assert_eq!(events.next().unwrap().map(|_| ()).ok(), Some(()));
    let error = events.next().unwrap().unwrap_err();
    assert!(
        error.is_connection() && events.next().is_none(),
        "{error:?}"
    );
    for bytes in [
        reply("200 OK", "Content-Type: text/html\r\n", "<html>"),
        reply("201 Created", "", "{}"),
        reply("410 Gone", "", &status(410, "Expired", "too old")),
    ] {
        let server = Server::start(move |_| Reply::Write(bytes.clone()));
        let error = counteds(&server).watch(&all(), &Stop::never()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("watch counteds.example.com in namespace \"n\": GET "),
            "{error}"
        );
    }
}

#[test]
fn watch_times_out_only_with_idle_timeout() {
    let server =
        Server::start(|_| Reply::WriteAndHang(first_chunk(&event("ADDED", &counted("a", "7", 1)))));
    let stop = Stopper::new();
    // The watch may be silent for longer than the response timeout.
    let config = Config::new(server.url()).response_timeout(Duration::from_millis(500));
    let api = Client::new(config).unwrap().api::<Counted>(Some("n"));
    let idle = Duration::from_millis(600);
    let mut events = api.watch(&all(), &stop).unwrap().idle_timeout(idle);
    let start = Instant::now();
    assert!(events.next().unwrap().is_ok());
    let error = events.next().unwrap().unwrap_err();
    assert!(error.is_timeout() && start.elapsed() >= idle, "{error:?}");
    assert!(events.next().is_none());

    // Without a limit, the watch waits until the stop.
    let mut events = api
        .watch(&all(), &stop)
        .unwrap()
        .idle_timeout(Duration::ZERO)
        .idle_timeout(None);
    let (sender, results) = channel();
    let reading = thread::spawn(move || {
        sender.send(events.next().unwrap().map(|_| ())).unwrap();
        sender.send(events.next().unwrap().map(|_| ())).unwrap();
        events.next().is_none()
    });
    results.recv_timeout(SOON).unwrap().unwrap();
    assert!(
        results.recv_timeout(idle).is_err(),
        "the watch returned before the stop"
    );
    let start = Instant::now();
    stop.stop();
    assert!(
        results
            .recv_timeout(SOON)
            .unwrap()
            .unwrap_err()
            .is_stopped()
    );
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(reading.join().unwrap());
    assert!(
        api.watch(&all(), &stop).unwrap_err().is_stopped(),
        "a stop before the watch must end it"
    );
    assert!(api.list(&all(), &stop).unwrap_err().is_stopped());
}
