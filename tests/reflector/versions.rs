//! The versions that a reflector continues from, and its next request if the server rejects one.

use k8s_informer_testing::Answer;

use crate::reflector::support::{
    Running, SECOND, bookmark, error_event, event, initial_events_end, list, refused,
};
use k8s_informer::object::ResourceVersion;

/// Responses that may concern the version.
const UNACCEPTABLE: [(u16, &str); 6] = [
    (400, "BadRequest"),
    (400, ""),
    (414, ""),
    (422, "Invalid"),
    (431, ""),
    (431, "RequestHeaderFieldsTooLarge"),
];
/// Responses that never concern the version.
const OTHERS: [(u16, &str); 4] = [
    (401, "Unauthorized"),
    (403, "Forbidden"),
    (500, "InternalError"),
    (404, "NotFound"),
];

#[test]
fn l8_rejected_list_falls_back_to_most_recent() {
    for (code, reason) in UNACCEPTABLE {
        let it = Running::new([
            list("10", &[]),
            Answer::body(error_event(410, "Expired")),
            refused(code, reason),
            list("20", &[]),
        ]);
        it.advance_wait(SECOND);
        assert_eq!(
            it.requests(5)[2..],
            ["list 10", "list most recent", "watch 20"],
            "{code}"
        );
        assert_eq!(it.handled_errors(), 0, "{code}");
    }
    for (code, reason) in OTHERS.into_iter().chain([(429, "TooManyRequests")]) {
        let it = Running::new([
            list("10", &[]),
            Answer::body(error_event(410, "Expired")),
            refused(code, reason),
            list("20", &[]),
        ]);
        it.advance_wait(SECOND);
        it.advance_wait(60 * SECOND);
        assert_eq!(
            it.requests(5)[2..],
            ["list 10", "list 10", "watch 20"],
            "{code}"
        );
    }
}

#[test]
fn l8_rejected_watch_falls_back_to_most_recent() {
    for (code, reason) in UNACCEPTABLE {
        for failure in [
            refused(code, reason),
            Answer::body(error_event(code, reason)),
        ] {
            let it = Running::new([list("10", &[]), failure, list("20", &[])]);
            it.advance_wait(SECOND);
            assert_eq!(
                it.requests(4)[1..],
                ["watch 10", "list most recent limit 500", "watch 20"],
                "{code}"
            );
        }
    }
    for (code, reason) in OTHERS {
        let it = Running::new([list("10", &[]), refused(code, reason), list("20", &[])]);
        it.advance_wait(SECOND);
        assert_eq!(
            it.requests(4)[1..],
            ["watch 10", "list 10", "watch 20"],
            "{code}"
        );
    }
    let it = Running::new([list("10", &[]), refused(429, "TooManyRequests")]);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(3)[1..], ["watch 10", "watch 10"]);
}

#[test]
fn l8_rejected_watch_list_falls_back_to_most_recent() {
    let first = || Answer::body(initial_events_end("10") + &error_event(410, "Expired"));
    for code in [414, 431] {
        let it = Running::watch_list([
            first(),
            refused(code, ""),
            Answer::open(initial_events_end("20")),
        ]);
        it.advance_wait(SECOND);
        assert_eq!(
            it.requests(3)[1..],
            ["watch-list 10", "watch-list most recent"],
            "{code}"
        );
    }
    // These codes mostly mean that the server rejects watch-lists, so a list at the same version
    // follows. If the version was the cause, the server also rejects this list.
    for (code, reason) in [(400, "BadRequest"), (422, "Invalid")] {
        let it = Running::watch_list([
            first(),
            refused(code, reason),
            refused(code, reason),
            list("20", &[]),
        ]);
        it.advance_wait(SECOND);
        let requests = ["watch-list 10", "list 10", "list most recent", "watch 20"];
        assert_eq!(it.requests(5)[1..], requests, "{code}");
    }
}

#[test]
fn l8_list_rejected_at_version_0_is_retried_at_version_0() {
    let it = Running::new([refused(400, "BadRequest"), list("10", &[])]);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(3),
        ["list 0 limit 500", "list 0 limit 500", "watch 10"]
    );
    assert_eq!(it.handled_errors(), 1);
}

#[test]
fn w10_older_version_does_not_take_the_watch_back() {
    for kind in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"] {
        for (last, version, resumed) in [
            ("20", "5", "20"),
            ("10", "9", "10"),
            ("9", "10", "10"),
            ("20", "20", "20"),
            (
                "100000000000000000000",
                "99999999999999999999",
                "100000000000000000000",
            ),
            ("20", "abc", "abc"),
            ("abc", "5", "5"),
        ] {
            let line = match kind {
                "BOOKMARK" => bookmark(version, "{}"),
                kind => event(kind, "a", version),
            };
            let it = Running::new([
                list("4", &["a"]),
                Answer::body(event("MODIFIED", "b", last) + &line),
                Answer::open(""),
            ]);
            assert_eq!(
                it.requests(3)[2],
                format!("watch {resumed}"),
                "{kind} {last} {version}"
            );
            assert_eq!(
                it.reflector.last_sync_resource_version(),
                ResourceVersion::new(resumed)
            );
        }
    }
    // The object cannot be read.
    let deletion =
        r#"{"type":"DELETED","object":{"metadata":{"name":"a","labels":7,"resourceVersion":"5"}}}"#;
    let it = Running::new([
        list("4", &["a"]),
        Answer::body(event("MODIFIED", "b", "20") + deletion),
        Answer::open(""),
    ]);
    assert_eq!(it.requests(3)[2], "watch 20");
}

#[test]
fn w10_list_and_watch_list_may_go_back() {
    let expired = || error_event(410, "Expired");
    let it = Running::new([
        list("20", &["a"]),
        Answer::body(expired()),
        list("7", &["a"]),
        Answer::body(event("MODIFIED", "a", "8")),
        Answer::open(""),
    ]);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(5)[2..], ["list 20", "watch 7", "watch 8"]);

    // The older versions of initial events do not count either, but that of their end does.
    let initial = |end: &str| {
        event("MODIFIED", "a", "20") + &event("DELETED", "a", "5") + &initial_events_end(end)
    };
    for (end, reached) in [("10", "10"), ("", "20")] {
        let it = Running::watch_list([
            Answer::body(initial(end) + &event("MODIFIED", "b", "9")),
            Answer::open(""),
        ]);
        assert_eq!(it.requests(2)[1], format!("watch {reached}"), "{end}");
    }
    let it = Running::watch_list([
        Answer::body(initial_events_end("20") + &expired()),
        Answer::body(initial_events_end("7") + &event("MODIFIED", "a", "8")),
        Answer::open(""),
    ]);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(3)[1..], ["watch-list 20", "watch 8"]);
}
