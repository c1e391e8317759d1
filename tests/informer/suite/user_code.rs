//! User code that waits for the informer, calls it or panics: callbacks for errors, destructors,
//! clocks. No reservation and no lock of the informer is held meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::handler::{HandlerBuffer, HandlerFuncs, HandlerOptions};
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ListerWatcher, ListerWatcherSource};
use k8s_informer::store::{IndexFunc, Indexers};
use k8s_informer::time::Clock;
use k8s_informer::{
    DynamicObject, Object, ObjectMeta, SharedIndexInformer, SharedInformerFactory, Stop, Stopper,
    impl_object,
};
use k8s_informer_testing::FakeClock;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{informer_options, one_thread, queue_kind};
use crate::informer::support::{Door, Feed, Running, SOON, object, options, until, version};

impl ListerWatcherSource for Feed {
    fn lister_watcher(&self, _: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
        Arc::new(self.clone())
    }
}

fn failure() -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError" })
}

/// Observes `feed` with an `on_error` that waits until the handler has received "b". Then sends
/// `events`, which are read at once.
fn on_error_waits(feed: &Feed, indexers: Indexers<DynamicObject>, events: &[(&str, Value)]) {
    let factory = SharedInformerFactory::with_options(
        feed.clone(),
        FactoryOptions::new()
            .reflector(options(&FakeClock::new()))
            .queue(queue_kind())
            .one_thread(one_thread()),
    );
    let pods = GroupVersionResource::new("", "v1", "pods");
    factory
        .informer_for(Source::dynamic(pods.clone()))
        .add_indexers(indexers)
        .unwrap();
    let (added, names) = mpsc::channel();
    let (names, (waited, results)) = (Mutex::new(names), mpsc::channel());
    let observation = factory
        .observe(Source::dynamic(pods))
        .on_added(move |object| added.send(object.name().to_owned()).unwrap())
        .on_error(move |_| {
            let names = names.lock();
            let received = std::iter::from_fn(|| names.recv_timeout(SOON / 4).ok());
            let _ = waited.send({ received }.any(|name| name == "b"));
        })
        .start()
        .unwrap();
    feed.list("10", &[("a", "1")]);
    assert!(observation.synced().wait_timeout(SOON));
    feed.events(events);
    assert_eq!(results.recv_timeout(SOON), Ok(true));
    feed.list("20", &[("a", "1"), ("b", "11")]);
    observation.shut_down(None).unwrap();
    factory.shut_down(None).unwrap();
}

#[test]
fn on_error_may_wait_for_events_read_before() {
    let feed = Feed::new("on_error waits");
    let events = [("ADDED", object("b", "11")), ("ERROR", failure())];
    on_error_waits(&feed, Indexers::new(), &events);
}

#[test]
fn on_error_may_wait_for_events_read_with_a_rejected_one() {
    let feed = Feed::new("on_error waits after a rejection");
    let rejects = IndexFunc::fallible(|object: &DynamicObject| match object.name() {
        "bad" => Err("not this one"),
        _ => Ok(Vec::new()),
    });
    let events = [("ADDED", object("bad", "11")), ("ADDED", object("b", "12"))];
    on_error_waits(&feed, Indexers::new().with("index", rejects), &events);
}

/// An object whose destructor calls the informer that is registered under its label.
#[derive(Deserialize)]
struct Calling {
    metadata: ObjectMeta,
}

impl_object!(Calling, "v1", "Calling", "callings", Cluster);

type CallingInformer = SharedIndexInformer<Calling>;

/// The informers that destructors call, by a label of their objects, and where they report it.
static CALLED: Mutex<Vec<(String, CallingInformer, mpsc::Sender<String>)>> = Mutex::new(Vec::new());

impl Drop for Calling {
    fn drop(&mut self) {
        let test = self.label("test").unwrap_or_default();
        let called = { CALLED.lock().iter().find(|it| it.0 == test).cloned() };
        let Some((_, informer, dropped)) = called else {
            return;
        };
        if let Ok(handler) = informer.add_handler(HandlerFuncs::new()) {
            informer.remove_event_handler(&handler);
        }
        let text = format!("{}@{}", self.name(), self.resource_version());
        let _ = dropped.send(text);
    }
}

/// An informer without handlers, whose objects add a handler when they are dropped.
struct Destructors {
    test: &'static str,
    feed: Feed,
    informer: CallingInformer,
    dropped: mpsc::Receiver<String>,
}

impl Destructors {
    fn new(test: &'static str, indexers: Indexers<Calling>) -> Self {
        let feed = Feed::new(test);
        let mut options = informer_options(options(&FakeClock::new()));
        options.indexers = indexers;
        let informer = CallingInformer::new(Arc::new(feed.clone()), options);
        let (sender, dropped) = mpsc::channel();
        CALLED
            .lock()
            .push((test.to_owned(), informer.clone(), sender));
        Self {
            test,
            feed,
            informer,
            dropped,
        }
    }

    fn object(&self, name: &str, version: &str) -> Value {
        let labels = json!({ "test": self.test });
        json!({ "metadata": { "name": name, "resourceVersion": version, "labels": labels } })
    }

    fn list(&self, version: &str, objects: &[(&str, &str)]) {
        let objects = objects.iter().map(|(name, of)| self.object(name, of));
        self.feed.list_of(version, &objects.collect::<Vec<_>>());
    }

    fn run(&self) -> Running<()> {
        let informer = self.informer.clone();
        let running = Running::new(move |stop| informer.run(stop).unwrap());
        assert!(self.informer.synced().wait_timeout(SOON));
        running
    }

    /// Waits until these objects have been dropped.
    fn expect(&self, objects: &[&str]) {
        let mut dropped: Vec<_> = objects
            .iter()
            .map(|_| self.dropped.recv_timeout(SOON).expect("a deadlock"))
            .collect();
        dropped.sort();
        assert_eq!(dropped, objects);
    }
}

impl Drop for Destructors {
    fn drop(&mut self) {
        let mut called = CALLED.lock();
        let at = called.iter().position(|it| it.0 == self.test);
        let removed = at.map(|at| called.remove(at));
        drop(called);
        drop(removed);
    }
}

#[test]
fn destructor_of_a_replaced_object_may_add_a_handler() {
    let test = Destructors::new("replaced", Indexers::new());
    test.list("10", &[("a", "1"), ("b", "2"), ("c", "3")]);
    let running = test.run();
    test.feed.event_of("MODIFIED", test.object("a", "11"));
    test.expect(&["a@1"]);
    test.feed.event_of("DELETED", test.object("a", "12"));
    test.expect(&["a@11", "a@12"]);
    // A list that misses one object and changes the other.
    test.list("20", &[("b", "15")]);
    test.feed.expire();
    test.expect(&["b@2", "c@3"]);
    running.end();
}

/// The objects of merged events are dropped while events are sent to the same handler.
#[test]
fn destructor_of_a_merged_object_may_add_a_handler() {
    if one_thread() {
        return; // Handlers without threads have no buffer.
    }
    const EVENTS: usize = 50;
    let test = Destructors::new("merged", Indexers::new());
    let door = Door::new();
    let at = door.clone();
    let waits = HandlerFuncs::new().on_add(move |_, _| at.pass());
    let mut options = HandlerOptions::default();
    options.buffer = HandlerBuffer::Coalescing;
    test.informer
        .add_handler_with_options(waits, options)
        .unwrap();
    test.list("10", &[("a", "10")]);
    let running = test.run();
    door.wait_for_arrivals(1);
    for version in 11..=10 + EVENTS {
        test.feed
            .event_of("MODIFIED", test.object("a", &version.to_string()));
    }
    // All but the first and the last state are dropped while the handler waits, with events that
    // follow.
    let mut number = 11 + EVENTS;
    let mut merged = 0;
    while merged < EVENTS - 1 {
        let text = number.to_string();
        test.feed.event_of("MODIFIED", test.object("b", &text));
        until("stored", || {
            test.informer.store_resource_version() == Some(version(&text))
        });
        merged += test
            .dropped
            .try_iter()
            .filter(|object| object.starts_with("a@"))
            .count();
        number += 1;
    }
    door.open();
    running.end();
}

#[test]
fn destructor_may_call_the_informer_during_its_stop() {
    // The index function stops the informer while a change is processed, which is then delivered to
    // no handler.
    let stop = Arc::new(Mutex::new(None::<Stopper>));
    let stops = Arc::clone(&stop);
    let index = IndexFunc::new(move |object: &Calling| {
        if object.resource_version() == "11" {
            stops.lock().take().inspect(Stopper::stop);
        }
        Vec::new()
    });
    let test = Destructors::new("stopped", Indexers::new().with("index", index));
    test.list("10", &[("a", "1"), ("b", "2")]);
    let handler = test.informer.add_handler(HandlerFuncs::new()).unwrap();
    let running = test.run();
    assert!(handler.synced().wait_timeout(SOON));
    *stop.lock() = Some(running.stop.clone());
    let events = [("a", "11"), ("b", "12")].map(|(name, to)| ("MODIFIED", test.object(name, to)));
    test.feed.events(&events);
    // On one thread, each object is a pop of its own, so the second one stays in the queue.
    test.expect(if one_thread() {
        &["a@1"]
    } else {
        &["a@1", "b@2"]
    });
    running.ended();
}

#[test]
fn c3_stop_during_a_pop_skips_its_notifications() {
    let stop = Arc::new(Mutex::new(None::<Stopper>));
    let stops = Arc::clone(&stop);
    let index = IndexFunc::new(move |object: &DynamicObject| {
        if object.name() == "b" {
            stops.lock().take().inspect(Stopper::stop);
        }
        Vec::new()
    });
    let feed = Feed::new("c3 during a pop");
    let mut options = informer_options(options(&FakeClock::new()));
    options.indexers = Indexers::new().with("index", index);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let handler = informer.add_handler(HandlerFuncs::new()).unwrap();
    let running = crate::informer::support::run(&informer);
    *stop.lock() = Some(running.stop.clone());
    feed.list("10", &[("a", "1"), ("b", "1"), ("c", "1")]);
    running.ended().unwrap();
    // What was popped is in the cache. At most the object before the stop was for the handler.
    assert!(informer.lister().get("", "b").is_some());
    assert!(handler.stats().received <= 1, "{:?}", handler.stats());
}

/// A clock that panics once, when the reflector begins.
struct PanickingClock {
    clock: FakeClock,
    has_panicked: AtomicBool,
}

impl Clock for PanickingClock {
    fn now(&self) -> Instant {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let panics = name.ends_with(" reflector");
        assert!(
            !panics || self.has_panicked.swap(true, Ordering::SeqCst),
            "no time today"
        );
        self.clock.now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.clock.wait(duration, stop)
    }
}

#[test]
fn clock_that_panics_first_does_not_end_the_reflector() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("clock panics first");
    let clock = Arc::new(PanickingClock {
        clock: FakeClock::new(),
        has_panicked: AtomicBool::new(false),
    });
    let mut options = options(&FakeClock::new());
    options.clock = Arc::clone(&clock) as _;
    let informer = super::informer_with(&feed, options);
    let running = crate::informer::support::run(&informer);
    until("the panic", || clock.has_panicked.load(Ordering::SeqCst));
    feed.list("10", &[("a", "1")]);
    assert!(informer.synced().wait_timeout(SOON));
    running.end().unwrap();
}
