//! The watch after a list, and its end (W1–W15).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::object::{GroupVersionKind, ResourceVersion};
use k8s_informer::reflector::ReflectorState;
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::{Deleted, DynamicObject, Indexer};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use parking_lot::Mutex;

use crate::reflector::support::{
    Recorder, Running, SECOND, SILENCE, Server, TICK, bookmark, connection_refused, error_event,
    error_event_of, event, initial_events_end, list, logged, logging, refused, refused_with,
    run_until_read, run_until_read_with, status_with_retry_after,
};

#[test]
fn w3_watch_429_is_retried_after_retry_after() {
    let too_many_requests = refused_with(status_with_retry_after(429, "TooManyRequests", 9));
    let it = Running::new([list("10", &[]), too_many_requests, Answer::open("")]);
    it.requests(2);
    it.advance_wait(9 * SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 10"]);
    assert_eq!(
        it.clock.waits(),
        [9 * SECOND],
        "Retry-After is waited if it is longer"
    );
    assert!(it.errors.lock().is_empty());
}

#[test]
fn w3_watch_403_triggers_relist() {
    let it = Running::new([list("10", &[]), refused(403, "Forbidden"), list("12", &[])]);
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(4),
        ["list 0 limit 500", "watch 10", "list 10", "watch 12"]
    );
    assert!(it.errors.lock()[0].is_forbidden());
}

#[test]
fn w4_ended_watch_resumes_at_last_version_at_once() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(event("ADDED", "a", "11") + &event("MODIFIED", "a", "12")),
        Answer::broken(event("DELETED", "a", "13") + r#"{"type":"ADDED","obj"#),
        Answer::open(event("BOOKMARK", "", "20")),
    ]);
    assert_eq!(
        it.requests(4),
        ["list 0 limit 500", "watch 10", "watch 12", "watch 13"]
    );
    assert_eq!(
        it.calls(4),
        [
            "replace [] at 10",
            "add a@11",
            "update a@12",
            "delete a@13",
            "bookmark 20"
        ]
    );
    assert!(it.clock.waits().is_empty() && it.errors.lock().is_empty());
    assert_eq!(
        it.reflector.last_sync_resource_version(),
        ResourceVersion::new("20")
    );
}

#[test]
fn w4_consecutive_short_watches_are_rate_limited() {
    type Watch = fn(u32) -> String;
    let cases: [Watch; 3] = [
        |number| bookmark(&format!("{}", 10 + number), "{}"),
        |number| event("MODIFIED", "a", &format!("{}", 10 + number)),
        |number| event("MODIFIED", "a", &format!("{}", 10 + number)) + "garbage",
    ];
    for watch in cases {
        // The eighth watch is open for a second.
        let watches =
            (1..=20).map(|number| if number == 8 { TICK } else { "" }.to_owned() + &watch(number));
        let it = Running::new(
            [list("10", &[])]
                .into_iter()
                .chain(watches.map(Answer::body)),
        );
        for (wait, watches) in [(1, 6), (2, 7), (3, 14), (4, 15)] {
            it.wait_for_waits(wait);
            assert_eq!(
                it.request_count() - 1,
                watches,
                "{:?}",
                it.requests(1 + watches)
            );
            assert!(it.status().state == ReflectorState::BackingOff);
            it.advance_wait(SECOND);
        }
        assert_eq!(it.waited()[..4], [1; 4]);
        assert_eq!(it.requests(9)[7..], ["watch 16", "watch 17"]);
    }
}

#[test]
fn w5_very_short_watch_backs_off_and_relists() {
    let it = Running::new([list("10", &[]), Answer::body(""), list("10", &[])]);
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(3)[2], "list 10");
    assert!(it.last_error().to_string().contains("very short watch"));
    assert!(
        it.errors.lock().is_empty(),
        "W14: the handler is not called"
    );
}

#[test]
fn w6_error_event_triggers_relist_at_last_version() {
    for (code, reason) in [(410, "Expired"), (500, "InternalError"), (403, "Forbidden")] {
        let it = Running::new([
            list("10", &[]),
            Answer::body(event("ADDED", "a", "11") + &error_event(code, reason)),
            list("30", &[]),
        ]);
        it.requests(2);
        it.advance_wait(SECOND);
        assert_eq!(it.requests(3)[2], "list 11", "{reason}");
        assert!(
            it.errors.lock().is_empty(),
            "W14: the handler is not called"
        );
    }
}

#[test]
fn w6_error_event_429_retries_watch_without_relist() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(error_event(429, "TooManyRequests")),
        Answer::open(""),
    ]);
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(3)[2], "watch 10");
}

#[test]
fn w10_version_counts_from_first_modified_not_synthetic_added() {
    let it = Running::new([
        Answer::body(r#"{"kind": "List", "metadata":{},"items":[]}"#),
        Answer::body(event("ADDED", "a", "30") + &event("ADDED", "b", "20")),
        Answer::body(event("ADDED", "c", "25") + &event("MODIFIED", "b", "31")),
        Answer::open(""),
    ]);
    assert_eq!(
        it.requests(4)[1..],
        ["watch most recent", "watch most recent", "watch 31"]
    );
}

#[test]
fn w10_event_without_version_keeps_the_last_version() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(
            event("ADDED", "a", "11")
                + "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n",
        ),
    ]);
    assert_eq!(it.requests(3)[2], "watch 11");
}

#[test]
fn w10_event_without_version_keeps_the_version_of_its_batch() {
    let deleted = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";
    // Both events arrive in one read, so they are written together.
    let stream = event("ADDED", "a", "11") + deleted;
    let script = ScriptedListerWatcher::new([list("10", &[]), Answer::open(stream)]);
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    run_until_read(&store, &script, 2);
    assert_eq!(store.resource_version(), ResourceVersion::new("11"));
    assert!(store.is_empty());
}

#[test]
fn w15_garbage_restarts_watch_at_last_good_version() {
    let garbage = [
        "garbage\n",
        "{\"type\":\"ADDED\",\"object\":\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":7}\n",
        "{\"type\":\"WHAT\",\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"object\":null}\n",
        "{\"object\":{}}\n",
        "\u{0}\n",
    ];
    for garbage in garbage {
        let it = Running::new([
            list("10", &[]),
            Answer::open(event("ADDED", "a", "11") + garbage + &event("ADDED", "b", "12")),
            Answer::open(event("ADDED", "b", "12")),
        ]);
        assert_eq!(it.requests(3)[2], "watch 11", "{garbage}");
        let error = it.last_error();
        assert!(
            error.is_decode() && error.to_string().contains("event 2 (last version 11)"),
            "{garbage}: {error}"
        );
    }
}

#[test]
fn w15_version_in_errors_is_one_line_and_truncated() {
    let version = format!("7\\n{}", "x".repeat(1000));
    let changes = event("MODIFIED", "a", &version) + "garbage\n";
    let it = Running::new([list("1", &["a"]), Answer::body(changes), Answer::open("")]);
    it.requests(3);
    let error = it.last_error().to_string();
    assert!(
        error.contains(r"event 2 (last version 7\nxxx") && error.len() < 500,
        "{error}"
    );
}

#[test]
fn w15_garbage_twice_at_one_version_backs_off_and_relists() {
    let it = Running::new([
        list("10", &[]),
        Answer::open("garbage"),
        Answer::open("garbage"),
        list("20", &[]),
    ]);
    it.requests(3);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(5)[1..],
        ["watch 10", "watch 10", "list 10", "watch 20"]
    );
}

#[test]
fn w8_events_decode_in_any_json_layout() {
    let it = Running::new([
        list("10", &[]),
        Answer::open(concat!(
            " { \"object\" : {\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"11\"}} , \"type\" : \"ADDED\" } \r\n\n",
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"12\"}},\"more\":{}}\n",
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"13\"}}}",
            "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"14\"}}}\n",
            "{\n  \"type\": \"ADDED\",\n  \"object\": {\n    \"metadata\": {\n      \"name\": \"b\"\n    }\n  }\n}\n",
        )),
    ]);
    assert_eq!(
        it.calls(2)[1..],
        [
            "add a@11",
            "update a@12",
            "update a@13",
            "delete a@14",
            "add b@"
        ]
    );
}

#[test]
fn w8_last_event_without_line_end_is_delivered() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(event("ADDED", "a", "11").trim_end()),
        Answer::open(""),
    ]);
    assert_eq!(it.requests(3)[2], "watch 11");
    assert_eq!(it.store.calls()[1..], ["add a@11"]);
}

#[test]
fn w9_nameless_object_is_reported_and_skipped() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(event("ADDED", "a", "11") + &event("MODIFIED", "", "12")),
        Answer::open(event("ADDED", "b", "13")),
    ]);
    assert_eq!(it.requests(3)[2], "watch 11");
    assert_eq!(it.calls(3)[1..], ["add a@11", "add b@13"]);
    assert!(it.last_error().to_string().contains("has no name"));
}

#[test]
fn w13_resync_during_a_watch_runs_only_if_should_resync() {
    let asked = Arc::new(Mutex::new(0));
    let should_resync = Arc::clone(&asked);
    let silent = SILENCE.repeat(2) + &event("ADDED", "a", "11");
    let it = Running::with([list("10", &[]), Answer::open(silent)], |options| {
        options.resync_period = 10 * SECOND;
        options.should_resync = Some(Arc::new(move || {
            let mut asked = should_resync.lock();
            *asked += 1;
            *asked == 1
        }));
    });
    assert_eq!(it.calls(2), ["replace [] at 10", "resync", "add a@11"]);
    assert_eq!(*asked.lock(), 2);
    assert_eq!(it.server.read_timeouts(), [Some(10 * SECOND)]);
}

#[test]
fn w13_resync_without_timed_reads_follows_the_next_bytes() {
    let watch = TICK.repeat(10) + &event("ADDED", "a", "11") + TICK + &event("ADDED", "b", "12");
    let server = Server::new([list("10", &[]), Answer::open(watch)]).without_read_timeouts();
    let it = Running::start(server, Recorder::default(), |options| {
        options.resync_period = 10 * SECOND;
    });
    let calls = ["replace [] at 10", "add a@11", "resync", "add b@12"];
    assert_eq!(it.calls(2), calls);
}

#[test]
fn w13_failed_resync_ends_the_watch() {
    let server = Server::new([list("10", &[]), Answer::open(SILENCE), list("20", &[])]);
    let store = Recorder::refusing_resyncs(1);
    let it = Running::start(server, store, |options| {
        options.resync_period = 10 * SECOND;
    });
    it.advance_wait(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 10", "watch 20"]);
}

#[test]
fn w13_panic_in_should_resync_ends_the_watch() {
    let calls = Mutex::new(0);
    let silent = || Answer::open(SILENCE);
    let it = Running::with(
        [list("10", &[]), silent(), list("20", &[]), silent()],
        |options| {
            options.resync_period = 10 * SECOND;
            options.should_resync = Some(Arc::new(move || {
                *calls.lock() += 1;
                assert!(*calls.lock() > 1, "should_resync failed");
                true
            }));
        },
    );
    it.advance_wait(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 10", "watch 20"]);
    assert_eq!(
        it.last_error().to_string(),
        "watch scripted objects: a reflector step panicked: should_resync failed"
    );
    // The next watch has resyncs again.
    let calls = ["replace [] at 10", "replace [] at 20", "resync"];
    assert_eq!(it.store.until_calls(3), calls);
}

#[test]
fn w1_watch_timeout_is_between_five_and_ten_minutes() {
    let watches =
        (0..1000).map(|version| Answer::broken(event("ADDED", "a", &format!("{version}")) + TICK));
    let it = Running::new([list("10", &[])].into_iter().chain(watches));
    let requests = it.options(1001);
    let timeouts: Vec<_> = requests[1..]
        .iter()
        .map(|request| request.options().timeout_seconds.unwrap())
        .collect();
    assert!(
        timeouts.iter().all(|timeout| (300..600).contains(timeout)),
        "{timeouts:?}"
    );
    let near = |end: u32| timeouts.iter().any(|timeout| timeout.abs_diff(end) < 30);
    assert!(near(300) && near(600), "{timeouts:?}");
}

#[test]
fn w2_watch_duration_counts_from_the_request() {
    for (latency, requests) in [
        (Duration::ZERO, vec!["watch 10", "list 10"]),
        (SECOND, vec!["watch 10", "watch 10"]),
    ] {
        let server = Server::new([list("10", &[]), Answer::body("")]).with_latency(latency);
        let it = Running::start(server, Recorder::default(), |_| {});
        if latency.is_zero() {
            it.advance_wait(SECOND);
        }
        assert_eq!(
            it.requests(3)[1..],
            requests,
            "a late response head does not make a watch very short"
        );
    }
}

#[test]
fn w3_connection_errors_retry_watch_without_relist() {
    let it = Running::new([
        list("10", &[]),
        connection_refused(),
        Answer::error(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        Answer::open(""),
    ]);
    it.advance_wait(SECOND);
    it.advance_wait(2 * SECOND);
    assert_eq!(it.requests(4)[1..], ["watch 10"; 3]);
    assert_eq!(it.handled_errors(), 0, "W14: the handler is not called");
    assert!(it.last_error().is_connection());
}

#[test]
fn w3_retry_after_longer_than_backoff_is_waited() {
    let with_retry_after = |code, reason| {
        let status = status_with_retry_after(code, reason, 9);
        [
            refused_with(status.clone()),
            Answer::body(error_event_of(&status)),
        ]
    };
    for failure in with_retry_after(429, "TooManyRequests") {
        let it = Running::new([list("10", &[]), failure, Answer::open("")]);
        it.advance_wait(9 * SECOND);
        assert_eq!(it.requests(3)[1..], ["watch 10", "watch 10"]);
        assert_eq!((it.waited(), it.handled_errors()), (vec![9], 0));
        assert!(it.last_error().is_too_many_requests());
    }
    for (failure, handled_errors) in with_retry_after(503, "ServiceUnavailable")
        .into_iter()
        .zip([1, 0])
    {
        let it = Running::new([list("10", &[]), failure, list("20", &[])]);
        it.advance_wait(9 * SECOND);
        assert_eq!(it.requests(4)[1..], ["watch 10", "list 10", "watch 20"]);
        assert_eq!(
            (it.waited(), it.handled_errors()),
            (vec![9], handled_errors)
        );
        assert_eq!(it.last_error().retry_after(), Some(9 * SECOND));
    }
    for failure in with_retry_after(429, "TooManyRequests") {
        let it = Running::watch_list([failure, Answer::open(initial_events_end("10"))]);
        it.advance_wait(9 * SECOND);
        assert_eq!(
            it.requests(2),
            ["watch-list most recent", "watch-list most recent"]
        );
        assert_eq!((it.waited(), it.handled_errors()), (vec![9], 0));
    }
    for failure in with_retry_after(503, "ServiceUnavailable") {
        let it = Running::watch_list([failure, list("10", &[])]);
        it.advance_wait(9 * SECOND);
        assert_eq!(
            it.requests(3),
            ["watch-list most recent", "list 0 limit 500", "watch 10"]
        );
        assert_eq!((it.waited(), it.handled_errors()), (vec![9], 0));
    }
}

#[test]
fn w7_internal_error_leads_to_a_list() {
    let internal_error = Answer::body(error_event(500, "InternalError"));
    let it = Running::new([list("10", &[]), internal_error, list("20", &[])]);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(3)[1..], ["watch 10", "list 10"]);
}

#[test]
fn w8_store_error_is_reported_and_watch_continues() {
    struct RejectingStore(Recorder);
    impl ReflectorStore<DynamicObject> for RejectingStore {
        fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
            self.0.add(object)?;
            Err(StoreError::other("no"))
        }
        fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
            self.0.update(object)
        }
        fn delete(&self, object: Deleted<DynamicObject>) -> Result<(), StoreError> {
            self.0.delete(object)
        }
        fn replace(
            &self,
            objects: Vec<Arc<DynamicObject>>,
            version: Option<ResourceVersion>,
        ) -> Result<(), StoreError> {
            self.0.replace(objects, version)
        }
    }
    let script = ScriptedListerWatcher::new([
        list("10", &[]),
        Answer::open(event("ADDED", "a", "11") + &event("MODIFIED", "a", "12")),
    ]);
    let store = Arc::new(RejectingStore(Recorder::default()));
    let status = run_until_read(&store, &script, 2);
    assert_eq!(
        store.0.calls(),
        ["replace [] at 10", "add a@11", "update a@12"]
    );
    assert!(
        status
            .last_error
            .unwrap()
            .to_string()
            .ends_with("the store rejected an event: no")
    );
    assert_eq!(status.resource_version, ResourceVersion::new("12"));
    assert_eq!((status.complete, status.unreadable), (false, 1));
}

#[test]
fn w9_events_of_unexpected_kind_are_reported_and_skipped() {
    let of_kind = |event: String, kind: &str| {
        event.replace(
            r#""object":{"#,
            &format!(r#""object":{{"apiVersion":"v1","kind":"{kind}","#),
        )
    };
    for other in [
        of_kind(event("ADDED", "x", "12"), "Secret"),
        of_kind(event("DELETED", "x", "12"), "Secret"),
        of_kind(event("MODIFIED", "x", "12"), "Pod").replace("v1", "v2"),
        of_kind(bookmark("12", "{}"), "Secret"),
        of_kind(event("ADDED", "x", "12"), "Table").replace("v1", "meta.k8s.io/v1"),
    ] {
        let it = Running::with(
            [
                list("10", &[]),
                Answer::broken(of_kind(event("ADDED", "a", "11"), "Pod") + &other),
                Answer::open(&*other),
            ],
            |options| options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod")),
        );
        assert_eq!(it.calls(3)[1..], ["add a@11"], "{other}");
        assert_eq!(
            it.requests(3)[2],
            "watch 11",
            "its version is not adopted: {other}"
        );
        let error = it.last_error().to_string();
        assert!(error.contains("expected v1 Pod, found "), "{error}");
    }
    let good = of_kind(event("ADDED", "a", "11"), "Pod") + &of_kind(bookmark("12", "{}"), "Pod");
    let it = Running::with([list("10", &[]), Answer::open(good)], |options| {
        options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod"));
    });
    assert_eq!(it.calls(2)[1..], ["add a@11", "bookmark 12"]);
    assert!(it.status().last_error.is_none());
}

#[test]
fn w9_watch_with_only_skipped_events_counts_as_very_short() {
    let other =
        r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}}"#;
    for skipped in [other, &event("ADDED", "", "11")] {
        let it = Running::with(
            [list("10", &[]), Answer::body(skipped), list("20", &[])],
            |options| {
                options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod"));
            },
        );
        it.advance_wait(SECOND);
        assert_eq!(it.requests(3)[1..], ["watch 10", "list 10"]);
    }
}

#[test]
fn w9_watch_list_skips_objects_and_bookmarks_of_other_kinds() {
    let secret = |event: String| {
        event.replace(
            r#""object":{"#,
            r#""object":{"apiVersion":"v1","kind":"Secret","#,
        )
    };
    let stream = event("ADDED", "a", "1")
        + &secret(event("ADDED", "x", "2"))
        + &secret(initial_events_end("3"))
        + &initial_events_end("10");
    let server = Server::new([Answer::open(stream)]).with_watch_list();
    let it = Running::start(server, Recorder::default(), |options| {
        options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod"));
    });
    assert_eq!(it.calls(1), ["replace [a@1] at 10"]);
}

#[test]
fn w9_delete_of_other_kind_keeps_watch_list_objects() {
    let deleted = event("DELETED", "a", "12").replace(
        r#""object":{"#,
        r#""object":{"apiVersion":"v1","kind":"Secret","#,
    );
    let stream = event("ADDED", "a", "1") + &deleted + &initial_events_end("14");
    let script = ScriptedListerWatcher::new([Answer::open(stream)]).with_watch_list();
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let status = run_until_read_with(&store, &script, 1, |options| {
        options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod"));
    });
    assert_eq!(store.list_keys(), ["a"]);
    assert_eq!((status.complete, status.unreadable), (false, 1));
}

#[test]
fn w9_table_event_is_skipped() {
    let table = r#"{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"12"},"rows":[]}}"#;
    let it = Running::new([
        list("10", &[]),
        Answer::broken(event("ADDED", "a", "11") + table + "\n"),
    ]);
    assert_eq!(it.requests(3)[2], "watch 11");
    assert_eq!(it.store.calls()[1..], ["add a@11"]);
}

#[test]
fn w11_versions_count_from_first_event_after_watch_list() {
    let it = Running::watch_list([
        Answer::broken(initial_events_end("10") + &event("ADDED", "a", "11")),
        Answer::open(""),
    ]);
    assert_eq!(it.requests(2), ["watch-list most recent", "watch 11"]);
}

#[test]
fn w13_resyncs_begin_after_watch_list_is_complete() {
    let streams = [
        Answer::open(event("ADDED", "a", "1") + SILENCE + &initial_events_end("10") + SILENCE),
        Answer::open(initial_events_end("20") + SILENCE),
    ];
    let server = Server::new(streams).with_watch_list();
    let it = Running::start(server, Recorder::refusing_resyncs(1), |options| {
        options.resync_period = 10 * SECOND;
    });
    // No resync during the silence before the objects are complete. The first resync fails, which
    // ends the watch.
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(2),
        ["watch-list most recent", "watch-list 10"],
        "a failed resync ends the watch"
    );
    let calls = [
        "replace [a@1] at 10",
        "resync",
        "replace [] at 20",
        "resync",
    ];
    assert_eq!(it.store.until_calls(4), calls);
}

#[test]
fn w14_handler_gets_failed_lists_and_watch_requests_only() {
    logging();
    let answers = || {
        [
            refused(500, "InternalError"),
            list("10", &[]),
            refused(403, "Forbidden"),
            list("10", &[]),
            Answer::body(event("ADDED", "a", "11") + "garbage\n"),
            Answer::body(error_event(500, "InternalError")),
            list("20", &[]),
            connection_refused(),
        ]
    };
    let run = |name: &str, handler: bool| {
        let it = Running::with(answers(), |options| {
            options.name = Some(name.to_owned());
            if !handler {
                options.watch_error_handler = None;
            }
        });
        for wait in 0..3 {
            it.advance_wait(60 * SECOND);
            it.wait_for_waits(wait + 1);
        }
        it.wait_for_waits(4);
        let warnings = logged(&format!("{name}: ")).len();
        (it.handled_errors(), warnings)
    };
    assert_eq!(run("w14 handler", true), (2, 3));
    assert_eq!(run("w14 none", false), (0, 5));
}
