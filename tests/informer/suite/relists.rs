//! Notifications from queue items: changes, lists, resyncs and bookmarks (P).

use std::sync::{Arc, mpsc};

use k8s_informer::informer::InformerQueue;
use k8s_informer::reflector::FieldPaths;
use k8s_informer::store::Transform;
use k8s_informer::{Object, SharedIndexInformer};
use k8s_informer_testing::FakeClock;
use serde_json::json;

use super::{informer, informer_options, informer_with, one_thread, queue_kind};
use crate::informer::support::{
    Door, Events, Feed, Informer, SECOND, SOON, logged, logging, object, options, record,
    record_with_resync, run, run_synced, until, version,
};

#[test]
fn p2_p3_p6_p8_lists_events_and_relists_are_delivered() {
    let feed = Feed::new("every queue");
    feed.list("10", &[("a", "1"), ("b", "2")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let running = run_synced(&informer);
    assert_eq!(events.take(2), ["add a@1 initial", "add b@2 initial"]);
    feed.event("ADDED", "c", "11");
    feed.event("MODIFIED", "a", "12");
    feed.event("DELETED", "b", "13");
    assert_eq!(events.take(3), ["add c@11", "update a@1-12", "delete b@13"]);

    feed.expire();
    feed.list("20", &[("a", "15"), ("d", "16")]);
    let mut received = events.take(3);
    received.sort();
    assert_eq!(received, ["add d@16", "gone c@11", "update a@12-15"]);
    let mut names: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|object| object.name().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "d"]);
    running.end().unwrap();
}

#[test]
fn p7_relist_delivers_deletes_first_except_with_delta_fifo() {
    let feed = Feed::new("p7");
    feed.list("10", &[("a", "1"), ("b", "2")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    events.take(2);
    feed.expire();
    feed.list("20", &[("c", "15"), ("b", "16")]);
    let received = events.take(3);
    match queue_kind() {
        // Deletions come after additions (D7).
        InformerQueue::DeltaFifo => assert_eq!(received, ["add c@15", "update b@2-16", "gone a@1"]),
        // Deletions come before additions (P7).
        _ => assert_eq!(received, ["gone a@1", "add c@15", "update b@2-16"]),
    }
}

#[test]
fn p4_bookmark_advances_version_without_notification() {
    let feed = Feed::new("p4");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    feed.event("BOOKMARK", "", "50");
    until("version updated", || {
        informer.last_sync_resource_version() == Some(version("50"))
    });
    if queue_kind() == InformerQueue::RealFifo {
        until("version stored", || {
            informer.lister().resource_version() == Some(version("50"))
        });
    }
    feed.event("ADDED", "b", "51");
    assert_eq!(events.take(2), ["add a@1 initial", "add b@51"]);
}

#[test]
fn p5_resync_redelivers_every_object_without_writes() {
    let clock = FakeClock::new();
    let feed = Feed::on_clock("p5", &clock);
    feed.list("10", &[("a", "1"), ("b", "2")]);
    let mut options = options(&clock);
    options.resync_period = SECOND;
    let informer = informer_with(&feed, options);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    let before = informer.lister().get("", "a").unwrap();
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(SECOND);
    let mut received = events.take(4);
    received[2..].sort();
    assert_eq!(
        received,
        [
            "add a@1 initial",
            "add b@2 initial",
            "update a@1-1",
            "update b@2-2"
        ]
    );
    assert!(Arc::ptr_eq(
        &before,
        &informer.lister().get("", "a").unwrap()
    ));
}

#[test]
fn p6_last_state_of_duplicate_list_item_wins() {
    let feed = Feed::new("p6");
    feed.list("10", &[("a", "1"), ("b", "1"), ("a", "2")]);
    let informer = informer(&feed);
    let (handler, events) = record(&informer);
    let _running = run_synced(&informer);
    assert!(handler.synced().wait_timeout(SOON));
    let received = events.rest();
    let of_a: Vec<_> = received
        .iter()
        .filter(|event| event.contains('a'))
        .collect();
    assert!(of_a.len() >= 2, "{received:?}");
    assert_eq!(
        informer.lister().get("", "a").unwrap().resource_version(),
        "2"
    );
    assert_eq!(
        received
            .iter()
            .filter(|event| event.starts_with("add a@"))
            .count(),
        1,
        "{received:?}"
    );
}

#[test]
fn p9_bad_list_item_does_not_affect_others() {
    logging();
    let feed = Feed::new("p9 objects");
    feed.list(
        "10",
        &[("bad", "1"), ("good", "1"), ("worse", "1"), ("best", "1")],
    );
    let mut options = informer_options(options(&FakeClock::new()));
    options.transform = Some(Transform::try_in_place(
        |object: &mut k8s_informer::DynamicObject| match object.name() {
            "bad" => Err("don't like it"),
            "worse" => panic!("can't stand it"),
            _ => Ok(()),
        },
    ));
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let (handler, events) = record(&informer);
    let running = run_synced(&informer);
    assert!(handler.synced().wait_timeout(SOON));
    assert_eq!(events.rest(), ["add good@1 initial", "add best@1 initial"]);
    logged(&["WARN", "p9 objects", "don't like it"]);
    // A relist with the bad object updates the others, and deletes the missing ones.
    feed.expire();
    feed.list("20", &[("good", "15"), ("bad", "15")]);
    let mut received = events.take(2);
    received.sort();
    assert_eq!(received, ["gone best@1", "update good@1-15"]);
    running.end().unwrap();
}

#[test]
fn p11_i12_added_object_is_in_cache_when_delivered() {
    if one_thread() {
        return;
    }
    // Many changes wait while the index function blocks, so that a queue with batches returns
    // several changes at once.
    let feed = Feed::new("p11");
    feed.list("10", &[("first", "1")]);
    let informer = informer(&feed);
    let (seen, sizes) = mpsc::channel();
    let lister = informer.lister();
    let door = Door::new();
    informer
        .add_index("slow", {
            let door = door.clone();
            move |object| {
                if object.name() == "first" {
                    door.pass();
                }
                Vec::new()
            }
        })
        .unwrap();
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, _| {
                seen.send((
                    object.name().to_owned(),
                    lister.get("", object.name()).is_some(),
                ))
                .unwrap();
            })
        })
        .unwrap();
    let _running = run(&informer);
    door.wait_for_arrivals(1);
    for n in 0..500 {
        feed.event("ADDED", &format!("o{n}"), &format!("{}", 100 + n));
    }
    feed.event("BOOKMARK", "", "1000");
    until("all events read", || {
        informer.last_sync_resource_version() == Some(version("1000"))
    });
    door.open();
    assert_eq!(
        sizes.recv_timeout(SOON).unwrap(),
        ("first".to_owned(), true)
    );
    for n in 0..500 {
        assert_eq!(sizes.recv_timeout(SOON).unwrap(), (format!("o{n}"), true));
    }
}

/// An informer that skips `managedFields`. After the first tick, its handler without resyncs gets no
/// update for the same state of an object.
fn without_resyncs(feed: &Feed, clock: &FakeClock) -> (Informer, Events, impl Sized) {
    let mut options = options(clock);
    options.resync_period = SECOND;
    options.skip = FieldPaths::managed_fields();
    let informer = informer_with(feed, options);
    let (handler, events) = record_with_resync(&informer, std::time::Duration::ZERO);
    let running = run_synced(&informer);
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(SECOND);
    clock.wait_for_waits(2, SOON).unwrap();
    (informer, events, (handler, running))
}

#[test]
fn i17_change_within_a_version_reaches_every_handler() {
    let clock = FakeClock::new();
    let feed = Feed::on_clock("i17", &clock);
    feed.list("10", &[("a", "1")]);
    let (informer, events, _running) = without_resyncs(&feed, &clock);
    let with_spec =
        |spec: u32| json!({ "metadata": { "name": "a", "resourceVersion": "1" }, "spec": spec });
    let cached = || {
        let object = informer.lister().get("", "a").unwrap();
        object.read::<u32>("/spec").unwrap()
    };
    // An event, for example from an API server with another default or conversion.
    feed.event_of("MODIFIED", with_spec(2));
    feed.event("ADDED", "b", "11");
    let expected = ["add a@1 initial", "update a@1-1", "add b@11"];
    assert_eq!(events.take(3), expected);
    assert_eq!(cached(), Some(2));
    // The same state again is no change.
    feed.event_of("MODIFIED", with_spec(2));
    // A list, for example after a restore of etcd.
    feed.expire();
    feed.list_of("10", &[with_spec(3), object("b", "11")]);
    assert_eq!(events.next(), "update a@1-1");
    assert_eq!(cached(), Some(3));
    feed.event("ADDED", "c", "12");
    assert_eq!(events.next(), "add c@12");
}

#[test]
fn i17_skipped_fields_do_not_make_a_change() {
    let clock = FakeClock::new();
    let feed = Feed::on_clock("i17 skipped", &clock);
    // Some API servers send managedFields in some responses only.
    let bare = || json!({ "metadata": { "name": "a", "resourceVersion": "1" }, "spec": 1 });
    let managed = |manager: &str| {
        let mut object = bare();
        object["metadata"]["managedFields"] = json!([{ "manager": manager }]);
        object
    };
    feed.list_of("10", &[managed("x")]);
    let (informer, events, _running) = without_resyncs(&feed, &clock);
    assert_eq!(events.next(), "add a@1 initial");
    let first = informer.lister().get("", "a").unwrap();
    for (version, object) in [("20", bare()), ("22", managed("y")), ("24", bare())] {
        feed.expire();
        feed.list_of(version, &[object]);
        let mark = format!("mark{version}");
        feed.event("ADDED", &mark, version);
        // The handler gets the mark only: the list has no change.
        assert_eq!(events.next(), format!("add {mark}@{version}"));
        // The object has not been decoded again.
        assert!(Arc::ptr_eq(
            &first,
            &informer.lister().get("", "a").unwrap()
        ));
        feed.event("DELETED", &mark, version);
        assert_eq!(events.next(), format!("delete {mark}@{version}"));
    }
    // The object of an event is decoded, but its state is the same.
    feed.event_of("MODIFIED", managed("z"));
    feed.event("ADDED", "b", "30");
    assert_eq!(events.next(), "add b@30");
}
