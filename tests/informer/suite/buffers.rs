//! The buffer of a slow handler: its statistics, and waits for its end (SP).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use k8s_informer::error::ShutdownError;
use k8s_informer::handler::{
    FilteringHandler, HandlerBuffer, HandlerOptions, HandlerRegistration, ResourceEventHandler,
};
use k8s_informer::informer::InformerQueue;
use k8s_informer::metrics::InformerMetrics;
use k8s_informer::store::{IndexFunc, Indexers};
use k8s_informer::{Deleted, DynamicObject, Object, SharedIndexInformer};
use k8s_informer_testing::FakeClock;
use parking_lot::Mutex;
use serde_json::json;

use super::{informer, informer_options, informer_with, one_thread, queue_kind};
use crate::informer::support::{
    Door, Feed, Informer, SOON, logged, logging, options, record, recorder, run, run_synced, soon,
    until,
};

fn add(
    informer: &Informer,
    name: &str,
    buffer: HandlerBuffer,
    handler: impl ResourceEventHandler<DynamicObject> + 'static,
) -> HandlerRegistration {
    let options = HandlerOptions::new().name(name).buffer(buffer);
    informer.add_handler_with_options(handler, options).unwrap()
}

/// Blocks at a door on each add, and forwards all notifications.
struct Slow<R>(Door, R);

impl<R: ResourceEventHandler<DynamicObject>> ResourceEventHandler<DynamicObject> for Slow<R> {
    fn on_add(&mut self, object: &Arc<DynamicObject>, is_in_initial_list: bool) {
        self.0.pass();
        self.1.on_add(object, is_in_initial_list);
    }
    fn on_update(&mut self, old: &Arc<DynamicObject>, new: &Arc<DynamicObject>) {
        self.1.on_update(old, new);
    }
    fn on_delete(&mut self, gone: &Deleted<DynamicObject>) {
        self.1.on_delete(gone);
    }
}

#[test]
fn blocked_coalescing_handler_queues_two_per_object_at_most() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("merges");
    let names: Vec<_> = (0..10).map(|n| format!("o{n}")).collect();
    feed.list(
        "10",
        &names
            .iter()
            .map(|name| (name.as_str(), "1"))
            .collect::<Vec<_>>(),
    );
    let informer = informer(&feed);
    let (door, (slow, slow_events)) = (Door::new(), recorder());
    let handler = add(
        &informer,
        "merging",
        HandlerBuffer::Coalescing,
        Slow(door.clone(), slow),
    );
    let (_other, other_events) = record(&informer);
    let running = run_synced(&informer);
    door.wait_for_arrivals(1);
    let mut version = 100;
    let mut change = |kind: &str, name: &str| {
        version += 1;
        feed.event(kind, name, &version.to_string());
    };
    for round in 0..400 {
        for name in &names {
            change("MODIFIED", name);
            if round % 100 == 7 {
                change("DELETED", name);
                change("ADDED", name);
            }
        }
    }
    change("ADDED", "end");
    other_events.until(&format!("add end@{version}"));
    until("merged", || {
        handler.stats().waiting == 12 && handler.stats().merged > 4000
    });
    let stats = handler.stats();
    assert!(stats.most_waiting <= 21, "{stats:?}");
    door.open();
    let received = slow_events.until(&format!("add end@{version}"));
    // The handler already has the add of `o0`, so the first deletion of `o0` cannot be merged away:
    // `o0` leaves a deletion and an add, each of the other nine objects one add.
    assert_eq!(received.len(), 1 + 9 + 2, "{received:?}");
    assert_eq!(received[0], "add o0@1 initial");
    assert!(handler.synced().wait_timeout(SOON));
    // A call counts as delivered after it has returned.
    until("delivered", || handler.stats().delivered == 13);
    assert_eq!(handler.stats().merged, 10 + 4000 + 80 + 1 - 13);
    running.end().unwrap();
}

fn labelled(name: &str, version: &str, app: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name, "resourceVersion": version, "labels": { "app": app } } })
}

/// While the handler is busy with `a`, `a` stops passing the filter, `b` starts to pass it, and
/// both are deleted. The handler then receives only the deletion of `a`, because it never received
/// `b`.
#[test]
fn h1_filter_behind_coalescing_passes_merged_deletion() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("merged deletion");
    feed.list_of("10", &[labelled("b", "2", "db"), labelled("a", "1", "web")]);
    let informer = informer(&feed);
    let (door, (slow, slow_events)) = (Door::new(), recorder());
    let is_web = |object: &DynamicObject| object.label("app") == Some("web");
    let filtered = FilteringHandler::new(is_web, Slow(door.clone(), slow));
    let handler = add(&informer, "filtering", HandlerBuffer::Coalescing, filtered);
    let (_other, other_events) = record(&informer);
    let running = run_synced(&informer);
    door.wait_for_arrivals(1);
    feed.event_of("MODIFIED", labelled("a", "11", "db"));
    feed.event_of("DELETED", labelled("a", "12", "db"));
    feed.event_of("MODIFIED", labelled("b", "13", "web"));
    feed.event_of("DELETED", labelled("b", "14", "web"));
    feed.event_of("ADDED", labelled("end", "15", "web"));
    other_events.until("add end@15");
    until("merged", || handler.stats().merged >= 2);
    door.open();
    assert_eq!(
        slow_events.until("add end@15"),
        ["add a@1 initial", "delete a@12"]
    );
    running.end().unwrap();
}

#[test]
fn handler_stats_count_waiting_delivered_and_panics() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("stats");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let door = Door::new();
    let at = door.clone();
    let handler = informer
        .add_event_handler(|handler| {
            handler
                .on_add(move |_, _| at.pass())
                .on_update(|_, new| assert_ne!(new.resource_version(), "13", "unlucky"))
        })
        .unwrap();
    assert_eq!(handler.stats(), Default::default());
    let (_other, other_events) = record(&informer);
    let _running = run_synced(&informer);
    door.wait_for_arrivals(1);
    for version in 11..=30 {
        feed.event("MODIFIED", "a", &version.to_string());
    }
    other_events.until("update a@29-30");
    until("all events queued", || handler.stats().waiting == 20);
    assert_eq!(
        (handler.stats().most_waiting, handler.stats().delivered),
        (20, 0)
    );
    door.open();
    until("delivered", || {
        handler.stats().delivered == 21 && handler.stats().waiting == 0
    });
    let stats = handler.stats();
    assert_eq!((stats.most_waiting, stats.panics, stats.merged), (20, 1, 0));
}

#[test]
fn sp12_removal_empties_the_buffer() {
    if one_thread() {
        return;
    }
    for buffer in [HandlerBuffer::Unbounded, HandlerBuffer::Coalescing] {
        let feed = Feed::new("sp12 removed");
        feed.list("10", &[("a", "1"), ("b", "1")]);
        let informer = informer(&feed);
        let (door, (slow, slow_events)) = (Door::new(), recorder());
        let handler = add(&informer, "slow", buffer, Slow(door.clone(), slow));
        let running = run_synced(&informer);
        door.wait_for_arrivals(1);
        for n in 0..20 {
            feed.event("ADDED", &format!("o{n}"), &format!("{}", 11 + n));
        }
        until("all events queued", || handler.stats().waiting == 21);
        informer.remove_event_handler(&handler);
        until("buffer emptied", || handler.stats().waiting == 0);
        assert_eq!(handler.stats().most_waiting, 21);
        door.open();
        assert!(handler.ended().wait_timeout(SOON) && slow_events.rest().len() <= 2);
        running.end().unwrap();
    }
}

#[test]
fn sp13_panics_on_add_update_and_delete_are_counted_and_logged() {
    logging();
    let feed = Feed::new("sp13 counts");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let funcs = k8s_informer::handler::HandlerFuncs::new()
        .on_add(|_: &Arc<DynamicObject>, _| panic!("at an add"))
        .on_update(|_, _| std::panic::panic_any(7))
        .on_delete(|_| panic!("at a deletion"));
    let handler = add(&informer, "sp13 all", HandlerBuffer::Unbounded, funcs);
    let _running = run_synced(&informer);
    feed.event("MODIFIED", "a", "11");
    feed.event("DELETED", "a", "12");
    until("all callbacks called", || handler.stats().panics == 3);
    assert!(handler.synced().wait_timeout(SOON));
    assert_eq!(handler.stats().delivered, 3);
    logged(&[
        "ERROR",
        "\"sp13 all\" panicked: at an add; continuing with the next event",
    ]);
    logged(&[
        "ERROR",
        "\"sp13 all\" panicked; continuing with the next event",
    ]);
    logged(&[
        "ERROR",
        "\"sp13 all\" panicked: at a deletion; continuing with the next event",
    ]);
}

#[test]
fn sp14_slow_call_with_large_backlog_is_logged() {
    if one_thread() {
        return;
    }
    logging();
    let (feed, clock) = (Feed::new("sp14"), FakeClock::new());
    feed.list("10", &[("a", "1")]);
    let informer = informer_with(&feed, options(&clock));
    let (first, second) = (Door::new(), Door::new());
    let (one, two) = (first.clone(), second.clone());
    let funcs = k8s_informer::handler::HandlerFuncs::new()
        .on_add(move |_: &Arc<DynamicObject>, _| one.pass())
        .on_update(move |_, _| two.pass());
    let name = format!("sp14 {:?}", queue_kind());
    let handler = add(&informer, &name, HandlerBuffer::Unbounded, funcs);
    let _running = run_synced(&informer);
    first.wait_for_arrivals(1);
    for version in 11..=1111 {
        feed.event("MODIFIED", "a", &version.to_string());
    }
    until("all events queued", || handler.stats().waiting == 1101);
    first.open();
    second.wait_for_arrivals(1);
    clock.advance(Duration::from_millis(101));
    second.open();
    logged(&["WARN", &name, "took 101 ms for an event; waiting events: "]);
}

#[test]
fn sp15_handler_shutdown_waits_for_running_call() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("sp15");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let (door, (slow, slow_events)) = (Door::new(), recorder());
    let handler = add(
        &informer,
        "slow",
        HandlerBuffer::Unbounded,
        Slow(door.clone(), slow),
    );
    let _running = run_synced(&informer);
    door.wait_for_arrivals(1);
    // A removal does not block.
    let (inner, removed) = (informer.clone(), handler.clone());
    soon("remove", move || inner.remove_event_handler(&removed));
    assert!(!handler.ended().is_done());
    let (done, waits) = mpsc::channel();
    for _ in 0..3 {
        let (informer, handler, done) = (informer.clone(), handler.clone(), done.clone());
        std::thread::spawn(move || {
            done.send((informer.shut_down_event_handler(&handler, None), handler))
                .unwrap();
        });
    }
    assert!(waits.try_recv().is_err() && !handler.ended().is_done());
    door.open();
    for _ in 0..3 {
        let (waited, handler) = waits.recv_timeout(SOON).unwrap();
        waited.unwrap();
        assert!(handler.ended().is_done());
    }
    assert!(slow_events.rest().len() <= 2);
}

#[test]
fn sp15_shutdown_returns_for_unstarted_and_ended_handlers() {
    let feed = Feed::new("sp15 lives");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (early, early_events) = record(&informer);
    informer.shut_down_event_handler(&early, None).unwrap();
    assert!(early.ended().is_done());
    assert!(early_events.is_disconnected());
    let (kept, kept_events) = record(&informer);
    let running = run_synced(&informer);
    assert_eq!(kept_events.next(), "add a@1 initial");
    let (late, late_events) = record(&informer);
    assert_eq!(late_events.next(), "add a@1 initial");
    for _ in 0..2 {
        for ended in [&late, &early] {
            informer.shut_down_event_handler(ended, None).unwrap();
        }
    }
    assert!(late_events.is_disconnected());
    running.end().unwrap();
    assert!(kept.ended().is_done());
    informer.shut_down_event_handler(&kept, None).unwrap();
}

#[test]
fn sp15_shutdown_ignores_handler_of_another_informer() {
    let feed = Feed::new("sp15 foreign");
    let (own, other) = (informer(&feed), informer(&feed));
    let (foreign, _events) = record(&other);
    let error = own.shut_down_event_handler(&foreign, None).unwrap_err();
    let name = "handler-1".to_owned();
    assert_eq!(error, ShutdownError::NotFound { name });
    assert!(!foreign.ended().is_done());
}

#[test]
fn sp15_handler_shutting_itself_down_does_not_deadlock() {
    logging();
    let feed = Feed::new("sp15 itself");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let slot: Arc<Mutex<Option<HandlerRegistration>>> = Arc::default();
    let (sender, answers) = mpsc::channel();
    let (inner, own) = (informer.clone(), Arc::clone(&slot));
    let funcs =
        k8s_informer::handler::HandlerFuncs::new().on_add(move |_: &Arc<DynamicObject>, _| {
            let own = own.lock().clone().unwrap();
            sender
                .send(inner.shut_down_event_handler(&own, None))
                .unwrap();
        });
    let handler = add(&informer, "sp15 self", HandlerBuffer::Unbounded, funcs);
    *slot.lock() = Some(handler.clone());
    let _running = run_synced(&informer);
    assert_eq!(
        answers.recv_timeout(SOON),
        Ok(Err(ShutdownError::FromWithin))
    );
    logged(&[
        "WARN",
        "handler \"sp15 self\": shut down from one of its own callbacks; not waiting",
    ]);
    assert!(handler.ended().wait_timeout(SOON), "the handler still ends");
}

#[test]
fn sp15_handler_may_shut_down_another_handler() {
    let feed = Feed::new("sp15 another");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (other, _events) = record(&informer);
    let (sender, answers) = mpsc::channel();
    let (inner, ended) = (informer.clone(), other.clone());
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| {
                sender
                    .send((
                        inner.shut_down_event_handler(&ended, None),
                        ended.ended().is_done(),
                    ))
                    .unwrap();
            })
        })
        .unwrap();
    let _running = run(&informer);
    assert_eq!(answers.recv_timeout(SOON), Ok((Ok(()), true)));
}

/// While the handler is busy, the last initial object is merged away. The `synced` callback of the
/// handler then adds another handler. Adding waits until the process loop is idle, so the process
/// loop must not wait for the callback.
#[test]
fn sp11_coalescing_synced_callback_may_add_handlers() {
    if one_thread() {
        return;
    }
    let (blue, green) = (Feed::new("sp11 blue"), Feed::new("sp11 green"));
    let named = |namespace: &str, name: &str, version: &str| json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": version } });
    let informer: Informer = SharedIndexInformer::for_namespaces(
        [
            ("blue".to_owned(), Arc::new(blue.clone()) as _),
            ("green".to_owned(), Arc::new(green.clone()) as _),
        ],
        informer_options(options(&FakeClock::new())),
    );
    let (door, callback_door) = (Door::new(), Door::new());
    let (slow, slow_events) = recorder();
    let handler = add(
        &informer,
        "merging",
        HandlerBuffer::Coalescing,
        Slow(door.clone(), slow),
    );
    let (_other, other_events) = record(&informer);
    let (added, additions) = mpsc::channel();
    let (inner, at) = (informer.clone(), callback_door.clone());
    let _synced = handler.synced().on_done(move || {
        at.pass();
        added.send(record(&inner).0).unwrap();
    });
    let running = run(&informer);
    blue.list_of("10", &[]);
    blue.event_of("ADDED", named("blue", "busy", "11"));
    door.wait_for_arrivals(1);
    green.list_of("10", &[named("green", "short", "5")]);
    assert!(informer.synced().wait_timeout(SOON));
    green.event_of("DELETED", named("green", "short", "12"));
    let received = other_events.take(3);
    assert_eq!(received[2], "delete short@12", "{received:?}");
    until("merged", || handler.stats().merged == 2);
    // When the door opens, the handler finds that all initial objects are delivered or merged away.
    // It is then marked as synced, which calls the callback.
    door.open();
    callback_door.wait_for_arrivals(1);
    for n in 0..10 {
        blue.event_of(
            "ADDED",
            named("blue", &format!("o{n}"), &format!("{}", 20 + n)),
        );
    }
    other_events.until("add o9@29");
    callback_door.open();
    let late = additions
        .recv_timeout(SOON)
        .expect("the synced callback deadlocked");
    assert!(late.synced().wait_timeout(SOON));
    assert_eq!(slow_events.take(2)[0], "add busy@11");
    running.end().unwrap();
}

/// Records the length of the queue, and counts the pops.
#[derive(Default)]
struct Pops {
    queued: AtomicUsize,
    pops: AtomicUsize,
}

impl InformerMetrics for Pops {
    fn queued_items(&self, items: usize) {
        self.queued.store(items, Ordering::SeqCst);
    }

    fn processing_latency(&self, _: Duration) {
        self.pops.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn sp8_waiting_events_are_popped_in_batches() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("together");
    feed.list("10", &[("a", "1")]);
    let mut options = informer_options(options(&FakeClock::new()));
    let pops = Arc::new(Pops::default());
    options.metrics = Some(Arc::clone(&pops) as _);
    // An index function holds the process thread in the list, while the reflector queues events.
    let door = Door::new();
    let at = door.clone();
    let held = IndexFunc::new(move |object: &DynamicObject| {
        if object.name() == "a" {
            at.pass();
        }
        Vec::new()
    });
    options.indexers = Indexers::new().with("held", held);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let (handler, events) = record(&informer);
    let running = run(&informer);
    door.wait_for_arrivals(1);
    for version in 11..82 {
        feed.event("ADDED", &format!("o{version}"), &version.to_string());
    }
    until("all events queued", || {
        pops.queued.load(Ordering::SeqCst) == 71
    });
    assert_eq!(handler.stats().received, 0);
    door.open();
    assert_eq!(events.next(), "add a@1 initial");
    for version in 11..82 {
        assert_eq!(events.next(), format!("add o{version}@{version}"));
    }
    running.end().unwrap();
    // The list comes alone. Of the events, a `DeltaFifo` returns at most 64 at once, a `RealFifo` all.
    let batches = match queue_kind() {
        InformerQueue::RealFifo => 1,
        _ => 2,
    };
    assert_eq!(pops.pops.load(Ordering::SeqCst), 1 + batches);
}

#[test]
fn replaced_and_deleted_objects_are_freed() {
    let feed = Feed::new("freed objects");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let (sender, replaced) = mpsc::channel();
    let (deletions, deleted) = (sender.clone(), "the deletion has no object");
    let _handler = informer
        .add_event_handler(|handler| {
            handler
                .on_update(move |old, _| sender.send(Arc::downgrade(old)).unwrap())
                .on_delete(move |gone| {
                    deletions
                        .send(Arc::downgrade(gone.object().expect(deleted)))
                        .unwrap();
                })
        })
        .unwrap();
    let running = run_synced(&informer);
    for version in 11..40 {
        feed.event("MODIFIED", "a", &version.to_string());
    }
    feed.event("DELETED", "b", "40");
    for _ in 11..=40 {
        let object = replaced.recv_timeout(SOON).unwrap();
        until("object freed", || object.strong_count() == 0);
    }
    running.end().unwrap();
}
