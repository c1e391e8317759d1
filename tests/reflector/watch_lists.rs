//! Watch-lists (WL1–WL12): their requests, and their change from a list to a watch.

use std::sync::Arc;

use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{ReflectorOptions, ReflectorState, ResourceVersionMatch};
use k8s_informer::store::Transform;
use k8s_informer::{DynamicObject, Indexer, Object, ObjectMeta, impl_object};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use serde::Deserialize;

use crate::reflector::support::{
    Recorder, Running, SECOND, Server, TICK, bookmark, error_event, event, initial_events_end,
    list, refused, run_until_read,
};

#[test]
fn wl1_watch_list_needs_support_and_option() {
    for (supported, enabled, first) in [
        (true, true, "watch-list most recent"),
        (true, false, "list 0 limit 500"),
        (false, true, "list 0 limit 500"),
        (false, false, "list 0 limit 500"),
    ] {
        let server = Server::new([]);
        let server = if supported {
            server.with_watch_list()
        } else {
            server
        };
        let it = Running::start(server, Recorder::default(), |options| {
            options.watch_list = enabled;
        });
        assert_eq!(
            it.requests(1),
            [first],
            "supported: {supported}, enabled: {enabled}"
        );
    }
    assert!(
        ReflectorOptions::default().watch_list,
        "the option is on by default"
    );
}

#[test]
fn wl2_later_watch_lists_start_at_the_last_version() {
    let it = Running::watch_list([
        Answer::body(
            initial_events_end("10") + &event("ADDED", "a", "12") + &error_event(410, "Expired"),
        ),
        refused(410, "Expired"),
        Answer::open(""),
    ]);
    it.requests(1);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(3),
        [
            "watch-list most recent",
            "watch-list 12",
            "watch-list most recent"
        ]
    );
    let queries = it.options(3).into_iter().map(|request| {
        let options = request.options();
        assert!(
            (300..600).contains(&options.timeout_seconds.unwrap()),
            "W1: {options:?}"
        );
        assert!(options.allow_watch_bookmarks && options.send_initial_events);
        assert_eq!(
            options.resource_version_match,
            Some(ResourceVersionMatch::NotOlderThan)
        );
        let query = options.to_watch_query();
        query
            .split('&')
            .filter(|part| !part.starts_with("timeoutSeconds="))
            .collect::<Vec<_>>()
            .join("&")
    });
    let rest = "resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&sendInitialEvents=true";
    let with_version = format!("watch=true&resourceVersion=12&{rest}");
    let without = format!("watch=true&{rest}");
    assert_eq!(
        queries.collect::<Vec<_>>(),
        [without.clone(), with_version, without]
    );
}

#[test]
fn wl3_objects_are_the_result_of_the_initial_events() {
    let it = Running::watch_list([
        Answer::broken(event("ADDED", "from-an-earlier-try", "1") + TICK),
        Answer::open(
            event("ADDED", "a", "1")
                + &event("ADDED", "b", "2")
                + &event("ADDED", "c", "3")
                + &event("MODIFIED", "b", "11")
                + &event("DELETED", "a", "12")
                + &event("ADDED", "c", "13")
                + &initial_events_end("14"),
        ),
    ]);
    it.advance_wait(SECOND);
    assert_eq!(it.calls(2), ["replace [b@11 c@13] at 14"]);
    assert_eq!(
        it.requests(2),
        ["watch-list most recent", "watch-list most recent"]
    );
}

#[test]
fn wl3_watch_list_objects_are_transformed_once() {
    let script = ScriptedListerWatcher::new([Answer::open(
        event("ADDED", "a", "1") + &event("MODIFIED", "a", "2") + &initial_events_end("3"),
    )])
    .with_watch_list();
    let mark = Transform::try_in_place(|object: &mut DynamicObject| {
        let marked = object.edit(|fields| fields.insert("marked".to_owned(), true.into()))?;
        assert_eq!(marked, None, "an object was transformed twice");
        Ok::<_, serde_json::Error>(())
    });
    let store = Arc::new(Indexer::for_objects().with_transform(mark));
    let status = run_until_read(&store, &script, 1);
    let objects = store.list();
    assert_eq!(objects.len(), 1);
    assert_eq!(
        (
            objects[0].resource_version(),
            objects[0].read("/marked").unwrap()
        ),
        ("2", Some(true))
    );
    assert!(status.last_error.is_none());
}

#[test]
fn wl3_unreadable_change_keeps_object_and_marks_incomplete() {
    #[derive(Deserialize)]
    struct Thing {
        metadata: ObjectMeta,
        #[serde(default)]
        size: u32,
    }
    impl_object!(Thing, "v1", "Thing", "things", Namespaced);

    let unreadable =
        event("MODIFIED", "a", "12").replace(r#""object":{"#, r#""object":{"size":"large","#);
    let changes = [
        ("", false),
        (&event("MODIFIED", "a", "13")[..], true),
        (&event("DELETED", "a", "13"), true),
    ];
    for (change, complete) in changes {
        let stream = event("ADDED", "a", "11") + &unreadable + change + &initial_events_end("14");
        let script = ScriptedListerWatcher::new([Answer::open(stream)]).with_watch_list();
        let store = Arc::new(Indexer::<Thing>::for_objects());
        let status = run_until_read(&store, &script, 1);
        assert_eq!(
            (status.complete, status.unreadable),
            (complete, 1),
            "{change}"
        );
        assert_eq!(
            store.len(),
            usize::from(!change.contains("DELETED")),
            "{change}"
        );
        assert!(store.list().iter().all(|thing| thing.size == 0), "{change}");
    }
}

#[test]
fn wl4_only_the_annotated_bookmark_ends_initial_events() {
    let others = [
        r#"{"k8s.io/initial-events-end":"false"}"#,
        r#"{"k8s.io/initial-events-end":"True"}"#,
        r#"{"k8s.io/initial-events-end":""}"#,
        r#"{"k8s.io/initial-events-ends":"true"}"#,
        r#"{"true":"k8s.io/initial-events-end"}"#,
        "{}",
        "null",
    ];
    for other in others {
        let it = Running::watch_list([Answer::open(
            event("ADDED", "a", "1") + &bookmark("7", other),
        )]);
        assert_eq!(it.calls(1), [""; 0], "{other}");
        let it = Running::watch_list([Answer::open(
            event("ADDED", "a", "1")
                + &bookmark("7", other)
                + &initial_events_end("8")
                + &bookmark("9", other),
        )]);
        assert_eq!(it.calls(1), ["replace [a@1] at 8", "bookmark 9"], "{other}");
    }
    let object = event("ADDED", "a", "1").replace(
        r#""metadata":{"#,
        r#""metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"#,
    );
    let it = Running::watch_list([Answer::open(object)]);
    assert_eq!(
        it.calls(1),
        [""; 0],
        "an annotated object does not end the initial events"
    );
}

#[test]
fn wl5_version_comes_from_bookmark_not_from_objects() {
    let it = Running::watch_list([Answer::open(
        event("ADDED", "a", "99") + &event("MODIFIED", "a", "100") + &initial_events_end("50"),
    )]);
    assert_eq!(it.calls(1), ["replace [a@100] at 50"]);
    assert_eq!(
        it.reflector.last_sync_resource_version(),
        ResourceVersion::new("50")
    );

    let it = Running::watch_list([Answer::open(
        event("ADDED", "a", "99") + &event("MODIFIED", "b", "40") + &initial_events_end(""),
    )]);
    assert_eq!(
        it.calls(1),
        ["replace [a@99 b@40] at 40"],
        "W10: a bookmark without a version keeps the last one"
    );

    let end = event("ADDED", "a", "99") + &initial_events_end("");
    let it = Running::watch_list([Answer::open(end), list("7", &["a"])]);
    assert_eq!(
        it.requests(3),
        ["watch-list most recent", "list 0 limit 500", "watch 7"],
        "no version at all"
    );
    assert!(it.last_error().is_decode(), "{}", it.last_error());
}

#[test]
fn wl6_stream_continues_as_the_watch() {
    let it = Running::watch_list([
        Answer::broken(
            event("ADDED", "a", "1")
                + &initial_events_end("10")
                + &event("ADDED", "b", "11")
                + &event("MODIFIED", "a", "12")
                + &event("DELETED", "b", "13")
                + &bookmark("20", "{}"),
        ),
        Answer::open(event("ADDED", "c", "21")),
    ]);
    assert_eq!(it.requests(2), ["watch-list most recent", "watch 20"]);
    let events = [
        "add b@11",
        "update a@12",
        "delete b@13",
        "bookmark 20",
        "add c@21",
    ];
    let calls = it.calls(2);
    assert_eq!(calls[0], "replace [a@1] at 10");
    assert_eq!(calls[1..], events);
    let status = it.status();
    assert_eq!(
        (status.lists, status.watches, status.listed, status.received),
        (0, 2, true, 1)
    );
    assert_eq!(status.state, ReflectorState::Watching);
}

#[test]
fn wl6_gone_version_is_usable_again_after_watch_list() {
    let it = Running::watch_list([
        Answer::body(initial_events_end("10") + &error_event(410, "Expired")),
        refused(410, "Expired"),
        Answer::body(
            initial_events_end("20") + &event("ADDED", "a", "21") + &error_event(410, "Expired"),
        ),
    ]);
    it.advance_wait(SECOND);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(4),
        [
            "watch-list most recent",
            "watch-list 10",
            "watch-list most recent",
            "watch-list 21"
        ]
    );
}

#[test]
fn wl6_store_refusal_is_reported_and_stream_closed() {
    let stream = || {
        Answer::open(
            event("ADDED", "a", "1") + &initial_events_end("10") + &event("ADDED", "b", "11"),
        )
    };
    let server = Server::new([stream(), stream(), stream()]).with_watch_list();
    let it = Running::start(server, Recorder::refusing(2), |_| {});
    it.wait_for_waits(1);
    assert_eq!(it.server.open_bodies(), 0);
    assert_eq!(
        it.reflector.last_sync_resource_version(),
        ResourceVersion::new("")
    );
    let error = "watch scripted objects: unable to sync list result: no";
    assert_eq!(it.errors.lock()[0].to_string(), error);
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
    let replaced = "replace [a@1] at 10";
    assert_eq!(it.calls(1), [replaced, replaced, replaced, "add b@11"]);
    assert_eq!(
        it.waited(),
        [1, 2],
        "a rejected list does not reset the waits"
    );
}

#[test]
fn wl7_store_is_unchanged_until_objects_are_complete() {
    let it = Running::watch_list([
        Answer::body(
            event("ADDED", "a", "1") + &initial_events_end("10") + &error_event(410, "Expired"),
        ),
        Answer::open(
            event("ADDED", "b", "11") + &event("ADDED", "c", "12") + &event("DELETED", "a", "13"),
        ),
    ]);
    it.advance_wait(SECOND);
    assert_eq!(it.calls(1), ["replace [a@1] at 10"]);
    let status = it.status();
    assert_eq!(
        (status.state, status.received, status.expected),
        (ReflectorState::Listing, 2, None)
    );
    assert_eq!(
        (status.resource_version, status.listed),
        (ResourceVersion::new("10"), true)
    );

    let it = Running::watch_list([Answer::open(event("ADDED", "b", "11"))]);
    assert_eq!(it.calls(1), [""; 0]);
    assert!(!it.status().listed);
}

#[test]
fn wl6_watch_list_without_objects_is_an_empty_list() {
    let it = Running::watch_list([Answer::open(initial_events_end("10"))]);
    assert_eq!(it.calls(1), ["replace [] at 10"]);
    assert!(it.status().listed && it.status().last_error.is_none());
}
