//! Failed watch-lists (WL8–WL12): a wait, a retry, or a list instead.

use std::io;
use std::time::Duration;

use k8s_informer::time::Clock;
use k8s_informer_testing::Answer;

use crate::reflector::support::{
    Recorder, Running, SECOND, SILENCE, Server, TICK, bookmark, connection_refused, error_event,
    error_event_of, event, initial_events_end, list, refused, refused_with, status_json,
    status_with_retry_after, too_large_version,
};

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// A watch-list that ends after a second, before its initial events are complete.
fn unfinished() -> Answer {
    Answer::body(event("ADDED", "a", "1") + TICK)
}

#[test]
fn wl8_refused_connection_or_429_is_retried_after_wait() {
    for failure in [
        connection_refused,
        || refused(429, "TooManyRequests"),
        || Answer::body(event("ADDED", "a", "1") + &error_event(429, "TooManyRequests")),
    ] {
        let it =
            Running::watch_list([failure(), failure(), Answer::open(initial_events_end("10"))]);
        it.advance_wait(SECOND);
        it.advance_wait(2 * SECOND);
        assert_eq!(
            it.requests(3),
            [
                "watch-list most recent",
                "watch-list most recent",
                "watch-list most recent"
            ]
        );
        assert_eq!(it.waited(), [1, 2], "L4: the waits grow");
        assert_eq!(it.handled_errors(), 0, "W14: the handler is not called");
        assert!(it.last_error().is_connection() || it.last_error().is_too_many_requests());
    }
}

#[test]
fn wl8_third_broken_connection_falls_back_to_list() {
    let reset = || Answer::error(io::Error::from(io::ErrorKind::ConnectionReset).into());
    let it = Running::watch_list([
        reset(),
        reset(),
        reset(),
        list("10", &["a"]),
        Answer::open(""),
    ]);
    it.advance_wait(SECOND);
    it.advance_wait(2 * SECOND);
    assert_eq!(
        it.requests(5)[2..],
        ["watch-list most recent", "list 0 limit 500", "watch 10"]
    );
    assert_eq!((it.waited(), it.handled_errors()), (vec![1, 2], 0));
}

#[test]
fn wl8_gone_or_too_large_version_falls_back_to_most_recent() {
    for status in [
        status_json(410, "Expired"),
        status_json(410, "Gone"),
        too_large_version(),
    ] {
        for failure in [
            refused_with(status.clone()),
            Answer::body(error_event_of(&status)),
        ] {
            let it = Running::watch_list([
                Answer::body(initial_events_end("10") + &error_event(410, "Expired")),
                failure,
                Answer::open(initial_events_end("5")),
            ]);
            it.advance_wait(SECOND);
            assert_eq!(
                it.requests(3)[1..],
                ["watch-list 10", "watch-list most recent"],
                "{status}"
            );
            assert_eq!((it.waited(), it.handled_errors()), (vec![1], 0), "{status}");
        }
    }
}

#[test]
fn wl8_version_gone_even_at_most_recent_falls_back_to_list() {
    let it = Running::watch_list([
        refused(410, "Expired"),
        Answer::body(error_event(410, "Expired")),
        list("10", &[]),
    ]);
    let requests = [
        "watch-list most recent",
        "watch-list most recent",
        "list most recent limit 500",
        "watch 10",
    ];
    assert_eq!(it.requests(4), requests);
    assert_eq!(it.waited(), [0; 0]);
}

#[test]
fn wl8_l6_http_error_lists_now_and_retries_in_next_cycle() {
    for (code, reason) in [
        (500, "InternalError"),
        (403, "Forbidden"),
        (503, "ServiceUnavailable"),
    ] {
        for failure in [
            refused(code, reason),
            Answer::body(error_event(code, reason)),
        ] {
            let it = Running::watch_list([
                failure,
                list("10", &["a"]),
                Answer::body(error_event(410, "Expired")),
                Answer::open(initial_events_end("20")),
            ]);
            it.advance_wait(SECOND);
            let requests = [
                "watch-list most recent",
                "list 0 limit 500",
                "watch 10",
                "watch-list 10",
            ];
            assert_eq!(it.requests(4), requests, "{reason}");
            assert_eq!(it.waited(), [1], "{reason}: no wait before the list");
            assert_eq!(
                it.handled_errors(),
                0,
                "{reason}: W14: the handler is not called"
            );
        }
    }
}

#[test]
fn wl8_watch_list_ending_at_once_falls_back_to_list() {
    // An object without a name does not count as an event (W9).
    let nameless = Answer::body(event("ADDED", "", "1"));
    for end in [Answer::body(""), Answer::broken(""), nameless] {
        let it = Running::watch_list([end, list("10", &[])]);
        assert_eq!(
            it.requests(3),
            ["watch-list most recent", "list 0 limit 500", "watch 10"]
        );
        assert_eq!(it.waited(), [0; 0]);
        assert!(it.last_error().to_string().contains("very short watch"));
    }
}

#[test]
fn wl8_garbage_in_watch_list_falls_back_to_list() {
    let stream = event("ADDED", "a", "1") + "garbage\n" + &initial_events_end("10");
    let it = Running::watch_list([Answer::open(stream), list("10", &[])]);
    assert_eq!(
        it.requests(3),
        ["watch-list most recent", "list 0 limit 500", "watch 10"]
    );
    assert_eq!(it.store.calls(), ["replace [] at 10"]);
    assert!(it.last_error().is_decode());
}

#[test]
fn wl8_stop_ends_the_wait_after_a_failure() {
    for failure in [
        connection_refused(),
        unfinished(),
        refused_with(status_with_retry_after(503, "", 1000)),
    ] {
        let it = Running::watch_list([failure]);
        it.wait_for_waits(1);
        drop(it); // Joins the thread while the clock stands still.
    }
}

#[test]
fn l6_refused_watch_list_is_not_retried_for_ten_minutes() {
    for (code, reason) in [(422, "Invalid"), (400, "BadRequest")] {
        let expired = || Answer::body(error_event(410, "Expired"));
        let it = Running::watch_list([
            refused(code, reason),
            list("10", &[]),
            expired(),
            list("20", &[]),
            expired(),
            Answer::open(initial_events_end("30")),
        ]);
        it.advance_wait(TEN_MINUTES - SECOND);
        it.requests(5);
        it.advance_wait(2 * SECOND);
        let requests = [
            "watch-list most recent",
            "list 0 limit 500",
            "watch 10",
            "list 10",
            "watch 20",
            "watch-list 20",
        ];
        assert_eq!(it.requests(6), requests, "{reason}");
        assert_eq!(it.handled_errors(), 0, "{reason}");
    }
}

#[test]
fn wl9_third_watch_list_ending_early_falls_back_to_list() {
    let expired = || Answer::body(error_event(410, "Expired"));
    let it = Running::watch_list([
        unfinished(),
        unfinished(),
        unfinished(),
        list("10", &["a"]),
        expired(),
        list("20", &["a"]),
        expired(),
        unfinished(),
    ]);
    it.advance_wait(SECOND);
    it.advance_wait(2 * SECOND);
    it.requests(5);
    assert_eq!(
        it.waited()[..2],
        [1, 2],
        "a wait between the tries, and none before the list"
    );
    it.advance_wait(TEN_MINUTES - SECOND);
    it.requests(7);
    it.advance_wait(8 * SECOND);
    it.wait_for_waits(5);
    let (tries, rest) = (["watch-list most recent"; 3], it.requests(8).split_off(3));
    assert_eq!(it.requests(3), tries);
    assert_eq!(
        rest,
        [
            "list 0 limit 500",
            "watch 10",
            "list 10",
            "watch 20",
            "watch-list 20"
        ]
    );
    assert_eq!(
        it.waited(),
        [1, 2, 4, 8, 16],
        "an early end does not reset the waits"
    );
    assert_eq!(
        it.store.calls(),
        ["replace [a@1] at 10", "replace [a@1] at 20"]
    );
    assert!(
        it.last_error()
            .to_string()
            .contains("ended before the bookmark"),
        "{}",
        it.last_error()
    );
}

#[test]
fn wl9_early_ends_of_earlier_cycles_do_not_count() {
    let failed_cycle = [
        unfinished(),
        unfinished(),
        refused(500, "InternalError"),
        refused(403, "Forbidden"),
    ];
    let next_cycle = [
        unfinished(),
        unfinished(),
        Answer::open(initial_events_end("10")),
    ];
    let it = Running::watch_list(failed_cycle.into_iter().chain(next_cycle));
    for seconds in [1, 2, 4, 8, 16] {
        it.advance_wait(seconds * SECOND);
    }
    let first = [
        "watch-list most recent",
        "watch-list most recent",
        "watch-list most recent",
        "list 0 limit 500",
    ];
    assert_eq!(it.requests(7)[..4], first);
    assert_eq!(it.requests(7)[4..], ["watch-list most recent"; 3]);
}

#[test]
fn wl10_ten_seconds_of_silence_are_reported_and_tolerated() {
    let silence = |count: usize| SILENCE.repeat(count);
    let it = Running::watch_list([Answer::open(event("ADDED", "a", "1") + SILENCE)]);
    it.calls(1);
    let error = it.last_error();
    assert!(
        error.is_timeout() && error.to_string().contains("10 s"),
        "{error}"
    );
    assert_eq!(it.server.read_timeouts()[0], Some(10 * SECOND));

    let it = Running::watch_list([Answer::open(
        silence(2) + &event("ADDED", "a", "1") + &silence(2) + &initial_events_end("10"),
    )]);
    assert_eq!(
        it.calls(1),
        ["replace [a@1] at 10"],
        "each event ends the silence"
    );
    assert!(
        it.last_error().to_string().contains("20 s"),
        "{}",
        it.last_error()
    );
    assert_eq!(it.request_count(), 1);
}

#[test]
fn wl12_silent_watch_list_falls_back_to_list() {
    let it = Running::watch_list([
        Answer::open(
            event("ADDED", "a", "1") + SILENCE + SILENCE + SILENCE + &initial_events_end("10"),
        ),
        list("20", &["b"]),
        Answer::body(error_event(410, "Expired")),
        list("30", &["b"]),
    ]);
    it.advance_wait(SECOND);
    let requests = [
        "watch-list most recent",
        "list 0 limit 500",
        "watch 20",
        "list 20",
        "watch 30",
    ];
    assert_eq!(
        it.requests(5),
        requests,
        "the watch-list is not retried in the next cycle"
    );
    assert_eq!(it.waited(), [1], "no wait before the list");
    assert_eq!(
        it.store.calls(),
        ["replace [b@1] at 20", "replace [b@1] at 30"]
    );
    assert_eq!(
        (it.server.open_bodies_at_request(), it.handled_errors()),
        (0, 0)
    );
}

/// A server that ignores `sendInitialEvents` sends changes, and at most bookmarks without the mark.
#[test]
fn wl12_changes_without_the_bookmark_fall_back_to_list() {
    for change in [
        event("MODIFIED", "a", "2"),
        event("DELETED", "a", "2"),
        bookmark("2", "{}"),
    ] {
        let later = TICK.repeat(2) + &event("ADDED", "b", "3");
        let stream = event("ADDED", "a", "1") + &TICK.repeat(40) + &change + &later.repeat(3);
        let it = Running::watch_list([
            Answer::open(stream + TICK + &initial_events_end("10")),
            list("20", &["b"]),
            Answer::body(error_event(410, "Expired")),
            list("30", &["b"]),
            Answer::open(""),
        ]);
        it.advance_wait(SECOND);
        let requests = [
            "watch-list most recent",
            "list 0 limit 500",
            "watch 20",
            "list 20",
            "watch 30",
        ];
        assert_eq!(it.requests(5), requests, "{change}");
        assert_eq!(it.waited(), [1], "no wait before the list");
        let replaced = ["replace [b@1] at 20", "replace [b@1] at 30"];
        assert_eq!(it.store.calls(), replaced, "{change}");
        assert_eq!(it.server.open_bodies_at_request(), 0);
    }
    let stream = event("ADDED", "a", "1") + &event("MODIFIED", "a", "2") + &TICK.repeat(6);
    let it = Running::watch_list([
        Answer::open(stream + &event("ADDED", "b", "3") + SILENCE),
        list("20", &["b"]),
    ]);
    it.requests(3);
    let error = it.last_error().to_string();
    assert!(error.contains("sent changes for 5 s"), "{error}");
}

/// kube-apiserver 1.30 and 1.31 send changes of a busy kind before the bookmark.
#[test]
fn wl12_changes_before_the_bookmark_are_no_failure() {
    let changes = TICK.to_owned() + &event("MODIFIED", "a", "2") + &bookmark("3", "{}");
    let stream = event("ADDED", "a", "1") + &changes.repeat(4) + TICK;
    let it = Running::watch_list([Answer::open(
        stream + &event("DELETED", "a", "4") + &initial_events_end("10") + &TICK.repeat(60),
    )]);
    assert_eq!(it.calls(1), ["replace [] at 10"]);
    assert_eq!(it.requests(1), ["watch-list most recent"]);
    assert!(it.status().last_error.is_none());
}

/// No change proves that the initial events are over.
#[test]
fn wl12_endless_initial_events_end_with_the_requested_time() {
    let events = |n: u32| TICK.repeat(9) + &event("ADDED", &format!("pod-{n}"), "1");
    let stream: String = (0..80).map(events).collect();
    let server = Server::new([
        Answer::open(stream + TICK + &initial_events_end("10")),
        list("20", &["b"]),
        Answer::open(""),
    ]);
    let began = server.clock.now();
    let it = Running::start(server.with_watch_list(), Recorder::default(), |_| {});
    it.requests(3);
    assert_eq!(it.store.calls(), ["replace [b@1] at 20"]);
    let error = it.last_error().to_string();
    assert!(error.contains("longer than requested"), "{error}");
    let requested = it.options(1)[0].options().timeout_seconds.unwrap();
    let limit = u64::from(requested) + 30;
    assert_eq!(it.waited(), [0; 0], "no wait before the list");
    let took = (it.clock.now() - began).as_secs();
    assert!((limit..limit + 9).contains(&took), "{took} s of {limit}");
}

#[test]
fn wl9_watch_list_that_ends_after_minutes_is_not_repeated() {
    let long = || Answer::body(event("ADDED", "a", "1") + &TICK.repeat(300));
    let it = Running::watch_list([long(), list("20", &["b"]), Answer::open("")]);
    let requests = ["watch-list most recent", "list 0 limit 500", "watch 20"];
    assert_eq!(it.requests(3), requests);
    assert_eq!(it.waited(), [0; 0]);
}
