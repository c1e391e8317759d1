//! The cycle of list and watch, and its lists (L1–L18).

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use k8s_informer::crossbeam_channel::unbounded;
use k8s_informer::reflector::{
    Body, ListOptions, ListWatch, Reflector, ReflectorOptions, ReflectorState,
};
use k8s_informer::time::Backoff;
use k8s_informer::{DynamicObject, Error, Indexer, Object, Stop, Stopper};
use k8s_informer_testing::{Answer, ScriptedListerWatcher, ScriptedRequest};

use crate::reflector::support::{
    Recorder, Running, SECOND, Server, TICK, bookmark, connection_refused, error_event, event,
    initial_events_end, list, logged, logging, object, page, refused, refused_with, run_until_read,
    status_with_retry_after,
};

#[test]
fn l8_first_list_is_at_0_and_watch_starts_at_its_version() {
    let it = Running::new([
        list("10", &["a", "b"]),
        Answer::open(event("ADDED", "c", "11")),
    ]);
    assert_eq!(it.requests(2), ["list 0 limit 500", "watch 10"]);
    assert_eq!(it.calls(2), ["replace [a@1 b@1] at 10", "add c@11"]);
    let ScriptedRequest::Watch(options) = &it.options(2)[1] else {
        panic!("the last request is not a watch")
    };
    assert!(options.allow_watch_bookmarks);
    assert!(
        (300..=600).contains(&options.timeout_seconds.unwrap()),
        "{options:?}"
    );
}

#[test]
fn l9_page_size_is_500_at_version_0_and_none_on_relist() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(error_event(410, "Expired")),
        list("20", &[]),
    ]);
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(4),
        ["list 0 limit 500", "watch 10", "list 10", "watch 20"]
    );
}

#[test]
fn l9_custom_page_size_applies_to_first_list_and_relists() {
    let answers = [
        list("10", &[]),
        Answer::body(error_event(410, "Expired")),
        list("20", &[]),
    ];
    let it = Running::with(answers, |options| options.page_size = Some(7));
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(3),
        ["list 0 limit 7", "watch 10", "list 10 limit 7 NotOlderThan"]
    );
}

#[test]
fn l9_version_match_is_only_set_on_first_page_at_a_version() {
    let it = Running::with(
        [
            list("10", &["a"]),
            Answer::body(error_event(410, "Expired")),
            page("20", &["a"], "x"),
            refused(410, "Expired"),
            list("21", &["a"]),
            Answer::body(error_event(410, "Expired")),
            refused(410, "Expired"),
            list("30", &["a"]),
        ],
        |options| options.page_size = Some(1),
    );
    it.requests(2);
    it.advance_wait(SECOND);
    it.requests(6);
    it.advance_wait(60 * SECOND);
    let requests = [
        "list 0 limit 1",
        "watch 10",
        "list 10 limit 1 NotOlderThan",
        "list most recent limit 1 continue x",
        "list 10",
        "watch 21",
        "list 21 limit 1 NotOlderThan",
        "list most recent limit 1",
        "watch 30",
    ];
    assert_eq!(it.requests(9), requests);
}

#[test]
fn l10_pages_at_version_0_enable_paging_of_relists() {
    let it = Running::new([
        page("10", &["a"], "next"),
        list("11", &["b"]),
        Answer::body(error_event(410, "Expired")),
        list("20", &[]),
    ]);
    it.requests(3);
    it.advance_wait(SECOND);
    let requests = [
        "list 0 limit 500",
        "list most recent limit 500 continue next",
        "watch 10",
        "list 10 limit 500 NotOlderThan",
    ];
    assert_eq!(it.requests(4), requests);
}

#[test]
fn l11_unlistable_version_falls_back_to_most_recent_at_once() {
    for (code, reason) in [(410, "Expired"), (410, "Gone")] {
        let it = Running::new([
            list("10", &["a"]),
            Answer::body(error_event(410, "Expired")),
            refused(code, reason),
            list("5", &["b"]),
        ]);
        it.requests(2);
        it.advance_wait(SECOND);
        assert_eq!(
            it.requests(5)[2..],
            ["list 10", "list most recent", "watch 5"],
            "{reason}"
        );
        assert_eq!(it.errors.lock().len(), 0);
    }
}

#[test]
fn l12_too_large_version_falls_back_to_most_recent() {
    let causes = [
        serde_json::json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}),
        serde_json::json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}),
        serde_json::json!({"code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 1", "details": {}}),
    ];
    for cause in causes {
        let refused = Answer::error(Error::from_status(
            serde_json::from_value(cause.clone()).unwrap(),
        ));
        let it = Running::new([refused, list("1", &[])]);
        assert_eq!(
            it.requests(3),
            ["list 0 limit 500", "list most recent limit 500", "watch 1"],
            "{cause}"
        );
    }
}

#[test]
fn l11_most_recent_is_requested_once_per_cycle() {
    let it = Running::new([
        refused(410, "Expired"),
        refused(410, "Expired"),
        list("1", &[]),
    ]);
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(3),
        [
            "list 0 limit 500",
            "list most recent limit 500",
            "list most recent limit 500"
        ]
    );
    assert!(it.errors.lock()[0].is_gone());
}

#[test]
fn l13_pages_form_one_list_with_first_page_version() {
    let it = Running::new([
        page("10", &["a"], "x"),
        page("11", &["b"], "y"),
        list("12", &["c"]),
    ]);
    let requests = [
        "list 0 limit 500",
        "list most recent limit 500 continue x",
        "list most recent limit 500 continue y",
    ];
    assert_eq!(it.requests(4)[..3], requests);
    assert_eq!(it.calls(3), ["replace [a@1 b@1 c@1] at 10"]);
}

#[test]
fn l13_expired_continue_token_triggers_one_full_list() {
    let it = Running::new([
        page("10", &["a"], "x"),
        refused(410, "Expired"),
        list("20", &["a", "b"]),
    ]);
    assert_eq!(
        it.requests(4),
        [
            "list 0 limit 500",
            "list most recent limit 500 continue x",
            "list 0",
            "watch 20"
        ]
    );
    assert_eq!(it.calls(2), ["replace [a@1 b@1] at 20"]);
}

#[test]
fn l13_paged_full_list_is_read_to_the_end() {
    let it = Running::new([
        page("10", &["a"], "x"),
        refused(410, "Expired"),
        page("20", &["a"], "y"),
        list("20", &["b"]),
    ]);
    assert_eq!(
        it.requests(5)[2..],
        ["list 0", "list most recent continue y", "watch 20"]
    );
    assert_eq!(it.calls(3), ["replace [a@1 b@1] at 20"]);
}

#[test]
fn l13_repeated_continue_tokens_fail_the_list() {
    for tokens in [&["x", "x"][..], &["x", "y", "x"], &["v", "x", "y", "x"]] {
        let last = tokens.len();
        let pages = tokens.iter().map(|token| page("10", &["a"], token));
        let it = Running::new(pages.chain([list("20", &["b"])]));
        it.advance_wait(SECOND);
        let requests = it.requests(tokens.len() + 2);
        assert_eq!(
            requests[tokens.len()..],
            ["list 0 limit 500", "watch 20"],
            "{tokens:?}"
        );
        assert_eq!(it.store.calls(), ["replace [b@1] at 20"]);
        let error = format!(
            "list scripted objects: unexpected response: the list never ends: page {last} repeats a continue token"
        );
        assert_eq!(it.errors.lock()[0].to_string(), error);
    }
}

#[test]
fn l13_pages_without_progress_fail_the_list_and_back_off() {
    let endless = (0..).map(|number| page("10", &[], &format!("t{number}")));
    let it = Running::new(endless.take(300));
    it.advance_wait(SECOND);
    it.wait_for_waits(2);
    assert_eq!(it.request_count(), 200);
    assert_eq!(it.waited(), [1, 2]);
    let error = "the last 100 of 100 pages contained nothing new";
    assert!(
        it.errors
            .lock()
            .iter()
            .all(|it| it.to_string().contains(error)),
        "{:?}",
        it.errors.lock()
    );
    assert!(it.store.calls().is_empty());
}

#[test]
fn l13_100_pages_of_repeated_objects_fail_the_list() {
    let endless = (0..).map(|number| page("10", &["a", "b"], &format!("t{number}")));
    let it = Running::new(endless.take(150));
    it.wait_for_waits(1);
    assert_eq!(it.request_count(), 101);
    let error = "the last 100 of 101 pages contained nothing new";
    assert!(
        it.last_error().to_string().ends_with(error),
        "{}",
        it.last_error()
    );
}

/// An object that counts the live objects of its type.
#[derive(serde::Deserialize)]
struct Counted {
    metadata: k8s_informer::ObjectMeta,
    #[serde(skip)]
    _alive: Alive,
}

k8s_informer::impl_object!(Counted, "v1", "Counted", "counteds", Namespaced);

struct Alive;

static ALIVE: AtomicUsize = AtomicUsize::new(0);
static MOST_ALIVE: AtomicUsize = AtomicUsize::new(0);

impl Default for Alive {
    fn default() -> Self {
        MOST_ALIVE.fetch_max(ALIVE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn l15_one_object_per_key_is_held_during_a_list() {
    const COUNT: usize = 3000;
    let body = |items: &[String], kind_first: bool, token: &str| {
        let items = items.join(",");
        let meta = format!(r#""metadata":{{"resourceVersion":"10","continue":"{token}"}}"#);
        match kind_first {
            true => format!(r#"{{"kind":"List",{meta},"items":[{items}]}}"#),
            false => format!(r#"{{"items":[{items}],"kind":"List",{meta}}}"#),
        }
    };
    let adjacent: Vec<_> = (0..COUNT)
        .map(|at| object(["a", "b", "c"][at / (COUNT / 3)], &at.to_string()))
        .collect();
    let mixed: Vec<_> = (0..COUNT)
        .map(|at| object(["b", "c", "a"][at % 3], &at.to_string()))
        .collect();
    for items in [adjacent, mixed] {
        for kind_first in [true, false] {
            for pages in [1, 10] {
                MOST_ALIVE.store(0, Ordering::SeqCst);
                let lists = items.chunks(COUNT / pages).enumerate().map(|(at, page)| {
                    let token = if at + 1 == pages {
                        String::new()
                    } else {
                        format!("t{at}")
                    };
                    Answer::body(body(page, kind_first, &token))
                });
                let store = Arc::new(Indexer::<Counted>::for_objects());
                let script =
                    ScriptedListerWatcher::new(lists.chain([Answer::open(bookmark("11", "{}"))]));
                let status = run_until_read(&store, &script, pages + 1);
                let mut versions: Vec<_> = store
                    .list()
                    .iter()
                    .map(|object| object.resource_version().to_owned())
                    .collect();
                versions.sort();
                let mut expected: Vec<_> = ["a", "b", "c"]
                    .map(|name| {
                        items
                            .iter()
                            .rposition(|item| item.contains(&format!(r#""{name}""#)))
                            .unwrap()
                    })
                    .map(|at| at.to_string())
                    .into();
                expected.sort();
                assert_eq!(versions, expected, "{status:?}");
                let most = MOST_ALIVE.load(Ordering::SeqCst);
                assert!(
                    most <= 7,
                    "{most} objects at once, {pages} pages, kind first: {kind_first}"
                );
            }
        }
    }
}

#[test]
fn l13_page_failing_with_500_fails_list_and_keeps_store() {
    let it = Running::new([
        page("10", &["a"], "x"),
        refused(500, "InternalError"),
        list("20", &["b"]),
    ]);
    it.requests(2);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 0 limit 500", "watch 20"]);
    assert_eq!(it.store.calls(), ["replace [b@1] at 20"]);
    assert!(it.errors.lock()[0].is_internal_error());
}

#[test]
fn l15_body_that_is_not_a_list_leaves_store_unchanged() {
    let bodies = [
        r#"{"kind":"Table","metadata":{"resourceVersion":"1"},"items":[]}"#,
        r#"{"kind":"Status","status":"Failure","code":403}"#,
        r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#,
        "{}",
        "<html>sign in</html>",
        "[]",
        "",
        r#"{"kind": "List", "metadata":{"resourceVersion":"1"},"items":[{"metadata""#,
        // Without items, only an empty list is a list.
        r#"{"kind":"AllowList","metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"kind":"AllowList","metadata":{"resourceVersion":"1"},"spec":{}}"#,
        r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"item":[{}]}"#,
        r#"{"kind":"PodList","metadata":{"resourceVersion":"1","remainingItemCount":2}}"#,
        r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[]}"#,
        r#"{"kind":"Status","metadata":{}}"#,
        r#"{"metadata":{"resourceVersion":"1"}}"#,
    ];
    for body in bodies {
        let it = Running::new([Answer::body(body), list("20", &["b"])]);
        it.advance_wait(SECOND);
        it.requests(3);
        assert_eq!(it.store.calls(), ["replace [b@1] at 20"], "{body}");
        assert!(
            it.errors.lock()[0].is_decode(),
            "{body}: {:?}",
            it.errors.lock()
        );
    }
}

#[test]
fn l15_list_rejected_by_store_is_requested_again() {
    let it = Running::start(
        Server::new([list("10", &["a"]), list("10", &["a"])]),
        Recorder::refusing(1),
        |_| {},
    );
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(3),
        ["list 0 limit 500", "list 0 limit 500", "watch 10"]
    );
    assert_eq!(
        it.errors.lock()[0].to_string(),
        "list scripted objects: unable to sync list result: no"
    );
}

#[test]
fn l15_list_without_items_is_empty() {
    for body in [
        r#"{"kind": "List", "metadata":{"resourceVersion":"3"},"items":null}"#,
        r#"{"items": null, "metadata":{"resourceVersion":"3"},"kind":"PodList","apiVersion":null}"#,
        r#"{"kind": "List", "metadata":{"resourceVersion":"3"}}"#,
        r#"{"metadata":{"remainingItemCount":null,"continue":null,"resourceVersion":"3"},"kind":"PodList","apiVersion":"v1"}"#,
    ] {
        let it = Running::new([Answer::body(body)]);
        assert_eq!(it.requests(2)[1], "watch 3", "{body}");
        assert_eq!(it.calls(1), ["replace [] at 3"]);
    }
    // The version is optional as well.
    for body in [
        r#"{"kind":"PodList"}"#,
        r#"{"kind":"PodList","metadata":null}"#,
    ] {
        let it = Running::new([Answer::body(body)]);
        assert_eq!(it.requests(2)[1], "watch most recent", "{body}");
    }
    let without_items =
        |meta: &str| Answer::body(format!(r#"{{"kind":"PodList","metadata":{{{meta}}}}}"#));
    let pages = [
        without_items(r#""resourceVersion":"3","continue":"a","remainingItemCount":1"#),
        page("3", &["a"], "b"),
        without_items(r#""resourceVersion":"3""#),
    ];
    let it = Running::new(pages);
    assert_eq!(it.requests(4)[3], "watch 3");
    assert_eq!(it.calls(3), ["replace [a@1] at 3"]);
}

#[test]
fn l2_l3_waits_grow_and_reset_after_a_healthy_watch() {
    let mut answers: Vec<_> = (0..7).map(|_| refused(503, "ServiceUnavailable")).collect();
    answers.push(list("10", &[]));
    answers.push(Answer::body(
        event("ADDED", "a", "11") + &error_event(410, "Expired"),
    ));
    let it = Running::new(answers);
    for request in 1..=7 {
        it.requests(request);
        it.advance_wait(60 * SECOND);
    }
    it.requests(9);
    it.advance_wait(SECOND);
    it.requests(10);
    let waits: Vec<_> = it.clock.waits().iter().map(Duration::as_secs).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 1]);
}

#[test]
fn l17_slow_list_or_watch_list_is_logged_with_duration() {
    logging();
    let ticks = |count| TICK.repeat(count);
    let empty_list = |ticks: String| {
        Answer::body(format!(
            r#"{{"kind":"List",{ticks}"metadata":{{"resourceVersion":"10"}},"items":[]}}"#
        ))
    };
    let info_lines = |name: &str, server: Server| {
        let it = Running::start(server, Recorder::default(), |options| {
            options.name = Some(name.to_owned());
        });
        it.wait_for_waits(1);
        logged(&format!("{name}: "))
            .into_iter()
            .filter(|line| line.starts_with("INFO "))
            .collect::<Vec<_>>()
    };
    let failed = || refused(403, "Forbidden");
    assert_eq!(
        info_lines("l17 short", Server::new([empty_list(ticks(10)), failed()])),
        [""; 0]
    );
    let long = Server::new([empty_list(ticks(11)), failed()]);
    assert_eq!(
        info_lines("l17 long", long),
        ["INFO l17 long: the list took 11 s"]
    );
    let waits = Server::new([failed()]).with_latency(11 * SECOND);
    assert_eq!(
        info_lines("l17 failed", waits),
        ["INFO l17 failed: the list took 11 s"]
    );
    let pages = Server::new([
        page("10", &["a"], &format!("x{}", ticks(6))),
        empty_list(ticks(6)),
        failed(),
    ]);
    assert_eq!(
        info_lines("l17 pages", pages),
        ["INFO l17 pages: the list took 12 s"]
    );

    let stream = ticks(11) + &initial_events_end("10") + &ticks(11) + &error_event(410, "Expired");
    let watch_list = Server::new([Answer::body(stream)]).with_watch_list();
    assert_eq!(
        info_lines("l17 stream", watch_list),
        ["INFO l17 stream: the watch-list took 11 s"]
    );
}

#[test]
fn l1_first_cycle_starts_at_once_later_ones_wait() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(error_event(410, "Expired")),
        refused(403, "Forbidden"),
        list("20", &[]),
        Answer::body(""),
        list("30", &[]),
    ]);
    let all = [
        "list 0 limit 500",
        "watch 10",
        "list 10",
        "list 10",
        "watch 20",
        "list 20",
    ];
    for (wait, requests) in [2, 3, 5].into_iter().enumerate() {
        it.wait_for_waits(wait + 1);
        assert_eq!(
            (&*it.requests(requests), it.request_count()),
            (&all.map(String::from)[..requests], requests)
        );
        it.advance_wait(60 * SECOND);
    }
    assert_eq!(it.requests(6), all);
}

#[test]
fn l2_default_waits_grow_from_800_ms_to_30_s_with_jitter() {
    let failures = std::iter::repeat_with(|| refused(403, "Forbidden")).take(8);
    let it = Running::with(failures, |options| options.backoff = Backoff::default());
    let waits = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0].map(Duration::from_secs_f64);
    for (at, wait) in waits.into_iter().enumerate() {
        it.advance_wait(60 * SECOND);
        let waited = it.clock.waits()[at];
        assert!(
            waited >= wait && waited < 2 * wait,
            "{waited:?} for {wait:?}"
        );
    }
}

#[test]
fn l3_watch_is_healthy_after_an_event_or_a_second() {
    let cases = [
        // The events of the watch, and the waits in seconds.
        (
            event("ADDED", "a", "11") + &error_event(410, "Expired"),
            [1, 2, 1, 2],
        ),
        (
            bookmark("11", "{}") + &error_event(410, "Expired"),
            [1, 2, 1, 2],
        ),
        (error_event(410, "Expired"), [1, 2, 4, 8]),
        (TICK.to_owned() + &error_event(410, "Expired"), [1, 2, 4, 8]),
        (String::new(), [1, 2, 4, 8]),
    ];
    for (watch, waits) in cases {
        let failed = || refused(500, "InternalError");
        let it = Running::new([
            failed(),
            failed(),
            list("10", &[]),
            Answer::body(&*watch),
            failed(),
        ]);
        for _ in 0..4 {
            it.advance_wait(60 * SECOND);
        }
        assert_eq!(it.waited(), waits, "{watch}");
    }
    // A watch that ends after a second without an event is opened again at once. The next error
    // then counts as the first failure.
    let failed = || refused(403, "Forbidden");
    let it = Running::new([
        failed(),
        failed(),
        list("10", &[]),
        Answer::body(TICK),
        failed(),
    ]);
    for _ in 0..3 {
        it.advance_wait(60 * SECOND);
    }
    assert_eq!(it.waited(), [1, 2, 1]);
}

#[test]
fn l3_watch_after_watch_list_is_healthy_by_rules_after_list() {
    for (watch, waits, next) in [
        (
            initial_events_end("10") + &error_event(410, "Expired"),
            [1, 2, 4],
            "watch-list 10",
        ),
        (
            event("ADDED", "a", "1") + TICK + &initial_events_end("10"),
            [1, 2, 4],
            "watch-list 10",
        ),
        (
            initial_events_end("10") + &bookmark("11", "{}") + "garbage",
            [1, 2, 1],
            "watch 11",
        ),
        (initial_events_end("10") + TICK, [1, 2, 1], "watch 10"),
    ] {
        let it = Running::watch_list([
            connection_refused(),
            connection_refused(),
            Answer::body(&*watch),
            connection_refused(),
        ]);
        for _ in 0..3 {
            it.advance_wait(60 * SECOND);
        }
        assert_eq!(
            it.requests(4)[2..],
            ["watch-list most recent", next],
            "{watch}"
        );
        assert_eq!(it.waited()[..3], waits, "{watch}");
    }
}

#[test]
fn l4_lists_watches_and_watch_lists_share_one_backoff() {
    let it = Running::watch_list([
        connection_refused(),
        refused(403, "Forbidden"),
        refused(403, "Forbidden"),
        Answer::body(initial_events_end("10") + &error_event(429, "TooManyRequests")),
        connection_refused(),
        refused(403, "Forbidden"),
    ]);
    for _ in 0..5 {
        it.advance_wait(60 * SECOND);
    }
    let requests = [
        "watch-list most recent",
        "watch-list most recent",
        "list 0 limit 500",
        "watch-list most recent",
        "watch 10",
        "watch 10",
        "watch-list 10",
    ];
    assert_eq!(it.requests(7), requests);
    assert_eq!(it.waited(), [1, 2, 4, 8, 16]);
}

#[test]
fn l5_backoff_uses_the_clock_of_the_options() {
    let it = Running::new([refused(403, "Forbidden"), list("10", &[])]);
    it.wait_for_waits(1);
    it.clock.advance(SECOND - Duration::from_millis(1));
    assert_eq!(
        (it.request_count(), it.status().state),
        (1, ReflectorState::BackingOff)
    );
    it.clock.advance(Duration::from_millis(1));
    assert_eq!(it.requests(3).len(), 3);
}

#[test]
fn l7_failed_list_starts_no_watch_and_calls_handler() {
    let it = Running::new([
        refused(403, "Forbidden"),
        connection_refused(),
        refused(429, "TooManyRequests"),
    ]);
    for _ in 0..3 {
        it.advance_wait(60 * SECOND);
    }
    assert_eq!(it.requests(4), ["list 0 limit 500"; 4]);
    let errors = it.errors.lock();
    assert!(
        errors[0].is_forbidden() && errors[1].is_connection() && errors[2].is_too_many_requests()
    );
    assert_eq!(errors.len(), 3);
}

#[test]
fn l7_longer_of_retry_after_and_backoff_is_waited() {
    for (code, reason) in [(429, "TooManyRequests"), (503, "ServiceUnavailable")] {
        let with_retry_after =
            |seconds| refused_with(status_with_retry_after(code, reason, seconds));
        let it = Running::new([
            with_retry_after(9),
            with_retry_after(1),
            with_retry_after(40),
            with_retry_after(u32::MAX),
            list("10", &[]),
        ]);
        for _ in 0..4 {
            it.advance_wait(600 * SECOND);
        }
        it.requests(6);
        assert_eq!(
            it.waited(),
            [9, 2, 40, 600],
            "{reason}: a wait is capped at ten minutes"
        );
        assert_eq!(it.handled_errors(), 4, "{reason}");
    }
}

#[test]
fn l14_table_is_rejected_as_list() {
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"10"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"],"object":{"metadata":{"name":"a"}}}]}"#;
    let with_items = table.replace(r#""rows":"#, r#""items":"#);
    for table in [
        table.to_owned(),
        table.replace("/v1", "/v1beta1"),
        with_items,
    ] {
        let it = Running::new([Answer::body(&*table), list("20", &["b"])]);
        it.advance_wait(SECOND);
        assert_eq!(
            it.requests(3),
            ["list 0 limit 500", "list 0 limit 500", "watch 20"]
        );
        assert_eq!(it.store.calls(), ["replace [b@1] at 20"], "{table}");
        assert!(
            it.errors.lock()[0].is_decode(),
            "{table}: {:?}",
            it.errors.lock()
        );
    }
}

#[test]
fn channel_body_delivers_messages_and_ends_with_senders_or_stop() {
    let (sender, receiver) = unbounded();
    // The body keeps its `Stop` alive.
    let mut body = Body::from_channel(receiver, &Stop::never());
    let mut buffer = [0; 2];
    let now = Some(Duration::ZERO);
    let silence = body.read_within(&mut buffer, now).unwrap_err();
    assert_eq!(silence.kind(), io::ErrorKind::TimedOut);
    for message in ["", "abc", "d"] {
        sender.send(message.into()).unwrap();
    }
    let mut read = || {
        let count = body.read_within(&mut buffer, None).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    };
    assert_eq!([read(), read(), read()], ["ab", "c", "d"]);
    drop(sender);
    assert_eq!(read(), "", "the end of the body");

    let stop = Stopper::new();
    let (sender, receiver) = unbounded();
    let mut body = Body::from_channel(receiver, &stop);
    let (reading, ended) = (stop.clone(), thread::spawn(move || body.read(&mut [0; 2])));
    reading.stop();
    let error = Error::from(ended.join().unwrap().unwrap_err());
    assert!(error.is_stopped(), "{error}");
    assert!(sender.send(Vec::new()).is_err());
}

#[test]
fn l16_list_is_requested_and_read_on_reflector_thread() {
    struct OnThread(ThreadId, Cursor<&'static str>);
    impl Read for OnThread {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert_eq!(thread::current().id(), self.0);
            self.1.read(buffer)
        }
    }
    let here = thread::current().id();
    let lists = ListWatch::new(
        move |_: &ListOptions, _: &Stop| {
            assert_eq!(thread::current().id(), here);
            let body = r#"{"kind":"List","metadata":{"resourceVersion":"10"},"items":[]}"#;
            Ok(Body::new(OnThread(here, Cursor::new(body))))
        },
        |_: &ListOptions, _: &Stop| Err(Error::other("enough")),
    );
    let stop = Stopper::new();
    let (store, enough) = (Arc::new(Recorder::default()), stop.clone());
    let mut options = ReflectorOptions::default();
    options.watch_error_handler = Some(Arc::new(move |_: &Error| enough.stop()));
    let reflector = Reflector::new(Arc::new(lists), store.clone(), options);
    reflector.run(&stop);
    assert_eq!(store.calls(), ["replace [] at 10"]);
    assert_eq!(reflector.status().last_error.unwrap().to_string(), "enough");
}

#[test]
fn l18_list_bodies_have_no_read_timeout() {
    let it = Running::new([page("10", &["a"], "x"), list("10", &[]), Answer::open("")]);
    it.calls(3);
    let ScriptedRequest::Watch(options) = &it.options(3)[2] else {
        panic!("the last request is not a watch")
    };
    let watch_read_timeout = Duration::from_secs(u64::from(options.timeout_seconds.unwrap()) + 30);
    assert_eq!(it.server.read_timeouts(), [Some(watch_read_timeout)]);
}

#[test]
fn w9_nameless_list_item_is_reported_and_skipped() {
    let list_of = |version: &str, names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
        let meta = format!(r#"{{"resourceVersion":"{version}"}}"#);
        Answer::body(format!(
            r#"{{"kind":"List","metadata":{meta},"items":[{}]}}"#,
            items.join(",")
        ))
    };
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let script = ScriptedListerWatcher::new([list_of("10", &["a", "", "b"]), Answer::open("")]);
    let status = run_until_read(&store, &script, 2);
    let names = || {
        let mut names: Vec<_> = store
            .list()
            .iter()
            .map(|object| object.name().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a", "b"]);
    assert_eq!((status.complete, status.unreadable), (false, 1));
    let error = status.last_error.unwrap().to_string();
    assert!(
        error.ends_with("item 1 of the list: unexpected response: the object has no name"),
        "{error}"
    );

    // The nameless item may be any of the missing objects, so none counts as deleted.
    let script = ScriptedListerWatcher::new([list_of("20", &["", "c"]), Answer::open("")]);
    run_until_read(&store, &script, 2);
    assert_eq!(names(), ["a", "b", "c"]);
    let script = ScriptedListerWatcher::new([list_of("30", &["c"]), Answer::open("")]);
    assert!(run_until_read(&store, &script, 2).complete);
    assert_eq!(names(), ["c"]);

    // A custom store gets the list as well. It has no object that could be the nameless one.
    let it = Running::new([list_of("10", &["a", ""])]);
    it.requests(2);
    assert_eq!(it.store.calls(), ["replace [a@1] at 10"]);
}
