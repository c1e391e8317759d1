//! Informers with one handler that is called on the process loop.

use std::sync::{Arc, mpsc};

use crossbeam_channel::RecvTimeoutError;
use k8s_informer::handler::{ChannelHandler, HandlerFuncs, ResourceEventHandler};
use k8s_informer::informer::{
    Controller, InformerError, InformerOptions, InformerQueue, new_indexer_informer, new_informer,
};
use k8s_informer::store::{IndexFunc, Indexers, Transform};
use k8s_informer::{DynamicObject, Indexer, Object, ObjectMeta, Stop, Stopper, impl_object};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};
use serde::Deserialize;
use serde_json::json;

use super::queue_kind;
use crate::informer::support::{
    Door, Feed, Running, SECOND, SOON, logged, logging, options, recorder, soon, until, version,
};

type Unshared = (Arc<Indexer<DynamicObject>>, Arc<Controller<DynamicObject>>);

/// Runs an informer with one handler, on the queue under test.
fn run(
    feed: &Feed,
    handler: impl ResourceEventHandler<DynamicObject> + 'static,
) -> (Unshared, Running<Result<(), InformerError>>) {
    let mut options = InformerOptions::new(Arc::new(feed.clone()), handler);
    options.queue = queue_kind();
    run_with(options)
}

fn run_with(
    options: InformerOptions<DynamicObject>,
) -> (Unshared, Running<Result<(), InformerError>>) {
    let (store, controller) = new_indexer_informer(options);
    let controller = Arc::new(controller);
    let running = Arc::clone(&controller);
    (
        (store, controller),
        Running::new(move |stop| running.run(stop)),
    )
}

#[test]
fn unshared_informer_follows_its_source() {
    let feed = Feed::new("unshared");
    feed.list("10", &[("a", "1"), ("b", "2")]);
    let (handler, events) = recorder();
    let ((store, controller), running) = run(&feed, handler);
    assert_eq!(events.take(2), ["add a@1 initial", "add b@2 initial"]);
    assert!(controller.synced().wait_timeout(SOON));
    feed.event("ADDED", "c", "11");
    feed.event("MODIFIED", "a", "12");
    feed.event("DELETED", "b", "13");
    assert_eq!(events.take(3), ["add c@11", "update a@1-12", "delete b@13"]);
    assert_eq!(store.len(), 2);
    // A list repairs what was missed.
    feed.list("20", &[("a", "12"), ("d", "20")]);
    feed.expire();
    let mut rest = events.take(3);
    rest.sort();
    assert_eq!(rest, ["add d@20", "gone c@11", "update a@12-12"]);
    running.end().unwrap();
    assert!(matches!(
        controller.run(&Stop::never()),
        Err(InformerError::AlreadyStarted { .. })
    ));
}

#[test]
fn new_informer_returns_a_store_of_any_kind() {
    let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
    let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
    let (handler, events) = recorder();
    let (store, controller) = new_informer::<DynamicObject>(Arc::new(script), handler);
    let running = Running::new(move |stop| controller.run(stop));
    assert_eq!(events.next(), "add a@ initial");
    let found = store.get_by_key("a").unwrap().unwrap();
    assert_eq!(store.get(&found).unwrap(), Some(found));
    assert_eq!((store.list().len(), store.list_keys().len()), (1, 1));
    running.end().unwrap();
}

#[test]
fn c11_unshared_handler_blocks_the_queue() {
    let feed = Feed::new("c11");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let door = Door::new();
    let at = door.clone();
    let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| at.pass());
    let ((store, controller), running) = run(&feed, handler);
    door.wait_for_arrivals(1);
    // In a `RealFifo`, the whole list is in the store before any object is delivered (P7).
    let stored = match queue_kind() {
        InformerQueue::RealFifo => 2,
        _ => 1,
    };
    assert_eq!(store.len(), stored);
    assert!(!controller.has_synced());
    door.open();
    assert!(controller.synced().wait_timeout(SOON));
    assert_eq!(store.len(), 2);
    running.end().unwrap();
}

#[test]
fn c11_unshared_handler_panic_loses_one_call() {
    logging();
    let feed = Feed::new("c11 panics");
    feed.list("10", &[("first", "1")]);
    let door = Door::new();
    let at = door.clone();
    let (updated, updates) = mpsc::channel();
    let handler = HandlerFuncs::<DynamicObject>::new()
        .on_add(move |object, _| match object.name() {
            "first" => at.pass(),
            _ => panic!("I don't like {}", object.name()),
        })
        .on_update(move |_, new| updated.send(new.resource_version().to_owned()).unwrap());
    let ((store, controller), running) = run(&feed, handler);
    door.wait_for_arrivals(1);
    // Both changes of `second` are queued while `first` is processed.
    feed.event("ADDED", "second", "11");
    feed.event("MODIFIED", "second", "12");
    feed.event("BOOKMARK", "", "13");
    until("all is queued", || {
        controller.last_sync_resource_version() == Some(version("13"))
    });
    door.open();
    assert_eq!(updates.recv_timeout(SOON), Ok("12".to_owned()));
    assert_eq!(store.get_by_key("second").unwrap().resource_version(), "12");
    logged(&["c11 panics", "panicked: I don't like second"]);
    running.end().unwrap();
}

#[test]
fn c3_unshared_handler_gets_no_call_after_the_stop() {
    let feed = Feed::new("c3 unshared");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let stop = Stopper::new();
    let (sender, calls) = mpsc::channel();
    let handler = HandlerFuncs::<DynamicObject>::new().on_add({
        let stop = stop.clone();
        move |object, _| {
            sender.send(object.name().to_owned()).unwrap();
            stop.stop();
        }
    });
    let mut options = InformerOptions::new(Arc::new(feed), handler);
    options.queue = queue_kind();
    let (_store, controller) = new_indexer_informer(options);
    soon("run", move || controller.run(&stop)).unwrap();
    assert_eq!(calls.iter().count(), 1, "and the handler has been dropped");
}

#[test]
fn unshared_informer_disconnects_its_channel_at_stop() {
    let feed = Feed::new("unshared channel");
    for received in [true, false] {
        feed.list("10", &[("a", "1"), ("b", "1")]);
        let (handler, channel) = ChannelHandler::new(0);
        let mut unshared = InformerOptions::new(Arc::new(feed.clone()), handler);
        unshared.queue = queue_kind();
        unshared.reflector = options(&FakeClock::new());
        let ((store, controller), running) = run_with(unshared);
        if received {
            for name in ["a", "b"] {
                assert_eq!(channel.recv_timeout(SOON).unwrap().name(), name);
            }
        } else {
            // The handler blocks in the full channel, until the stop.
            until("stored", || !store.is_empty());
        }
        running.end().unwrap();
        drop(controller);
        let end = channel
            .recv_timeout(SOON)
            .map(|event| event.name().to_owned());
        assert_eq!(end, Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn unshared_informer_has_all_options() {
    let clock = FakeClock::new();
    let feed = Feed::on_clock("unshared options", &clock);
    feed.list("10", &[("a", "1")]);
    let (handler, events) = recorder();
    let mut all = InformerOptions::new(Arc::new(feed.clone()), handler);
    all.queue = queue_kind();
    all.reflector = options(&clock);
    all.reflector.resync_period = 60 * SECOND;
    all.indexers = Indexers::new().with(
        "first",
        IndexFunc::new(|object: &DynamicObject| vec![object.name()[..1].to_owned()]),
    );
    all.transform = Some(Transform::try_in_place(|object: &mut DynamicObject| {
        object.edit(|fields| drop(fields.insert("seen".to_owned(), json!(true))))
    }));
    let ((store, _controller), running) = run_with(all);
    assert_eq!(events.next(), "add a@1 initial");
    let found = store.by_index("first", "a").unwrap();
    assert!(found[0].json().contains(r#""seen":true"#));
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(60 * SECOND);
    assert_eq!(events.next(), "update a@1-1");
    running.end().unwrap();
}

#[test]
fn unshared_handler_gets_no_call_once_the_stop_is_set() {
    // The first callback of the stop blocks, so the queue is still open when the next object of the
    // list is processed.
    let feed = Feed::new("slow stop");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let (stop, door) = (Stopper::new(), Door::new());
    let at = door.clone();
    let _slow = stop.on_stop(move || at.pass());
    let (sender, calls) = mpsc::channel();
    let handler = HandlerFuncs::<DynamicObject>::new().on_add({
        let (stop, door) = (stop.clone(), door.clone());
        move |object, _| {
            sender.send(object.name().to_owned()).unwrap();
            let stop = stop.clone();
            std::thread::spawn(move || stop.stop());
            door.wait_for_arrivals(1);
        }
    });
    let mut options = InformerOptions::new(Arc::new(feed), handler);
    options.queue = queue_kind();
    let (store, controller) = new_indexer_informer(options);
    let running = std::thread::spawn(move || controller.run(&stop));
    assert_eq!(calls.recv_timeout(SOON).unwrap(), "a");
    if queue_kind() == InformerQueue::RealFifo {
        until("the list is stored", || store.len() == 2);
    }
    door.open();
    running.join().unwrap().unwrap();
    assert!(calls.recv().is_err(), "no other call");
}

/// An object whose destructor panics if it has the label `fragile`.
#[derive(Deserialize)]
struct Fragile {
    metadata: ObjectMeta,
}

impl_object!(Fragile, "v1", "Fragile", "fragiles", Cluster);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(
            self.label("fragile").is_none() || std::thread::panicking(),
            "{}@{} broke",
            self.name(),
            self.resource_version()
        );
    }
}

#[test]
fn unshared_informer_survives_panicking_destructors() {
    logging();
    /// A handler whose `begin` and destructor panic.
    struct Handler(Door, mpsc::Sender<String>);
    impl ResourceEventHandler<Fragile> for Handler {
        fn begin(&mut self, _: &Stop) {
            panic!("I don't begin");
        }
        fn on_add(&mut self, _: &Arc<Fragile>, _: bool) {
            self.0.pass();
        }
        fn on_update(&mut self, _: &Arc<Fragile>, new: &Arc<Fragile>) {
            self.1.send(new.resource_version().to_owned()).unwrap();
        }
    }
    impl Drop for Handler {
        fn drop(&mut self) {
            panic!("I don't end");
        }
    }
    let feed = Feed::new("fragile");
    let fragile = |version: &str| json!({"metadata": {"name": "a", "resourceVersion": version, "labels": {"fragile": ""}}});
    feed.list_of("10", &[fragile("1")]);
    let (door, (sender, updates)) = (Door::new(), mpsc::channel());
    let handler = Handler(door.clone(), sender);
    let mut options = InformerOptions::<Fragile>::new(Arc::new(feed.clone()), handler);
    options.queue = queue_kind();
    let (store, controller) = new_indexer_informer(options);
    let controller = Arc::new(controller);
    let runner = Arc::clone(&controller);
    let running = Running::new(move |stop| runner.run(stop));
    door.wait_for_arrivals(1);
    // Both changes are queued while the first object is processed.
    for version in ["11", "12"] {
        feed.event_of("MODIFIED", fragile(version));
    }
    feed.event("BOOKMARK", "", "13");
    until("all is queued", || {
        controller.last_sync_resource_version() == Some(version("13"))
    });
    door.open();
    for version in ["11", "12"] {
        assert_eq!(updates.recv_timeout(SOON).unwrap(), version);
    }
    logged(&["fragile", "`begin` panicked: I don't begin"]);
    logged(&["fragile", "the destructor of an object panicked: a@1 broke"]);
    let newest = store.get_by_key("a").unwrap();
    assert_eq!(newest.resource_version(), "12");
    // The last states are not dropped here, where nothing catches their panics.
    std::mem::forget((newest, store));
    running.end().unwrap();
    logged(&[
        "fragile",
        "the destructor of a callback panicked: I don't end",
    ]);
    std::mem::forget(controller);
}
