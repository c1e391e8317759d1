//! Objects that the cache rejects: the status and the waits show it, and a relist tries again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_informer::informer::{Controller, ControllerConfig};
use k8s_informer::object::Accessor;
use k8s_informer::queue::{DeltaFifo, WaitError};
use k8s_informer::reflector::{ReflectorStatus, Shard};
use k8s_informer::store::{IndexFunc, Indexers, Transform};
use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stop};
use k8s_informer_testing::FakeClock;
use serde_json::{Value, json};

use super::informer_options;
use crate::informer::support::{
    Events, Feed, Informer, Running, SECOND, SOON, logged, logging, object, options, record,
    run_synced, until,
};
use crate::log_capture;

const SHORT: Duration = Duration::from_millis(1);

/// An informer whose index function rejects objects named "bad" while `fails` is set.
struct Picky {
    feed: Feed,
    clock: FakeClock,
    fails: Arc<AtomicBool>,
    informer: Informer,
    events: Events,
    next_version: std::cell::Cell<u32>,
}

fn index(fails: &Arc<AtomicBool>) -> Indexers<DynamicObject> {
    let fails = Arc::clone(fails);
    let function = IndexFunc::new(move |object: &DynamicObject| {
        let rejects = object.name().starts_with("bad") && fails.load(Ordering::SeqCst);
        assert!(!rejects, "not this one");
        vec![object.name().to_owned()]
    });
    Indexers::new().with("picky", function)
}

impl Picky {
    fn new(name: &'static str) -> Self {
        let (feed, clock, fails) = (Feed::new(name), FakeClock::new(), Arc::default());
        let mut informer_options = informer_options(options(&clock));
        informer_options.indexers = index(&fails);
        fails.store(true, Ordering::SeqCst);
        let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
        let (_, events) = record(&informer);
        let next_version = std::cell::Cell::new(1000);
        Self {
            feed,
            clock,
            fails,
            informer,
            events,
            next_version,
        }
    }

    fn accept(&self) {
        self.fails.store(false, Ordering::SeqCst);
    }

    fn status(&self) -> ReflectorStatus {
        self.informer.status()
    }

    /// Sends a bookmark, and waits until the reflector has read it.
    fn bookmark(&self) {
        let version = self.next_version.get().to_string();
        self.next_version.set(self.next_version.get() + 1);
        self.feed.event("BOOKMARK", "", &version);
        until("the bookmark", || {
            self.informer.last_sync_resource_version() == version
        });
    }

    /// Lets the back-off elapse, so that a due relist follows the next bookmark.
    fn elapse(&self) {
        self.bookmark();
        self.clock.advance(100 * SECOND);
        let version = self.next_version.get().to_string();
        self.next_version.set(self.next_version.get() + 1);
        self.feed.event("BOOKMARK", "", &version);
    }

    fn lists(&self) -> usize {
        let requests = self.feed.requests();
        requests.iter().filter(|(verb, _)| *verb == "list").count()
    }

    fn wait_for(&self, name: &str, version: &str) -> Result<(), WaitError> {
        let object = serde_json::from_value(object(name, version)).unwrap();
        self.informer.wait_for_object(&object, SOON, &Stop::new())
    }

    fn cached(&self, name: &str) -> Option<String> {
        let cached = self.informer.lister().get("", name);
        cached.map(|object| object.resource_version().to_owned())
    }
}

fn assert_names(status: &ReflectorStatus, name: &str) {
    let error = status.last_error.as_ref().map(ToString::to_string);
    assert!(!status.complete && status.unreadable > 0, "{status}");
    assert!(error.is_some_and(|error| error.contains(name)), "{status}");
}

#[test]
fn rejected_list_object_is_in_the_status_at_sync() {
    let test = Picky::new("rejected list");
    test.feed
        .list("10", &[("bad", "1"), ("good", "2"), ("bad2", "3")]);
    let running = run_synced(&test.informer);
    assert_names(&test.status(), "bad");
    assert_eq!(test.status().unreadable, 2);
    assert_eq!(test.events.next(), "add good@2 initial");
    running.end().unwrap();
}

#[test]
fn c7_rejected_list_object_heals_with_a_relist() {
    let test = Picky::new("rejected list heals");
    test.feed.list("10", &[("bad", "1"), ("good", "2")]);
    let running = run_synced(&test.informer);
    test.accept();
    test.elapse();
    test.feed.list("20", &[("bad", "1"), ("good", "2")]);
    until("the status clears", || test.status().complete);
    assert_eq!(test.cached("bad").as_deref(), Some("1"));
    assert_eq!(
        test.events.take(3),
        ["add good@2 initial", "update good@2-2", "add bad@1"]
    );
    // Nothing is missing, so no further relist follows.
    until("the watch", || test.feed.requests().len() == 4);
    test.elapse();
    test.bookmark();
    assert_eq!(test.lists(), 2);
    running.end().unwrap();
}

#[test]
fn rejection_is_noticed_without_further_events() {
    let test = Picky::new("rejected silently");
    test.feed.list("10", &[("good", "2")]);
    let running = run_synced(&test.informer);
    test.feed.event("ADDED", "bad", "11");
    until("the rejection", || !test.status().complete);
    test.accept();
    until("a relist", || {
        test.clock.advance(SECOND);
        test.lists() == 2
    });
    test.feed.list("20", &[("good", "2"), ("bad", "11")]);
    until("the status clears", || test.status().complete);
    assert_eq!(test.cached("bad").as_deref(), Some("11"));
    running.end().unwrap();
}

/// The list counts as not processed until the next one, even if all its objects are in the cache.
#[test]
fn silence_ends_the_watch_after_a_rejected_list_object() {
    let (feed, clock) = (Feed::new("rejected, then silent"), FakeClock::new());
    let fails = Arc::new(AtomicBool::new(true));
    let mut reflector = options(&clock);
    reflector.watch_idle_timeout = Some(Duration::from_millis(1200));
    let mut informer_options = informer_options(reflector);
    informer_options.indexers = index(&fails);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
    feed.list("10", &[("bad", "1"), ("good", "2")]);
    let running = run_synced(&informer);
    fails.store(false, Ordering::SeqCst);
    feed.event("MODIFIED", "bad", "11");
    until("the status clears", || informer.status().complete);
    until("a second watch", || feed.requests().len() >= 3);
    assert_eq!(feed.requests()[2].0, "watch");
    let error = informer.status().last_error.unwrap().to_string();
    assert!(error.ends_with("no data arrived for 1 s"), "{error}");
    running.end().unwrap();
}

#[test]
fn rejected_event_heals_with_a_later_event() {
    let test = Picky::new("rejected event");
    test.feed.list("10", &[("good", "2")]);
    let running = run_synced(&test.informer);
    test.feed.event("ADDED", "bad", "11");
    until("the rejection", || !test.status().complete);
    assert_names(&test.status(), "bad");
    test.bookmark();
    test.accept();
    test.feed.event("MODIFIED", "bad", "12");
    until("the status clears", || test.status().complete);
    test.wait_for("bad", "12").unwrap();
    test.elapse();
    test.bookmark();
    assert_eq!(test.lists(), 1);
    running.end().unwrap();
}

#[test]
fn rejected_object_that_is_deleted_clears_the_status() {
    let test = Picky::new("rejected and deleted");
    test.feed
        .list("10", &[("bad", "1"), ("bad2", "1"), ("good", "2")]);
    let running = run_synced(&test.informer);
    assert!(matches!(
        test.wait_for("bad", "1"),
        Err(WaitError::NotStored { .. })
    ));
    test.feed.event("DELETED", "bad", "11");
    test.bookmark();
    assert!(!test.status().complete, "one is still missing");
    test.wait_for("bad", "1").unwrap();
    // The other one is gone with the next list.
    test.elapse();
    test.feed.list("2000", &[("good", "2")]);
    until("the status clears", || test.status().complete);
    test.wait_for("bad2", "1").unwrap();
    running.end().unwrap();
}

#[test]
fn c7_always_rejected_object_causes_five_relists() {
    logging();
    let test = Picky::new("always rejected");
    test.feed.list("10", &[("bad", "1")]);
    let running = run_synced(&test.informer);
    for relist in 1..=5 {
        test.elapse();
        test.feed
            .list(&(2000 * relist).to_string(), &[("bad", "1")]);
        test.next_version.set(2000 * relist + 1);
        until("the relist", || test.status().relists == u64::from(relist));
        until("the rejection", || {
            test.status().unreadable == u64::from(relist) + 1
        });
    }
    // Another state of the same object triggers no relist.
    test.feed.event("MODIFIED", "bad", "10999");
    test.next_version.set(11000);
    test.elapse();
    test.bookmark();
    assert_eq!((test.lists(), test.status().complete), (6, false));
    let error = logged(&["ERROR", "always rejected", "an event was lost", "bad"]);
    let same = log_capture::lines_with(&["ERROR", "always rejected", "an event was lost"]);
    assert_eq!(same, [error], "logged once");
    running.end().unwrap();
}

#[test]
fn resync_does_not_hide_that_a_newer_state_was_rejected() {
    let (clock, fails) = (FakeClock::new(), Arc::<AtomicBool>::default());
    let feed = Feed::on_clock("rejected with resync", &clock);
    let mut reflector = options(&clock);
    reflector.resync_period = SECOND;
    let mut informer_options = informer_options(reflector);
    informer_options.indexers = index(&fails);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
    let (_, events) = record(&informer);
    feed.list("10", &[("bad", "1")]);
    let running = run_synced(&informer);
    assert_eq!(events.next(), "add bad@1 initial");
    assert!(clock.until_waits(1, SOON));
    // The rest is too short for a relist that looks for the rejected object.
    let rest = SECOND / 10;
    clock.advance(SECOND - rest);
    fails.store(true, Ordering::SeqCst);
    feed.event("MODIFIED", "bad", "11");
    until("the rejection", || !informer.status().complete);
    // A DeltaFifo resyncs the newest state while it is being processed. The next event shows that
    // it is rejected and processed.
    feed.event("ADDED", "good", "12");
    assert_eq!(events.next(), "add good@12");
    fails.store(false, Ordering::SeqCst);
    clock.advance(rest);
    // On one thread, ends a wait that began after the advance.
    feed.event("ADDED", "last", "13");
    events.until("update bad@1-1");
    assert!(!informer.status().complete);
    running.end().unwrap();
}

#[test]
fn rejected_resync_of_a_cached_object_is_not_missing() {
    let clock = FakeClock::new();
    let feed = Feed::on_clock("rejected resync", &clock);
    let fails = Arc::<AtomicBool>::default();
    let mut reflector = options(&clock);
    reflector.resync_period = SECOND;
    let mut informer_options = informer_options(reflector);
    informer_options.indexers = index(&fails);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
    let (_, events) = record(&informer);
    feed.list("10", &[("bad", "1"), ("good", "1")]);
    let running = run_synced(&informer);
    fails.store(true, Ordering::SeqCst);
    until("a resync", || {
        clock.advance(SECOND);
        events.rest().contains(&"update good@1-1".to_owned())
    });
    feed.event("ADDED", "last", "15");
    events.until("add last@15");
    assert!(informer.status().complete);
    running.end().unwrap();
}

#[test]
fn c7_wait_for_object_that_was_never_stored_is_an_error() {
    let fails = Arc::new(AtomicBool::new(true));
    let transform = Transform::try_in_place(|object: &mut DynamicObject| match object.name() {
        "worse" => Err("not for this cache"),
        _ => Ok(()),
    });
    let feed = Feed::new("never stored");
    let mut informer_options = informer_options(options(&FakeClock::new()));
    informer_options.indexers = index(&fails);
    informer_options.transform = Some(transform);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
    feed.list("10", &[("worse-list", "1")]);
    let running = run_synced(&informer);
    for (name, version) in [("bad", "11"), ("worse", "12")] {
        feed.event("ADDED", name, version);
    }
    feed.event("BOOKMARK", "", "13");
    let wait = |name: &str, version: &str| {
        let object: DynamicObject = serde_json::from_value(object(name, version)).unwrap();
        informer.wait_for_object(&object, SOON, &Stop::new())
    };
    for (name, version) in [("bad", "11"), ("worse", "12")] {
        let error = wait(name, version).unwrap_err();
        assert!(matches!(error, WaitError::NotStored { .. }), "{error}");
        let text = format!(
            "the resourceVersion \"{version}\" of {name} was not stored; the cache does not have the object"
        );
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    wait("absent", "13").unwrap();
    informer
        .wait_for_resource_version("13", SOON, &Stop::new())
        .unwrap();
    feed.event("DELETED", "bad", "14");
    feed.event("DELETED", "worse", "15");
    // The transform rejects the deleted object as well, so its version does not count.
    feed.event("BOOKMARK", "", "16");
    wait("absent", "16").unwrap();
    wait("bad", "11").unwrap();
    wait("worse", "12").unwrap();
    running.end().unwrap();
}

#[test]
fn rejection_affects_only_its_own_namespace() {
    let of = |namespace: &str, name: &str| -> Value {
        json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": "1" } })
    };
    let (blue, green) = (Feed::new("blue picky"), Feed::new("green picky"));
    let fails = Arc::new(AtomicBool::new(true));
    let mut informer_options = informer_options(options(&FakeClock::new()));
    informer_options.indexers = index(&fails);
    let sources = [("blue", &blue), ("green", &green)];
    let sources =
        sources.map(|(namespace, feed)| (namespace.to_owned(), Arc::new(feed.clone()) as _));
    let informer = SharedIndexInformer::for_namespaces(sources, informer_options);
    blue.list_of("10", &[of("blue", "bad"), of("blue", "good")]);
    green.list_of("10", &[of("green", "good")]);
    let running = run_synced(&informer);
    let complete = informer
        .statuses()
        .into_iter()
        .map(|(_, status)| status.complete);
    assert_eq!(complete.collect::<Vec<_>>(), [false, true]);
    assert_names(&informer.status(), "blue/bad");
    let wait = |namespace: &str| {
        let object: DynamicObject = serde_json::from_value(of(namespace, "bad")).unwrap();
        informer.wait_for_object(&object, SOON, &Stop::new())
    };
    wait("green").unwrap();
    assert!(matches!(wait("blue"), Err(WaitError::NotStored { .. })));
    running.end().unwrap();
}

#[test]
fn late_handler_gets_a_rejected_object_when_it_heals() {
    let test = Picky::new("rejected before a late handler");
    test.feed.list("10", &[("bad", "1"), ("good", "2")]);
    let running = run_synced(&test.informer);
    let (_, late) = record(&test.informer);
    assert_eq!(late.next(), "add good@2 initial");
    test.accept();
    test.feed.event("MODIFIED", "bad", "11");
    assert_eq!(late.next(), "add bad@11");
    running.end().unwrap();
}

#[test]
fn index_added_while_running_does_not_affect_the_status() {
    let test = Picky::new("rejected by a late index");
    test.accept();
    test.feed.list("10", &[("bad", "1")]);
    let running = run_synced(&test.informer);
    let late = |object: &DynamicObject| panic!("no value for {}", object.name());
    test.informer.add_index("late", late).unwrap_err();
    test.feed.event("MODIFIED", "bad", "11");
    test.wait_for("bad", "11").unwrap();
    assert!(test.status().complete);
    running.end().unwrap();
}

#[test]
fn c7_unprocessable_event_is_in_the_status_of_a_controller() {
    let (feed, clock) = (Feed::new("c7 status"), FakeClock::new());
    feed.list("10", &[("bad", "1"), ("panics", "1"), ("good", "1")]);
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    let queue = Arc::new(DeltaFifo::<DynamicObject>::new(Accessor::object()));
    let mut config = ControllerConfig::new(queue, Arc::new(feed.clone()), move |deltas, _| {
        let object = deltas.newest().unwrap().object().unwrap();
        match (object.name(), failing.load(Ordering::SeqCst)) {
            ("bad", true) => Err("no good".into()),
            ("panics", true) => panic!("not at all"),
            _ => Ok(()),
        }
    });
    config.reflector = options(&clock);
    let controller = Arc::new(Controller::new(config));
    let running = Running::new({
        let controller = Arc::clone(&controller);
        move |stop| controller.run(stop)
    });
    assert!(controller.synced().wait_timeout(SOON));
    assert_names(&controller.status(), "panics: panicked: not at all");
    assert_eq!(controller.status().unreadable, 2);
    fails.store(false, Ordering::SeqCst);
    feed.list("20", &[("bad", "1"), ("panics", "15"), ("good", "1")]);
    until("the status clears", || {
        clock.advance(SECOND);
        controller.status().complete
    });
    running.end().unwrap();
}

#[test]
fn wait_times_out_while_a_change_is_not_processed() {
    let test = Picky::new("rejected later");
    test.feed.list("10", &[]);
    let running = run_synced(&test.informer);
    let bad: DynamicObject = serde_json::from_value(object("bad", "11")).unwrap();
    let early = test.informer.wait_for_object(&bad, SHORT, &Stop::new());
    assert!(matches!(early, Err(WaitError::Timeout { .. })), "{early:?}");
    running.end().unwrap();
}

#[test]
fn wait_for_sync_fails_if_every_object_is_rejected() {
    let test = Picky::new("all rejected");
    test.feed.list("10", &[("bad", "1"), ("bad2", "1")]);
    let running = run_synced(&test.informer);
    let wait = || test.informer.wait_for_sync(&Stop::new(), SOON);
    let error = wait().unwrap_err();
    let text = error.to_string();
    assert!(error.unsynced[0].undecodable.is_some(), "{error}");
    assert!(
        text.starts_with("all rejected: none of the 2 objects"),
        "{text}"
    );
    assert!(text.ends_with("panicked: not this one"), "{text}");
    test.feed.event("ADDED", "good", "11");
    test.wait_for("good", "11").unwrap();
    wait().unwrap();
    running.end().unwrap();
}

#[test]
fn wait_for_sync_ignores_objects_of_other_shards() {
    let fails = Arc::new(AtomicBool::new(true));
    let shard = Shard::new(0, 2).unwrap();
    let mut reflector = options(&FakeClock::new());
    reflector.shard = Some(shard.clone());
    let mut informer_options = informer_options(reflector);
    informer_options.indexers = index(&fails);
    let feed = Feed::new("rejected in a shard");
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
    let of = |name: &str, uid: &str| {
        let mut object = object(name, "1");
        object["metadata"]["uid"] = uid.into();
        object
    };
    let [own, other] = ["ab", "abc"];
    assert!(shard.contains(own) && !shard.contains(other));
    feed.list_of("10", &[of("bad", own), of("good", other)]);
    let running = run_synced(&informer);
    informer.wait_for_sync(&Stop::new(), SOON).unwrap();
    assert_names(&informer.status(), "bad");
    running.end().unwrap();
}
