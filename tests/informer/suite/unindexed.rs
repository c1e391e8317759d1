//! Objects for which an index function fails: they are in the cache, but not in that index.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use k8s_informer::handler::HandlerFuncs;
use k8s_informer::reflector::{Reflector, ReflectorOptions};
use k8s_informer::store::{IndexError, IndexFunc, Indexers};
use k8s_informer::{DynamicObject, Indexer, Lister, Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::informer_options;
use crate::informer::support::{
    Events, Feed, Informer, SECOND, SOON, logged, logging, object, options, record, run_synced,
    until,
};
use crate::log_capture;

/// An index by name that fails for objects named "bad" while `fails` is set.
#[derive(Clone, Default)]
struct Picky {
    fails: Arc<AtomicBool>,
    /// The number of calls for objects named "bad".
    calls: Arc<AtomicUsize>,
}

impl Picky {
    fn failing() -> Self {
        let picky = Self::default();
        picky.fail(true);
        picky
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn index(&self) -> Indexers<DynamicObject> {
        let picky = self.clone();
        let function = IndexFunc::new(move |object: &DynamicObject| {
            let is_bad = object.name().starts_with("bad");
            picky.calls.fetch_add(usize::from(is_bad), Ordering::SeqCst);
            let fails = is_bad && picky.fails.load(Ordering::SeqCst);
            assert!(!fails, "not this one");
            vec![object.name().to_owned()]
        });
        Indexers::new().with("picky", function)
    }

    /// Returns an informer with this index, and its events.
    fn informer(&self, feed: &Feed, clock: &FakeClock, resync: bool) -> (Informer, Events) {
        let mut reflector = options(clock);
        if resync {
            reflector.resync_period = SECOND;
        }
        let mut options = informer_options(reflector);
        options.indexers = self.index();
        let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
        let (_, events) = record(&informer);
        (informer, events)
    }
}

fn found(lister: &Lister<DynamicObject>, name: &str) -> usize {
    lister.by_index("picky", name).unwrap().len()
}

#[test]
fn unindexed_object_is_cached_delivered_and_counted() {
    logging();
    let (feed, picky) = (Feed::new("unindexed list"), Picky::failing());
    feed.list("10", &[("bad", "1"), ("good", "2"), ("bad2", "3")]);
    let (informer, events) = picky.informer(&feed, &FakeClock::new(), false);
    let running = run_synced(&informer);
    let status = informer.status();
    assert!(status.complete, "nothing is missing: {status}");
    assert_eq!((status.unindexed, status.unreadable), (2, 0));
    assert!(status.to_string().contains("; unindexed 2"), "{status}");
    let error = status.last_error.unwrap().to_string();
    assert!(
        error.starts_with("index function \"picky\" on bad"),
        "{error}"
    );
    informer.wait_for_sync(SOON, &Stop::never()).unwrap();
    // Handlers receive all objects, and the cache finds them by key.
    let mut received = events.take(3);
    received.sort();
    assert_eq!(
        received,
        [
            "add bad2@3 initial",
            "add bad@1 initial",
            "add good@2 initial"
        ]
    );
    let lister = informer.lister();
    assert_eq!(lister.len(), 3);
    assert_eq!(["bad", "good"].map(|name| found(&lister, name)), [0, 1]);
    assert_eq!(lister.unindexed("picky").unwrap(), ["bad", "bad2"]);
    let incomplete = lister.by_complete_index("picky", "good").unwrap_err();
    assert!(
        matches!(incomplete, IndexError::Unindexed { .. }),
        "{incomplete}"
    );
    logged(&["ERROR", "unindexed list", "on bad panicked: not this one"]);
    running.end().unwrap();
}

#[test]
fn new_state_is_indexed_again() {
    let (feed, picky) = (Feed::new("unindexed event"), Picky::failing());
    feed.list("10", &[("good", "2")]);
    let (informer, events) = picky.informer(&feed, &FakeClock::new(), false);
    let running = run_synced(&informer);
    feed.event("ADDED", "bad", "11");
    assert_eq!(events.take(2)[1], "add bad@11");
    assert_eq!(
        (
            informer.status().unindexed,
            found(&informer.lister(), "bad")
        ),
        (1, 0)
    );
    picky.fail(false);
    feed.event("MODIFIED", "bad", "12");
    assert_eq!(events.next(), "update bad@11-12");
    assert_eq!(
        (
            informer.status().unindexed,
            found(&informer.lister(), "bad")
        ),
        (0, 1)
    );
    // A state that fails has no old values.
    picky.fail(true);
    feed.event("MODIFIED", "bad", "13");
    assert_eq!(events.next(), "update bad@12-13");
    assert_eq!(
        (
            informer.status().unindexed,
            found(&informer.lister(), "bad")
        ),
        (1, 0)
    );
    feed.event("DELETED", "bad", "14");
    assert_eq!(events.next(), "delete bad@14");
    assert_eq!(informer.status().unindexed, 0);
    running.end().unwrap();
}

#[test]
fn relist_indexes_again_and_reports_a_state_once() {
    let (feed, picky) = (Feed::new("unindexed relist"), Picky::failing());
    let clock = FakeClock::new();
    feed.list("10", &[("bad", "1")]);
    let (informer, events) = picky.informer(&feed, &clock, false);
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&errors);
    let _subscription = informer.on_error(move |error| seen.lock().push(error.to_string()));
    let running = run_synced(&informer);
    assert_eq!(events.next(), "add bad@1 initial");
    let reported = || {
        let errors = errors.lock();
        errors
            .iter()
            .filter(|error| error.contains("on bad"))
            .count()
    };
    until("the report", || reported() == 1);
    for (version, calls) in [("20", 2), ("30", 3)] {
        if version == "30" {
            picky.fail(false);
        }
        feed.expire();
        feed.list(version, &[("bad", "1")]);
        until("the relist", || picky.calls() == calls);
    }
    until("the index", || found(&informer.lister(), "bad") == 1);
    assert_eq!((informer.status().unindexed, reported()), (0, 1));
    running.end().unwrap();
}

#[test]
fn resync_does_not_run_index_functions() {
    let clock = FakeClock::new();
    let (feed, picky) = (Feed::on_clock("unindexed resync", &clock), Picky::failing());
    feed.list("10", &[("bad", "1")]);
    let (informer, events) = picky.informer(&feed, &clock, true);
    let running = run_synced(&informer);
    picky.fail(false);
    until("a resync", || {
        clock.advance(SECOND);
        events.rest().contains(&"update bad@1-1".to_owned())
    });
    assert_eq!((picky.calls(), informer.status().unindexed), (1, 1));
    running.end().unwrap();
}

#[test]
fn unindexed_objects_count_in_their_own_namespace() {
    let of = |namespace: &str, name: &str| -> Value {
        json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": "1" } })
    };
    let (blue, green) = (Feed::new("blue unindexed"), Feed::new("green unindexed"));
    let picky = Picky::failing();
    let mut options = informer_options(options(&FakeClock::new()));
    options.indexers = picky.index();
    let sources = [("blue", &blue), ("green", &green)];
    let sources =
        sources.map(|(namespace, feed)| (namespace.to_owned(), Arc::new(feed.clone()) as _));
    let informer = SharedIndexInformer::for_namespaces(sources, options);
    blue.list_of("10", &[of("blue", "bad"), of("blue", "good")]);
    green.list_of("10", &[of("green", "good")]);
    let running = run_synced(&informer);
    let unindexed = informer.statuses().into_iter();
    let unindexed = unindexed.map(|(_, status)| status.unindexed);
    assert_eq!(unindexed.collect::<Vec<_>>(), [1, 0]);
    assert_eq!(informer.status().unindexed, 1);
    running.end().unwrap();
}

#[test]
fn index_with_a_failing_function_is_not_added() {
    let (feed, picky) = (Feed::new("late index"), Picky::default());
    feed.list("10", &[("bad", "1")]);
    let (informer, _events) = picky.informer(&feed, &FakeClock::new(), false);
    let running = run_synced(&informer);
    let late = |object: &DynamicObject| panic!("no value for {}", object.name());
    let error = informer.add_index("late", late).unwrap_err().to_string();
    assert!(error.contains("no value for bad"), "{error}");
    feed.event("MODIFIED", "bad", "11");
    let bad = serde_json::from_value(object("bad", "11")).unwrap();
    informer
        .wait_for_object(&bad, SOON, &Stop::never())
        .unwrap();
    assert!(informer.status().complete);
    assert_eq!(informer.status().unindexed, 0);
    running.end().unwrap();
}

#[test]
fn namespace_lister_finds_objects_that_its_index_lacks() {
    let namespaces = IndexFunc::fallible(|object: &DynamicObject| match object.name() {
        "bad" => Err("not this one"),
        _ => Ok(vec![object.namespace().to_owned()]),
    });
    let feed = Feed::new("unindexed namespace");
    let mut options = informer_options(options(&FakeClock::new()));
    options.indexers = Indexers::new().with("namespace", namespaces);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let of =
        |name: &str| json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}});
    feed.list_of("10", &[of("bad"), of("good")]);
    let running = run_synced(&informer);
    assert_eq!(informer.lister().namespace("n").list().len(), 2);
    running.end().unwrap();
}

/// No lock of the informer is held while an index function runs.
#[test]
fn index_function_may_add_and_remove_a_handler() {
    let feed = Feed::new("index adds a handler");
    let called: Arc<OnceLock<Informer>> = Arc::default();
    let informer_in_index = Arc::clone(&called);
    let function = IndexFunc::new(move |object: &DynamicObject| {
        if let (Some(informer), "late") = (informer_in_index.get(), object.name()) {
            let handler = informer.add_handler(HandlerFuncs::new()).unwrap();
            informer.remove_event_handler(&handler);
        }
        Vec::new()
    });
    let mut options = informer_options(options(&FakeClock::new()));
    options.indexers = Indexers::new().with("handlers", function);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let (_, events) = record(&informer);
    feed.list("10", &[("good", "1")]);
    let running = run_synced(&informer);
    assert_eq!(events.next(), "add good@1 initial");
    assert!(called.set(informer.clone()).is_ok());
    feed.event("ADDED", "late", "11");
    assert_eq!(events.next(), "add late@11");
    running.end().unwrap();
}

/// An error whose destructor needs the locks of an informer.
#[derive(Debug)]
struct Clingy(Arc<OnceLock<Informer>>);

impl fmt::Display for Clingy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not this one")
    }
}

impl Error for Clingy {}

impl Drop for Clingy {
    fn drop(&mut self) {
        if let Some(informer) = self.0.get() {
            let handler = informer.add_handler(HandlerFuncs::new()).unwrap();
            informer.remove_event_handler(&handler);
        }
    }
}

#[test]
fn error_of_an_index_function_is_dropped_without_locks() {
    let feed = Feed::new("clingy");
    let called: Arc<OnceLock<Informer>> = Arc::default();
    let informer_in_error = Arc::clone(&called);
    let function =
        IndexFunc::fallible(
            move |object: &DynamicObject| match object.resource_version() {
                "11" | "14" => Err(Clingy(Arc::clone(&informer_in_error))),
                _ => Ok(Vec::new()),
            },
        );
    let mut options = informer_options(options(&FakeClock::new()));
    options.indexers = Indexers::new().with("clingy", function);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let (_, events) = record(&informer);
    feed.list("10", &[("good", "1")]);
    let running = run_synced(&informer);
    assert_eq!(events.next(), "add good@1 initial");
    assert!(called.set(informer.clone()).is_ok());
    // Each next state, and each deletion, drops the error of the state before.
    for (kind, version) in [
        ("ADDED", "11"),
        ("MODIFIED", "12"),
        ("DELETED", "13"),
        ("ADDED", "14"),
        ("DELETED", "15"),
    ] {
        feed.event(kind, "late", version);
    }
    assert_eq!(
        events.take(5),
        [
            "add late@11",
            "update late@11-12",
            "delete late@13",
            "add late@14",
            "delete late@15"
        ]
    );
    running.end().unwrap();
}

#[test]
fn reflector_keeps_unindexed_objects_in_an_indexer() {
    logging();
    let picky = Picky::failing();
    let indexer = Arc::new(Indexer::new(
        k8s_informer::object::Accessor::object(),
        picky.index(),
    ));
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "10"}, "items": [object("bad", "1")]});
    let event = json!({"type": "ADDED", "object": object("bad2", "11")});
    let script = ScriptedListerWatcher::new([
        Answer::body(list.to_string()),
        Answer::open(format!("{event}\n")),
    ]);
    let mut options = ReflectorOptions::default();
    options.name = Some("unindexed reflector".to_owned());
    let reflector = Reflector::new(Arc::new(script), Arc::clone(&indexer) as _, options);
    let stop = Stopper::new();
    std::thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        until("both objects", || indexer.len() == 2);
        until("the reports", || {
            log_capture::lines_with(&["unindexed reflector", "panicked: not this one"]).len() == 2
        });
        let status = reflector.status();
        assert_eq!(
            (status.unindexed, status.complete, status.lists),
            (2, true, 1)
        );
        stop.stop();
    });
    let lister = Lister::new(indexer);
    assert_eq!(["bad", "bad2"].map(|name| found(&lister, name)), [0, 0]);
}
