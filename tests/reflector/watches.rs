//! What comes after a list: the watch and its end (W1–W15).

use std::sync::Arc;

use k8s_informer::testing::Answer;
use parking_lot::Mutex;

use crate::support::*;

#[test]
fn w3_a_refused_connection_or_429_is_waited_out_without_a_list() {
    let patient = refused_with(patient_status(429, "TooManyRequests", 9));
    let it = Running::new([list("10", &[]), patient, Answer::open("")]);
    it.requests(2);
    it.pass(9 * SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 10"]);
    assert_eq!(it.clock.waits(), [9 * SECOND], "Retry-After counts where it is longer");
    assert!(it.errors.lock().is_empty());
}

#[test]
fn w3_any_other_refusal_of_the_watch_lists_again() {
    let it = Running::new([list("10", &[]), refused(403, "Forbidden"), list("12", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "list 10", "watch 12"]);
    assert!(it.errors.lock()[0].is_forbidden());
}

#[test]
fn w4_a_watch_that_ends_or_breaks_goes_on_from_the_last_version_at_once() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(event("ADDED", "a", "11") + &event("MODIFIED", "a", "12")),
        Answer::broken(event("DELETED", "a", "13") + r#"{"type":"ADDED","obj"#),
        Answer::open(event("BOOKMARK", "", "20")),
    ]);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "watch 12", "watch 13"]);
    assert_eq!(it.calls(4), ["replace [] at 10", "add a@11", "update a@12", "delete a@13", "bookmark 20"]);
    assert!(it.clock.waits().is_empty() && it.errors.lock().is_empty());
    assert_eq!(it.reflector.last_sync_resource_version(), "20");
}

#[test]
fn w5_a_very_short_watch_backs_off_and_lists() {
    let it = Running::new([list("10", &[]), Answer::body(""), list("10", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(3)[2], "list 10");
    assert!(it.last_error().to_string().contains("very short watch"));
    assert!(it.errors.lock().is_empty(), "W14: not for the handler");
}

#[test]
fn w6_an_error_event_lists_again_at_the_last_version() {
    for (code, reason) in [(410, "Expired"), (500, "InternalError"), (403, "Forbidden")] {
        let it = Running::new([
            list("10", &[]),
            Answer::body(event("ADDED", "a", "11") + &error_event(code, reason)),
            list("30", &[]),
        ]);
        it.requests(2);
        it.pass(SECOND);
        assert_eq!(it.requests(3)[2], "list 11", "{reason}");
        assert!(it.errors.lock().is_empty(), "W14: not for the handler");
    }
}

#[test]
fn w6_an_error_event_429_is_waited_out_without_a_list() {
    let it =
        Running::new([list("10", &[]), Answer::body(error_event(429, "TooManyRequests")), Answer::open("")]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(3)[2], "watch 10");
}

#[test]
fn w10_versions_of_synthetic_adds_do_not_count_until_another_event_came() {
    let it = Running::new([
        Answer::body(r#"{"kind": "List", "metadata":{},"items":[]}"#),
        Answer::body(event("ADDED", "a", "30") + &event("ADDED", "b", "20")),
        Answer::body(event("ADDED", "c", "25") + &event("MODIFIED", "b", "31")),
        Answer::open(""),
    ]);
    assert_eq!(it.requests(4)[1..], ["watch ", "watch ", "watch 31"]);
}

#[test]
fn w10_an_event_without_a_version_leaves_the_last_one() {
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
fn w15_garbage_ends_the_watch_which_goes_on_from_the_last_good_version() {
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
            error.is_decode() && error.to_string().contains("event 2 after version 11"),
            "{garbage}: {error}"
        );
    }
}

#[test]
fn w15_garbage_twice_at_one_version_backs_off_and_lists() {
    let it =
        Running::new([list("10", &[]), Answer::open("garbage"), Answer::open("garbage"), list("20", &[])]);
    it.requests(3);
    it.pass(SECOND);
    assert_eq!(it.requests(5)[1..], ["watch 10", "watch 10", "list 10", "watch 20"]);
}

#[test]
fn w8_events_are_understood_however_they_are_written() {
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
    assert_eq!(it.calls(2)[1..], ["add a@11", "update a@12", "update a@13", "delete a@14", "add b@"]);
}

#[test]
fn w8_an_event_without_a_line_end_counts_when_the_stream_ends() {
    let it =
        Running::new([list("10", &[]), Answer::body(event("ADDED", "a", "11").trim_end()), Answer::open("")]);
    assert_eq!(it.requests(3)[2], "watch 11");
    assert_eq!(it.store.calls()[1..], ["add a@11"]);
}

#[test]
fn w9_an_object_without_a_name_is_told_and_left_out() {
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
fn w13_resyncs_happen_while_it_watches_when_somebody_wants_them() {
    let wanted = Arc::new(Mutex::new(true));
    let asked = Arc::clone(&wanted);
    let it = Running::with([list("10", &[]), Answer::open("")], |options| {
        options.resync_period = 10 * SECOND;
        options.should_resync = Some(Arc::new(move || *asked.lock()));
    });
    it.calls(2);
    it.pass(10 * SECOND);
    it.waits(2);
    assert_eq!(it.store.calls(), ["replace [] at 10", "resync"]);
    *wanted.lock() = false;
    it.pass(10 * SECOND);
    it.waits(3);
    assert_eq!(it.store.calls(), ["replace [] at 10", "resync"]);
}

#[test]
fn w13_a_resync_that_fails_ends_the_watch() {
    let server = Server::new([list("10", &[]), Answer::open(""), list("20", &[])]);
    let store = Recorder::refusing_resyncs(1);
    let it = Running::start(server, store, |options| {
        options.resync_period = 10 * SECOND;
    });
    it.calls(2);
    it.pass(10 * SECOND);
    it.pass(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 10", "watch 20"]);
}

#[test]
fn w13_a_resync_that_panics_ends_the_watch() {
    let asked = Mutex::new(0);
    let it = Running::with([list("10", &[]), Answer::open(""), list("20", &[])], |options| {
        options.resync_period = 10 * SECOND;
        options.should_resync = Some(Arc::new(move || {
            *asked.lock() += 1;
            assert!(*asked.lock() > 1, "don't ask");
            true
        }));
    });
    it.calls(2);
    it.pass(10 * SECOND);
    it.pass(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 10", "watch 20"]);
    assert_eq!(it.last_error().to_string(), "resync: panicked: don't ask");
    it.pass(10 * SECOND);
    it.waits(4);
    assert_eq!(it.store.calls().last().unwrap(), "resync", "the next watch has resyncs again");
}
