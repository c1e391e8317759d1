//! Handlers that pass their notifications on to a channel or to another handler (H).

use std::sync::{Arc, mpsc};

use crossbeam_channel::{Receiver, TryRecvError};
use k8s_informer::handler::{
    ChannelHandler, FilteringHandler, HandlerBuffer, HandlerFuncs, HandlerOptions,
    ResourceEventHandler,
};
use k8s_informer::{Deleted, DynamicObject, Notification, Object, Stop};
use serde_json::json;

use super::{informer, one_item_per_change, one_thread};
use crate::informer::support::{
    Events, Feed, Recorder, SOON, logged, logging, object, record, recorder, run, run_synced, soon,
    until,
};

type Channel = Receiver<Notification<DynamicObject>>;

fn receive(channel: &Channel) -> String {
    let event = channel.recv_timeout(SOON).expect("no event arrived");
    let (mut recorder, events) = recorder();
    event.deliver(&mut recorder);
    events.next()
}

/// Waits until the empty channel is disconnected.
fn assert_disconnected(channel: &Channel) {
    let error = channel.recv_timeout(SOON).map(drop);
    assert_eq!(
        error.unwrap_err(),
        crossbeam_channel::RecvTimeoutError::Disconnected
    );
}

fn parse(object: serde_json::Value) -> Arc<DynamicObject> {
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn full_channel_leaves_the_rest_in_the_buffer() {
    if one_thread() {
        return;
    }
    for capacity in [0, 1, 5] {
        let feed = Feed::new("channel");
        feed.list("10", &[("a", "1"), ("b", "1")]);
        let informer = informer(&feed);
        let (handler, channel) = ChannelHandler::new(capacity);
        let handler = informer.add_handler(handler).unwrap();
        let (_other, other_events) = record(&informer);
        let running = run_synced(&informer);
        for n in 0..100 {
            feed.event("ADDED", &format!("o{n}"), &format!("{}", 100 + n));
        }
        other_events.until("add o99@199");
        // There are 102 notifications: `capacity` of them are in the channel, the handler holds
        // one, and the rest waits.
        until("channel full", || channel.len() == capacity);
        until("delivered", || handler.stats().delivered == capacity as u64);
        until("the rest is queued", || {
            handler.stats().waiting == 101 - capacity
        });
        assert_eq!(
            handler.has_synced(),
            capacity >= 2,
            "synced when the initial list is in the channel"
        );
        assert_eq!(
            [receive(&channel), receive(&channel)],
            ["add a@1 initial", "add b@1 initial"]
        );
        assert!(handler.synced().wait_timeout(SOON));
        for n in 0..100 {
            assert_eq!(receive(&channel), format!("add o{n}@{}", 100 + n));
        }
        assert_eq!(channel.try_recv().unwrap_err(), TryRecvError::Empty);
        running.end().unwrap();
        assert_disconnected(&channel);
    }
}

#[test]
fn dropped_receiver_does_not_block_the_handler() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("dropped");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (handler, channel) = ChannelHandler::new(0);
    let handler = informer.add_handler(handler).unwrap();
    let running = run_synced(&informer);
    until("event taken from the buffer", || {
        handler.stats().waiting == 0
    });
    drop(channel);
    assert!(handler.synced().wait_timeout(SOON));
    feed.event("ADDED", "b", "11");
    until("delivered", || handler.stats().delivered == 2);
    running.end().unwrap();
}

/// Two handlers that block on a full channel: a plain one, and one behind a filter.
fn blocked_handlers(feed: &Feed) -> [(Box<dyn ResourceEventHandler<DynamicObject>>, Channel); 2] {
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let ((plain, one), (inner, other)) = (ChannelHandler::new(0), ChannelHandler::new(0));
    let filtered = FilteringHandler::new(|_: &DynamicObject| true, inner);
    [(Box::new(plain), one), (Box::new(filtered), other)]
}

#[test]
fn removal_unblocks_handler_of_full_channel() {
    let feed = Feed::new("removed");
    for (handler, channel) in blocked_handlers(&feed) {
        let informer = informer(&feed);
        let handler = informer.add_handler(handler).unwrap();
        feed.list("10", &[("a", "1"), ("b", "1")]);
        let running = run(&informer);
        assert_eq!(receive(&channel), "add a@1 initial");
        let inner = informer.clone();
        soon("shut down", move || {
            inner.shut_down_event_handler(&handler, None)
        })
        .unwrap();
        assert_disconnected(&channel);
        running.end().unwrap();
    }
}

#[test]
fn stop_unblocks_handler_of_full_channel() {
    let feed = Feed::new("stopped");
    for (handler, channel) in blocked_handlers(&feed) {
        let informer = informer(&feed);
        informer.add_handler(handler).unwrap();
        feed.list("10", &[("a", "1"), ("b", "1")]);
        let running = run(&informer);
        assert_eq!(receive(&channel), "add a@1 initial");
        running.end().unwrap();
        assert_disconnected(&channel);
    }
}

#[test]
fn events_behind_full_channel_are_coalesced() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("merging");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let (handler, channel) = ChannelHandler::new(0);
    let mut options = HandlerOptions::default();
    options.buffer = HandlerBuffer::Coalescing;
    let handler = informer.add_handler_with_options(handler, options).unwrap();
    let (_other, other_events) = record(&informer);
    let _running = run_synced(&informer);
    // The handler holds the first notification.
    until("event taken from the buffer", || {
        handler.stats().waiting == 1
    });
    for version in 11..=100 {
        feed.event("MODIFIED", "a", &version.to_string());
    }
    feed.event("DELETED", "b", "101");
    feed.event("ADDED", "c", "102");
    other_events.until("add c@102");
    assert_eq!(receive(&channel), "add a@1 initial");
    assert!(
        handler.synced().wait_timeout(SOON),
        "`b` was merged away, and counts as delivered"
    );
    assert_eq!(
        [receive(&channel), receive(&channel)],
        ["update a@1-100", "add c@102"]
    );
    let stats = handler.stats();
    assert_eq!((stats.waiting, stats.merged), (0, 91));
    assert!(stats.most_waiting <= 3, "{stats:?}");
}

/// Records the calls that it gets.
struct CallRecorder(mpsc::Sender<String>);

impl ResourceEventHandler<DynamicObject> for CallRecorder {
    fn begin(&mut self, removed: &Stop) {
        let sender = self.0.clone();
        self.0
            .send(format!("begin {}", removed.is_stopped()))
            .unwrap();
        std::mem::forget(
            removed.on_stop(move || sender.send("removed".to_owned()).unwrap_or_default()),
        );
    }

    fn on_add(&mut self, object: &Arc<DynamicObject>, _: bool) {
        self.0.send(object.name().to_owned()).unwrap();
    }
}

#[test]
fn begin_is_called_once_before_events_with_removal_signal() {
    let feed = Feed::new("begins");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let new = || {
        let (sender, calls) = mpsc::channel();
        (CallRecorder(sender), calls)
    };
    let ((early, early_calls), (late, late_calls), (removed, removed_calls)) =
        (new(), new(), new());
    let early = FilteringHandler::new(|_: &DynamicObject| true, Box::new(early));
    let early = informer.add_handler(early).unwrap();
    let removed = informer.add_handler(removed).unwrap();
    informer.remove_event_handler(&removed);
    let running = run_synced(&informer);
    let late = informer.add_handler(late).unwrap();
    for (handler, calls, ends_by_stop) in [(early, early_calls, false), (late, late_calls, true)] {
        let received: Vec<_> = (0..3).map(|_| calls.recv_timeout(SOON).unwrap()).collect();
        assert_eq!(received, ["begin false", "a", "b"]);
        if ends_by_stop {
            running.end().unwrap();
        } else {
            informer.remove_event_handler(&handler);
        }
        assert_eq!(calls.recv_timeout(SOON).unwrap(), "removed");
    }
    assert!(
        removed_calls.recv_timeout(SOON).is_err(),
        "the removed handler was never called"
    );
}

#[test]
fn handler_panicking_in_begin_is_still_called() {
    struct Panics(mpsc::Sender<String>);
    impl ResourceEventHandler<DynamicObject> for Panics {
        fn begin(&mut self, _: &Stop) {
            panic!("no beginning");
        }
        fn on_add(&mut self, object: &Arc<DynamicObject>, _: bool) {
            self.0.send(object.name().to_owned()).unwrap();
        }
    }
    logging();
    let feed = Feed::new("panics beginning");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, names) = mpsc::channel();
    let handler = informer.add_handler(Panics(sender)).unwrap();
    let _running = run_synced(&informer);
    assert_eq!(names.recv_timeout(SOON).unwrap(), "a");
    assert!(handler.synced().wait_timeout(SOON));
    logged(&["ERROR", "`begin` panicked: no beginning"]);
}

fn labelled(name: &str, version: &str, app: &str) -> Arc<DynamicObject> {
    parse(
        json!({ "metadata": { "name": name, "resourceVersion": version, "labels": { "app": app } } }),
    )
}

/// A handler filtered by the label `app=web`, its notifications, and the versions that its filter
/// checks.
fn web() -> (
    FilteringHandler<DynamicObject, Recorder>,
    Events,
    mpsc::Receiver<String>,
) {
    let ((recorder, events), (sender, checked)) = (recorder(), mpsc::channel());
    let filter = move |object: &DynamicObject| {
        let _ = sender.send(object.resource_version().to_owned());
        object.label("app") == Some("web")
    };
    (FilteringHandler::new(filter, recorder), events, checked)
}

#[test]
fn h1_filter_turns_entering_and_leaving_into_add_and_delete() {
    let (mut handler, events, checked) = web();
    let (web, other) = (
        |version| labelled("a", version, "web"),
        |version| labelled("a", version, "db"),
    );
    handler.on_add(&web("1"), true);
    handler.on_add(&other("2"), true);
    assert_eq!(events.rest(), ["add a@1 initial"]);
    checked.try_iter().count();
    for (old, new, expected) in [
        (web("3"), web("4"), vec!["update a@3-4"]),
        (other("3"), web("4"), vec!["add a@4"]),
        (web("3"), other("4"), vec!["delete a@3"]),
        (other("3"), other("4"), vec![]),
    ] {
        handler.on_update(&old, &new);
        assert_eq!(events.rest(), expected);
        assert_eq!(
            checked.try_iter().collect::<Vec<_>>(),
            ["4", "3"],
            "the filter checks the new state first"
        );
    }
    handler.on_delete(&Deleted::Final(web("5")));
    handler.on_delete(&Deleted::Final(other("6")));
    assert_eq!(events.rest(), ["delete a@5"]);
}

#[test]
fn h1_h2_tombstone_passes_if_object_passes_or_is_missing() {
    let tombstone = |last_known: Option<&Arc<DynamicObject>>| Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known: last_known.cloned(),
    };
    let (web_object, other) = (labelled("a", "1", "web"), labelled("a", "2", "db"));
    let (mut handler, events, _checked) = web();
    handler.on_delete(&tombstone(Some(&web_object)));
    handler.on_delete(&tombstone(Some(&other)));
    handler.on_delete(&tombstone(None));
    assert_eq!(events.rest(), ["gone a@1", "gone a@"]);
}

#[test]
fn h1_merged_deletion_is_filtered_by_the_state_before_it() {
    let tombstone = |object| Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known: Some(labelled("a", "2", object)),
    };
    for (before, after, expected) in [
        ("web", "db", vec!["delete a@2", "gone a@2"]),
        ("db", "web", vec![]),
    ] {
        // The deletions pass through a channel, another filter and a box.
        let (mut channel, merged) = ChannelHandler::new(2);
        channel.on_delete_after(
            &labelled("a", "1", before),
            &Deleted::Final(labelled("a", "2", after)),
        );
        channel.on_delete_after(&labelled("a", "1", before), &tombstone(after));
        let (inner, events, _checked) = web();
        let (sender, passed) = mpsc::channel();
        let collect = HandlerFuncs::new()
            .on_event(move |event| sender.send(Notification::clone(event)).unwrap());
        let mut outer = FilteringHandler::new(
            |object: &DynamicObject| object.label("app") == Some("web"),
            Box::new(collect),
        );
        let mut inner: Box<dyn ResourceEventHandler<DynamicObject>> = Box::new(inner);
        merged
            .try_iter()
            .for_each(|event| event.deliver(&mut outer));
        passed
            .try_iter()
            .for_each(|event| event.deliver(&mut inner));
        assert_eq!(events.rest(), expected);
    }
}

/// The filter decides about a deletion by the last delivered state. The deletion can carry a newer
/// state that was never delivered, for example when the last finalizer is removed.
#[test]
fn h1_filter_decides_deletion_by_the_delivered_state() {
    let feed = Feed::new("final state");
    feed.list_of(
        "10",
        &[labelled("a", "1", "web"), labelled("b", "2", "db")].map(|object| json!(*object)),
    );
    let informer = informer(&feed);
    let (recorder, events) = recorder();
    let is_web = |object: &DynamicObject| object.label("app") == Some("web");
    informer
        .add_handler(FilteringHandler::new(is_web, recorder))
        .unwrap();
    let running = run_synced(&informer);
    feed.event_of("DELETED", json!(*labelled("a", "11", "db")));
    feed.event_of("DELETED", json!(*labelled("b", "12", "web")));
    feed.event_of("ADDED", json!(*labelled("end", "13", "web")));
    assert_eq!(
        events.until("add end@13"),
        ["add a@1 initial", "delete a@11"]
    );
    running.end().unwrap();
}

#[test]
fn h1_filter_in_running_informer_follows_label_changes() {
    let feed = Feed::new("h1");
    let with = |app: &str, version: &str| json!({ "metadata": { "name": "a", "resourceVersion": version, "labels": { "app": app } } });
    feed.list_of("10", &[with("db", "1")]);
    let informer = informer(&feed);
    let (handler, events, _checked) = web();
    let handler = informer.add_handler(handler).unwrap();
    let _running = run_synced(&informer);
    assert!(
        handler.synced().wait_timeout(SOON),
        "synced although no object passes the filter"
    );
    for (app, version) in [("web", "11"), ("web", "12"), ("db", "13"), ("web", "14")] {
        feed.event_of("MODIFIED", with(app, version));
    }
    assert_eq!(
        events.take(4),
        ["add a@11", "update a@11-12", "delete a@12", "add a@14"]
    );
}

#[test]
fn p3_real_fifo_delivers_a_repeated_deletion_twice() {
    let feed = Feed::new("p3 twice");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let running = run_synced(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    feed.event("DELETED", "a", "11");
    assert_eq!(events.next(), "delete a@11");
    feed.event("DELETED", "a", "11");
    feed.event("ADDED", "end", "12");
    let again: &[&str] = if one_item_per_change() {
        &["delete a@11"]
    } else {
        &[]
    };
    assert_eq!(events.until("add end@12"), again);
    running.end().unwrap();
}

#[test]
fn h3_tombstone_name_is_from_key_else_from_object() {
    let object = parse(json!({ "metadata": { "name": "web-0", "namespace": "default" } }));
    let names = |gone: Deleted<DynamicObject>| {
        format!("{} {} {}", gone.namespace(), gone.name(), gone.key())
    };
    assert_eq!(
        names(Deleted::Final(Arc::clone(&object))),
        "default web-0 default/web-0"
    );
    for (key, expected) in [
        ("x/y", "x y x/y"),
        ("x/y/z", "x y/z x/y/z"),
        ("node", " node node"),
        ("", "  "),
    ] {
        for last_known in [None, Some(Arc::clone(&object))] {
            assert_eq!(
                names(Deleted::FinalStateUnknown {
                    key: key.into(),
                    last_known
                }),
                expected
            );
        }
    }
    assert_eq!(names(Deleted::Final(parse(object_without_a_name()))), "  ");
}

fn object_without_a_name() -> serde_json::Value {
    object("", "1")
}
