//! The lifecycle of a shared informer (I).

use std::sync::mpsc;
use std::thread;

use k8s_informer::informer::{InformerError, wait_for_cache_sync};
use k8s_informer::object::GroupVersionKind;
use k8s_informer::{DynamicObject, Object, Stop, Stopper};
use k8s_informer_testing::FakeClock;
use serde_json::json;

use super::{informer, informer_with, one_thread};
use crate::informer::support::{
    Door, Feed, Running, SOON, object, options, record, recorder, run, run_synced, soon, until,
    version,
};

#[test]
fn i1_second_run_fails() {
    let feed = Feed::new("i1");
    feed.list("10", &[]);
    let informer = informer(&feed);
    assert!(!informer.is_stopped());
    let running = run_synced(&informer);
    let again = informer.run(&Stop::never()).unwrap_err();
    assert!(
        matches!(again, InformerError::AlreadyStarted { .. }),
        "{again}"
    );
    assert!(!informer.is_stopped(), "the first run continues");
    let (_handler, events) = record(&informer);
    feed.event("ADDED", "a", "11");
    assert_eq!(events.next(), "add a@11");
    running.end().unwrap();
    assert!(informer.is_stopped());
    assert!(informer.run(&Stop::never()).is_err());
}

#[test]
fn i3_no_notification_after_run_returns() {
    let feed = Feed::new("i3");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let running = run_synced(&informer);
    running.end().unwrap();
    feed.event("ADDED", "b", "11");
    events.rest();
    assert!(events.is_disconnected(), "the handler was dropped");
    assert_eq!(
        informer.lister().list().len(),
        1,
        "the cache is still readable"
    );
}

#[test]
fn i4_sp12_stop_drops_queued_events() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("i4");
    let names: Vec<String> = (0..100).map(|n| format!("o{n}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    feed.list("10", &objects);
    let informer = informer(&feed);
    let (door, (seen, calls)) = (Door::new(), mpsc::channel());
    let at = door.clone();
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| {
                seen.send(()).unwrap();
                at.pass();
            })
        })
        .unwrap();
    let running = run_synced(&informer);
    door.wait_for_arrivals(1);
    running.stop.stop();
    until("stopped", || informer.is_stopped());
    door.open();
    running.ended().unwrap();
    let calls = calls.try_iter().count();
    // At most two calls: the one in progress, and one for a notification that was already handed
    // over.
    assert!(calls <= 2, "{calls} calls");
}

#[test]
fn i5_initial_list_sets_synced_permanently() {
    let feed = Feed::new("i5");
    let informer = informer(&feed);
    let running = run(&informer);
    assert!(!informer.has_synced());
    feed.list("10", &[("a", "1")]);
    assert!(informer.synced().wait_timeout(SOON));
    assert_eq!(informer.lister().list().len(), 1);
    running.end().unwrap();
    assert!(informer.has_synced());
}

#[test]
fn i5_empty_list_sets_synced() {
    let feed = Feed::new("i5 empty");
    feed.list("10", &[]);
    let informer = informer(&feed);
    let (handler, _events) = record(&informer);
    let _running = run_synced(&informer);
    assert!(handler.synced().wait_timeout(SOON));
    assert!(
        record(&informer).0.synced().wait_timeout(SOON),
        "a late handler also syncs"
    );
}

#[test]
fn i5_stop_before_initial_list_prevents_sync() {
    let informer = informer(&Feed::new("i5 stopped"));
    let (handler, _events) = record(&informer);
    run(&informer).end().unwrap();
    assert!(!informer.has_synced() && !handler.has_synced());
}

#[test]
fn i7_index_can_be_added_until_stop() {
    let feed = Feed::new("i7");
    feed.list("10", &[("a", "1"), ("b", "2")]);
    let informer = informer(&feed);
    let by_version = |object: &DynamicObject| vec![object.resource_version().to_owned()];
    informer.add_index("before", by_version).unwrap();
    let running = run_synced(&informer);
    informer.add_index("while", by_version).unwrap();
    assert!(
        informer.add_index("while", by_version).is_err(),
        "an index with this name exists"
    );
    let (_handler, events) = record(&informer);
    feed.event("ADDED", "c", "3");
    events.until("add c@3");
    running.end().unwrap();
    let error = informer.add_index("after", by_version).unwrap_err();
    assert_eq!(
        error.to_string(),
        "i7: already stopped; the index was not added"
    );
    for index in ["before", "while"] {
        for (name, version) in [("a", "1"), ("b", "2"), ("c", "3")] {
            assert_eq!(
                informer.lister().by_index(index, version).unwrap()[0].name(),
                name,
                "{index}"
            );
        }
    }
    assert!(
        informer.lister().by_index("namespace", "").is_err(),
        "only a factory adds the namespace index"
    );
}

#[test]
fn i8_stopped_informer_rejects_handlers() {
    let feed = Feed::new("i8 objects");
    let informer = informer(&feed);
    run(&informer).end().unwrap();
    let error = informer.add_handler(recorder().0).unwrap_err();
    assert!(matches!(error, InformerError::Stopped { .. }));
    assert_eq!(
        error.to_string(),
        "i8 objects: already stopped; the handler was not added"
    );
}

#[test]
fn i12_late_handler_gets_cache_then_changes() {
    let feed = Feed::new("i12");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let (_first, first) = record(&informer);
    let _running = run_synced(&informer);
    feed.event("MODIFIED", "a", "11");
    feed.event("DELETED", "b", "12");
    assert_eq!(first.until("delete b@12").len(), 3);
    let (late, events) = record(&informer);
    assert_eq!(events.next(), "add a@11 initial");
    assert!(late.synced().wait_timeout(SOON));
    feed.event("MODIFIED", "a", "13");
    feed.event("ADDED", "b", "14");
    assert_eq!(events.take(2), ["update a@11-13", "add b@14"]);
    assert_eq!(first.take(2), ["update a@11-13", "add b@14"]);
}

#[test]
fn i12_handler_added_before_first_list_gets_initial_adds() {
    let feed = Feed::new("i12 early");
    let informer = informer(&feed);
    let _running = run(&informer);
    // The first request of the reflector shows that the informer has started.
    until("first request sent", || !feed.requests().is_empty());
    let (handler, events) = record(&informer);
    assert!(!handler.has_synced());
    feed.list("10", &[("a", "1")]);
    assert_eq!(events.next(), "add a@1 initial");
    assert!(handler.synced().wait_timeout(SOON));
}

#[test]
fn i13_handler_added_before_sync_gets_cache_as_initial_list() {
    let feed = Feed::new("i13");
    let names: Vec<String> = (0..5000).map(|n| format!("o{n}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    feed.list("10", &objects);
    let informer = informer(&feed);
    let _running = run(&informer);
    let mut handlers = Vec::new();
    while !informer.has_synced() && handlers.len() < 20 {
        handlers.push(record(&informer));
    }
    for (handler, events) in handlers {
        assert!(handler.synced().wait_timeout(SOON));
        let mut events = events.rest();
        events.sort();
        events.dedup();
        assert_eq!(events.len(), 5000, "each object once");
        assert!(events.iter().all(|event| event.ends_with("@1 initial")));
    }
}

#[test]
fn i14_removed_handler_stops_and_others_continue() {
    let feed = Feed::new("i14");
    feed.list("10", &[]);
    let informer = informer(&feed);
    let (removed, removed_events) = record(&informer);
    let (_kept, kept_events) = record(&informer);
    let _running = run_synced(&informer);
    feed.event("ADDED", "a", "11");
    assert_eq!(
        (removed_events.next(), kept_events.next()),
        ("add a@11".to_owned(), "add a@11".to_owned())
    );
    informer.remove_event_handler(&removed);
    informer.remove_event_handler(&removed);
    feed.event("ADDED", "b", "12");
    assert_eq!(kept_events.next(), "add b@12");
    assert!(
        removed_events.is_disconnected(),
        "the removed handler was dropped"
    );
}

#[test]
fn i14_removal_of_another_informers_handler_is_ignored() {
    let (feed, other) = (Feed::new("i14 one"), informer(&Feed::new("i14 other")));
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let (foreign, _) = record(&other);
    informer.remove_event_handler(&foreign);
    let running = run_synced(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    running.end().unwrap();
    informer.remove_event_handler(&foreign);
}

#[test]
fn i14_removal_of_a_dropped_informers_handler_is_ignored() {
    let feed = Feed::new("i14 successors");
    // The allocator tends to reuse addresses, so the new informer often has the address of the old
    // one.
    for _ in 0..50 {
        let foreign = record(&informer(&feed)).0;
        let informer = informer(&feed);
        let (_handler, events) = record(&informer);
        informer.remove_event_handler(&foreign);
        feed.list("10", &[("a", "1")]);
        let running = run_synced(&informer);
        assert_eq!(events.next(), "add a@1 initial");
        running.end().unwrap();
    }
}

#[test]
fn i14_handler_can_be_removed_from_stopped_informer() {
    let informer = informer(&Feed::new("i14 stopped"));
    let (handler, _events) = record(&informer);
    run(&informer).end().unwrap();
    informer.remove_event_handler(&handler);
}

#[test]
fn i16_relist_delivers_unchanged_objects_if_no_handler_resyncs() {
    let feed = Feed::new("i16");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let (_one, one) = record(&informer);
    let (_two, two) = record(&informer);
    let _running = run_synced(&informer);
    feed.expire();
    feed.list("20", &[("a", "1"), ("b", "15")]);
    for events in [one, two] {
        events.take(2);
        assert_eq!(events.take(2), ["update a@1-1", "update b@1-15"]);
    }
}

#[test]
fn i18_object_replaced_under_same_name_is_an_update() {
    let feed = Feed::new("i18");
    let with_uid = |uid: &str, version: &str| json!({ "metadata": { "name": "a", "uid": uid, "resourceVersion": version } });
    feed.list_of("10", &[with_uid("x", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    feed.expire();
    feed.list_of("20", &[with_uid("y", "15")]);
    assert_eq!(events.take(2), ["add a@1 initial", "update a@1-15"]);
    assert_eq!(informer.lister().list()[0].uid(), "y");
}

#[test]
fn i19_relist_delivers_missing_objects_as_tombstones() {
    let feed = Feed::new("i19");
    feed.list("10", &[("a", "1"), ("b", "2")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    feed.expire();
    feed.list("20", &[("c", "15")]);
    let mut received = events.take(5);
    received.sort();
    assert_eq!(
        received,
        [
            "add a@1 initial",
            "add b@2 initial",
            "add c@15",
            "gone a@1",
            "gone b@2"
        ]
    );
}

#[test]
fn i21_cache_is_readable_before_run() {
    let informer = informer(&Feed::new("i21"));
    assert!(informer.lister().list().is_empty() && informer.lister().get("", "a").is_none());
    assert_eq!(informer.last_sync_resource_version(), None);
    assert!(!informer.has_synced() && !informer.is_stopped());
    assert_eq!(informer.name(), "i21");
}

#[test]
fn wt2_wait_covers_all_informers_and_ends_at_stop() {
    let (one, two) = (Feed::new("one"), Feed::new("two"));
    let (first, second) = (informer(&one), informer(&two));
    wait_for_cache_sync([], None, &Stop::never()).unwrap();
    let _running = (run(&first), run(&second));
    let (waits, stop) = (Stopper::new(), Stopper::new());
    let waiter = {
        let (first, second, waits) = (first.clone(), second.clone(), waits.clone());
        thread::spawn(move || wait_for_cache_sync([first.synced(), second.synced()], None, &waits))
    };
    two.list("10", &[]);
    assert!(second.synced().wait_timeout(SOON));
    assert!(!waiter.is_finished());
    one.list("10", &[]);
    soon("wait", move || waiter.join().unwrap()).unwrap();

    stop.stop();
    let error = wait_for_cache_sync(
        [
            informer(&Feed::new("b")).synced(),
            first.synced(),
            informer(&Feed::new("a")).synced(),
        ],
        None,
        &stop,
    );
    let error = error.unwrap_err();
    assert_eq!(
        error.to_string(),
        "stopped before syncing: a, b",
        "WT3: the names are sorted, and synced informers are left out"
    );
}

#[test]
fn i11_informer_ignores_should_resync_of_the_reflector() {
    let clock = FakeClock::new();
    let mut options = options(&clock);
    options.should_resync = Some(std::sync::Arc::new(|| {
        panic!("the reflector's should_resync was called")
    }));
    options.resync_period = SOON;
    let feed = Feed::on_clock("i11", &clock);
    feed.list_of("10", &[object("a", "1")]);
    let informer = informer_with(&feed, options);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(SOON);
    assert_eq!(events.take(2), ["add a@1 initial", "update a@1-1"]);
}

#[test]
fn i2_changes_are_processed_on_the_thread_calling_run() {
    let feed = Feed::new("i2");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (seen, threads) = mpsc::channel();
    let index = move |_: &_| {
        seen.send(thread::current().id()).unwrap();
        Vec::new()
    };
    informer.add_index("thread", index).unwrap();
    let running = Running::new({
        let informer = informer.clone();
        move |stop| (thread::current().id(), informer.run(stop))
    });
    assert!(informer.synced().wait_timeout(SOON));
    let (runs, ended) = running.end();
    ended.unwrap();
    assert_eq!(threads.recv_timeout(SOON), Ok(runs));
}

#[test]
fn i2_lone_change_is_processed_on_the_reflector_thread() {
    let feed = Feed::new("i2 alone");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (seen, threads) = mpsc::channel();
    let index = move |_: &_| {
        seen.send(thread::current().name().map(str::to_owned))
            .unwrap();
        Vec::new()
    };
    informer.add_index("thread", index).unwrap();
    let running = run_synced(&informer);
    threads.recv_timeout(SOON).unwrap();
    // The pop of the initial list may still be in flight during the first change.
    let of_changes: Vec<_> = (11..14)
        .map(|number| {
            let reached = version(&number.to_string());
            feed.event("MODIFIED", "a", &reached.to_string());
            let thread = threads.recv_timeout(SOON).unwrap();
            informer
                .wait_for_resource_version(&reached, SOON, &Stop::never())
                .unwrap();
            thread
        })
        .collect();
    let reflector = (!one_thread()).then(|| "i2 alone reflector".to_owned());
    assert_eq!(of_changes[1..], [reflector.clone(), reflector]);
    running.end().unwrap();
}

#[test]
fn i15_handler_is_added_between_changes_not_within_one() {
    let feed = Feed::new("i15");
    feed.list("10", &[]);
    let informer = informer(&feed);
    let door = Door::new();
    let at = door.clone();
    // This index function blocks in the middle of a change. After it returns, the object is stored
    // in the cache and then delivered.
    let index = move |object: &DynamicObject| {
        if object.name() == "slow" {
            at.pass();
        }
        Vec::new()
    };
    informer.add_index("slow", index).unwrap();
    let running = run_synced(&informer);
    feed.event("ADDED", "slow", "11");
    door.wait_for_arrivals(1);
    let adders: Vec<_> = (0..4)
        .map(|_| {
            let informer = informer.clone();
            thread::spawn(move || record(&informer))
        })
        .collect();
    door.open();
    feed.event("ADDED", "end", "12");
    for adder in adders {
        let (_handler, events) = adder.join().unwrap();
        let mut received = Vec::new();
        while !received
            .last()
            .is_some_and(|event: &String| event.starts_with("add end@12"))
        {
            received.push(events.next());
        }
        assert_eq!(received.len(), 2, "{received:?}");
        assert!(received[0].starts_with("add slow@11"), "{received:?}");
    }
    running.end().unwrap();
}

#[test]
fn i20_objects_of_unexpected_kind_are_skipped() {
    let of = |kind: &str, name: &str, version: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "resourceVersion": version } });
    for expected in [true, false] {
        let feed = Feed::new("i20");
        feed.list("10", &[]);
        let mut options = options(&FakeClock::new());
        options.expected_kind = expected.then(|| GroupVersionKind::new("", "v1", "Pod"));
        let informer = informer_with(&feed, options);
        let (_handler, events) = record(&informer);
        let running = run_synced(&informer);
        feed.event_of("ADDED", of("Pod", "a", "11"));
        feed.event_of("ADDED", of("Node", "b", "12"));
        feed.event_of("ADDED", of("Pod", "c", "13"));
        let received = events.until("add c@13");
        assert_eq!(received.len(), if expected { 1 } else { 2 }, "{received:?}");
        running.end().unwrap();
    }
}
