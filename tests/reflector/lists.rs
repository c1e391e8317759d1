//! The cycle and its lists (L1–L18).

use std::time::Duration;

use k8s_informer::Error;
use k8s_informer::testing::{Answer, Request};

use crate::support::*;

#[test]
fn l8_first_list_is_at_0_and_the_watch_starts_from_the_lists_version() {
    let it = Running::new([list("10", &["a", "b"]), Answer::open(event("ADDED", "c", "11"))]);
    assert_eq!(it.requests(2), ["list 0 limit 500", "watch 10"]);
    assert_eq!(it.calls(2), ["replace [a@1 b@1] at 10", "add c@11"]);
    let Request::Watch(options) = &it.options(2)[1] else { panic!("no watch") };
    assert!(options.allow_watch_bookmarks);
    assert!((300..=600).contains(&options.timeout_seconds.unwrap()), "{options:?}");
}

#[test]
fn l9_page_size_is_500_where_any_state_will_do_and_none_on_a_relist() {
    let it = Running::new([list("10", &[]), Answer::body(error_event(410, "Expired")), list("20", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "list 10", "watch 20"]);
}

#[test]
fn l9_page_size_of_the_user_counts_for_every_list() {
    let answers = [list("10", &[]), Answer::body(error_event(410, "Expired")), list("20", &[])];
    let it = Running::with(answers, |options| options.page_size = Some(7));
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 7", "watch 10", "list 10 limit 7"]);
}

#[test]
fn l10_a_server_that_pages_at_0_is_asked_for_pages_from_then_on() {
    let it = Running::new([
        page("10", &["a"], "next"),
        list("11", &["b"]),
        Answer::body(error_event(410, "Expired")),
        list("20", &[]),
    ]);
    it.requests(3);
    it.pass(SECOND);
    let requests =
        ["list 0 limit 500", "list most recent limit 500 continue next", "watch 10", "list 10 limit 500"];
    assert_eq!(it.requests(4), requests);
}

#[test]
fn l11_a_version_that_can_not_be_listed_gives_way_to_the_most_recent_one_at_once() {
    for (code, reason) in [(410, "Expired"), (410, "Gone")] {
        let it = Running::new([
            list("10", &["a"]),
            Answer::body(error_event(410, "Expired")),
            refused(code, reason),
            list("5", &["b"]),
        ]);
        it.requests(2);
        it.pass(SECOND);
        assert_eq!(it.requests(5)[2..], ["list 10", "list most recent", "watch 5"], "{reason}");
        assert_eq!(it.errors.lock().len(), 0);
    }
}

#[test]
fn l12_too_large_versions_give_way_to_the_most_recent_one() {
    let causes = [
        serde_json::json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}),
        serde_json::json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}),
        serde_json::json!({"code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 1", "details": {}}),
    ];
    for cause in causes {
        let refused = Answer::error(Error::from_status(serde_json::from_value(cause.clone()).unwrap()));
        let it = Running::new([refused, list("1", &[])]);
        assert_eq!(it.requests(3), ["list 0 limit 500", "list most recent limit 500", "watch 1"], "{cause}");
    }
}

#[test]
fn l11_the_most_recent_list_is_asked_for_once_a_cycle() {
    let it = Running::new([refused(410, "Expired"), refused(410, "Expired"), list("1", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(
        it.requests(3),
        ["list 0 limit 500", "list most recent limit 500", "list most recent limit 500"]
    );
    assert!(it.errors.lock()[0].is_gone());
}

#[test]
fn l13_pages_are_one_list_with_the_version_of_the_first() {
    let it = Running::new([page("10", &["a"], "x"), page("11", &["b"], "y"), list("12", &["c"])]);
    let requests = [
        "list 0 limit 500",
        "list most recent limit 500 continue x",
        "list most recent limit 500 continue y",
    ];
    assert_eq!(it.requests(4)[..3], requests);
    assert_eq!(it.calls(3), ["replace [a@1 b@1 c@1] at 10"]);
}

#[test]
fn l13_an_expired_token_is_answered_by_one_full_list() {
    let it = Running::new([page("10", &["a"], "x"), refused(410, "Expired"), list("20", &["a", "b"])]);
    assert_eq!(
        it.requests(4),
        ["list 0 limit 500", "list most recent limit 500 continue x", "list 0", "watch 20"]
    );
    assert_eq!(it.calls(2), ["replace [a@1 b@1] at 20"]);
}

#[test]
fn l13_a_full_list_that_comes_in_pages_is_read_to_its_end() {
    let it = Running::new([
        page("10", &["a"], "x"),
        refused(410, "Expired"),
        page("20", &["a"], "y"),
        list("20", &["b"]),
    ]);
    assert_eq!(it.requests(5)[2..], ["list 0", "list most recent continue y", "watch 20"]);
    assert_eq!(it.calls(3), ["replace [a@1 b@1] at 20"]);
}

#[test]
fn l13_any_other_failure_of_a_page_fails_the_list_and_leaves_the_store_alone() {
    let it = Running::new([page("10", &["a"], "x"), refused(500, "InternalError"), list("20", &["b"])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 0 limit 500", "watch 20"]);
    assert_eq!(it.store.calls(), ["replace [b@1] at 20"]);
    assert!(it.errors.lock()[0].is_internal_error());
}

#[test]
fn l15_what_is_no_list_fails_and_leaves_the_store_alone() {
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
        r#"{"kind": "List", "metadata":{"resourceVersion":"1"},"items":[null]}"#,
    ];
    for body in bodies {
        let it = Running::new([Answer::body(body), list("20", &["b"])]);
        it.pass(SECOND);
        it.requests(3);
        assert_eq!(it.store.calls(), ["replace [b@1] at 20"], "{body}");
        assert!(it.errors.lock()[0].is_decode(), "{body}: {:?}", it.errors.lock());
    }
}

#[test]
fn l15_a_store_that_refuses_the_list_gets_it_again() {
    let it =
        Running::start(Server::new([list("10", &["a"]), list("10", &["a"])]), Recorder::refusing(1), |_| {});
    it.pass(SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 500", "list 0 limit 500", "watch 10"]);
    assert_eq!(it.errors.lock()[0].to_string(), "list scripted objects: unable to sync list result: no");
}

#[test]
fn l15_items_null_is_an_empty_list() {
    let it =
        Running::new([Answer::body(r#"{"kind": "List", "metadata":{"resourceVersion":"3"},"items":null}"#)]);
    assert_eq!(it.requests(2)[1], "watch 3");
    assert_eq!(it.calls(1), ["replace [] at 3"]);
}

#[test]
fn l2_waits_grow_and_l3_start_again_once_a_watch_was_healthy() {
    let mut answers: Vec<_> = (0..7).map(|_| refused(503, "ServiceUnavailable")).collect();
    answers.push(list("10", &[]));
    answers.push(Answer::body(event("ADDED", "a", "11") + &error_event(410, "Expired")));
    let it = Running::new(answers);
    for request in 1..=7 {
        it.requests(request);
        it.pass(60 * SECOND);
    }
    it.requests(9);
    it.pass(SECOND);
    it.requests(10);
    let waits: Vec<_> = it.clock.waits().iter().map(Duration::as_secs).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 1]);
}

#[test]
fn l17_a_list_or_a_watch_list_that_takes_long_is_logged_with_its_time() {
    logging();
    let ticks = |count| TICK.repeat(count);
    let empty_list = |ticks: String| {
        Answer::body(format!(r#"{{"kind":"List",{ticks}"metadata":{{"resourceVersion":"10"}},"items":[]}}"#))
    };
    let long_log = |name: &str, server: Server| {
        let it = Running::start(server, Recorder::default(), |options| options.name = name.to_owned());
        it.waits(1);
        logged(&format!("{name}: ")).into_iter().filter(|line| line.starts_with("INFO ")).collect::<Vec<_>>()
    };
    let failed = || refused(403, "Forbidden");
    assert_eq!(long_log("l17 short", Server::new([empty_list(ticks(10)), failed()])), [""; 0]);
    let long = Server::new([empty_list(ticks(11)), failed()]);
    assert_eq!(long_log("l17 long", long), ["INFO l17 long: the list took 11 s"]);
    let waits = Server::new([failed()]).taking(11 * SECOND);
    assert_eq!(long_log("l17 failed", waits), ["INFO l17 failed: the list took 11 s"]);
    let pages = Server::new([page("10", &["a"], &format!("x{}", ticks(6))), empty_list(ticks(6)), failed()]);
    assert_eq!(long_log("l17 pages", pages), ["INFO l17 pages: the list took 12 s"]);

    let stream = ticks(11) + &initial_events_end("10") + &ticks(11) + &error_event(410, "Expired");
    let watch_list = Server::new([Answer::body(stream)]).with_watch_list();
    assert_eq!(long_log("l17 stream", watch_list), ["INFO l17 stream: the watch-list took 11 s"]);
}
