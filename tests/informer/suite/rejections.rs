//! Objects that the process function of a controller rejects: the status shows it, and a relist tries
//! again. The waits of an informer for an object that its transform rejects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_informer::error::WaitCause;
use k8s_informer::informer::{Controller, ControllerConfig, InformerError};
use k8s_informer::object::{Accessor, ResourceVersion};
use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Deltas, ProcessError};
use k8s_informer::reflector::{ReflectorOptions, ReflectorStatus};
use k8s_informer::store::Transform;
use k8s_informer::{DynamicObject, Indexer, Object, SharedIndexInformer, Stop};
use k8s_informer_testing::FakeClock;

use super::informer_options;
use crate::informer::support::{
    Feed, Running, SECOND, SOON, logged, logging, object, options, run_synced, until, version,
};
use crate::log_capture;

const SHORT: Duration = Duration::from_millis(1);

/// A controller that fills a cache. Its process function rejects objects named "bad" while `fails` is
/// set.
struct Picky {
    feed: Feed,
    clock: FakeClock,
    fails: Arc<AtomicBool>,
    cache: Arc<Indexer<DynamicObject>>,
    controller: Arc<Controller<DynamicObject>>,
    next_version: std::cell::Cell<u32>,
}

impl Picky {
    fn new(name: &'static str) -> Self {
        let clock = FakeClock::new();
        Self::with(Feed::new(name), &clock, options(&clock))
    }

    fn with(feed: Feed, clock: &FakeClock, reflector: ReflectorOptions) -> Self {
        let fails = Arc::new(AtomicBool::new(true));
        let cache = Arc::new(Indexer::for_objects());
        let (known, store) = (Arc::clone(&cache), Arc::clone(&cache));
        let options = DeltaFifoOptions::new().known_objects(known);
        let queue = DeltaFifo::with_options(Accessor::object(), options);
        let failing = Arc::clone(&fails);
        let process = move |deltas: &Deltas<DynamicObject>, _| -> Result<(), ProcessError> {
            for delta in deltas.iter() {
                match delta {
                    Delta::Deleted { gone, .. } => store.delete(gone.clone())?,
                    other => {
                        let object = Arc::clone(&other.entry().unwrap().object);
                        let rejects = object.name().starts_with("bad");
                        if rejects && failing.load(Ordering::SeqCst) {
                            return Err("not this one".into());
                        }
                        store.add(object)?;
                    }
                }
            }
            Ok(())
        };
        let mut config = ControllerConfig::new(Arc::new(queue), Arc::new(feed.clone()), process);
        config.reflector = reflector;
        Self {
            feed,
            clock: clock.clone(),
            fails,
            cache,
            controller: Arc::new(Controller::new(config)),
            next_version: std::cell::Cell::new(1000),
        }
    }

    fn run_synced(&self) -> Running<Result<(), InformerError>> {
        let controller = Arc::clone(&self.controller);
        let running = Running::new(move |stop| controller.run(stop));
        assert!(self.controller.synced().wait_timeout(SOON));
        running
    }

    fn accept(&self) {
        self.fails.store(false, Ordering::SeqCst);
    }

    fn status(&self) -> ReflectorStatus {
        self.controller.status()
    }

    /// Sends a bookmark, and waits until the reflector has read it.
    fn bookmark(&self) {
        let version = self.next_version.get().to_string();
        self.next_version.set(self.next_version.get() + 1);
        self.feed.event("BOOKMARK", "", &version);
        until("the bookmark", || {
            self.controller.last_sync_resource_version() == ResourceVersion::new(&version)
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

    fn cached(&self, name: &str) -> Option<String> {
        let cached = self.cache.get_by_key(name);
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
    let running = test.run_synced();
    assert_names(&test.status(), "bad");
    assert_eq!(test.status().unreadable, 2);
    assert_eq!(test.cache.list_keys(), ["good"]);
    running.end().unwrap();
}

#[test]
fn c7_rejected_list_object_heals_with_a_relist() {
    let test = Picky::new("rejected list heals");
    test.feed.list("10", &[("bad", "1"), ("good", "2")]);
    let running = test.run_synced();
    test.accept();
    test.elapse();
    test.feed.list("20", &[("bad", "1"), ("good", "2")]);
    until("the status clears", || test.status().complete);
    assert_eq!(test.cached("bad").as_deref(), Some("1"));
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
    let running = test.run_synced();
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
    let clock = FakeClock::new();
    let mut reflector = options(&clock);
    reflector.watch_idle_timeout = Some(Duration::from_millis(1200));
    let test = Picky::with(Feed::new("rejected, then silent"), &clock, reflector);
    test.feed.list("10", &[("bad", "1"), ("good", "2")]);
    let running = test.run_synced();
    test.accept();
    test.feed.event("MODIFIED", "bad", "11");
    until("the status clears", || test.status().complete);
    until("a second watch", || test.feed.requests().len() >= 3);
    assert_eq!(test.feed.requests()[2].0, "watch");
    let error = test.status().last_error.unwrap().to_string();
    assert!(error.ends_with("no data arrived for 1 s"), "{error}");
    running.end().unwrap();
}

#[test]
fn rejected_event_heals_with_a_later_event() {
    let test = Picky::new("rejected event");
    test.feed.list("10", &[("good", "2")]);
    let running = test.run_synced();
    test.feed.event("ADDED", "bad", "11");
    until("the rejection", || !test.status().complete);
    assert_names(&test.status(), "bad");
    test.bookmark();
    test.accept();
    test.feed.event("MODIFIED", "bad", "12");
    until("the status clears", || test.status().complete);
    assert_eq!(test.cached("bad").as_deref(), Some("12"));
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
    let running = test.run_synced();
    test.feed.event("DELETED", "bad", "11");
    test.bookmark();
    assert!(!test.status().complete, "one is still missing");
    // The other one is gone with the next list.
    test.elapse();
    test.feed.list("2000", &[("good", "2")]);
    until("the status clears", || test.status().complete);
    running.end().unwrap();
}

#[test]
fn c7_always_rejected_object_causes_five_relists() {
    logging();
    let test = Picky::new("always rejected");
    test.feed.list("10", &[("bad", "1")]);
    let running = test.run_synced();
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
    let clock = FakeClock::new();
    let mut reflector = options(&clock);
    reflector.resync_period = SECOND;
    let feed = Feed::on_clock("rejected with resync", &clock);
    let test = Picky::with(feed, &clock, reflector);
    test.accept();
    test.feed.list("10", &[("bad", "1")]);
    let running = test.run_synced();
    clock.wait_for_waits(1, SOON).unwrap();
    // The rest is too short for a relist that looks for the rejected object.
    let rest = SECOND / 10;
    clock.advance(SECOND - rest);
    test.fails.store(true, Ordering::SeqCst);
    test.feed.event("MODIFIED", "bad", "11");
    until("the rejection", || !test.status().complete);
    // A DeltaFifo resyncs the newest state while it is being processed. The next event shows that
    // it is rejected and processed.
    test.feed.event("ADDED", "good", "12");
    until("the next event", || test.cached("good").is_some());
    test.accept();
    clock.advance(rest);
    // The resync delivers "bad" in the version 1 before this event.
    test.feed.event("ADDED", "last", "13");
    until("the last event", || test.cached("last").is_some());
    assert_eq!(test.cached("bad").as_deref(), Some("1"));
    assert!(!test.status().complete);
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
fn c7_wait_for_object_that_was_never_stored_is_an_error() {
    let transform = Transform::try_in_place(|object: &mut DynamicObject| match object.name() {
        "worse" => Err("not for this cache"),
        _ => Ok(()),
    });
    let feed = Feed::new("never stored");
    let mut informer_options = informer_options(options(&FakeClock::new()));
    informer_options.transform = Some(transform);
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), informer_options);
    feed.list("10", &[("worse-list", "1")]);
    let running = run_synced(&informer);
    feed.event("ADDED", "worse", "12");
    feed.event("BOOKMARK", "", "13");
    let wait = |name: &str, version: &str| {
        let object: DynamicObject = serde_json::from_value(object(name, version)).unwrap();
        informer.wait_for_object(&object, SOON, &Stop::never())
    };
    let error = wait("worse", "12").unwrap_err();
    let cause = WaitCause::NotStored {
        version: version("12"),
        cached: None,
    };
    assert_eq!(error.cause(), &cause, "{error}");
    let text = "failed waiting for worse: the resourceVersion \"12\" was not stored; the cache does not have the object";
    assert!(error.to_string().starts_with(text), "{error}");
    wait("absent", "13").unwrap();
    informer
        .wait_for_resource_version(&version("13"), SOON, &Stop::never())
        .unwrap();
    feed.event("DELETED", "worse", "15");
    // The transform rejects the deleted object as well, so its version does not count.
    feed.event("BOOKMARK", "", "16");
    wait("absent", "16").unwrap();
    wait("worse", "12").unwrap();
    running.end().unwrap();
}

#[test]
fn wait_times_out_while_a_change_is_not_processed() {
    let feed = Feed::new("processed later");
    let informer_options = informer_options(options(&FakeClock::new()));
    let informer =
        SharedIndexInformer::<DynamicObject>::new(Arc::new(feed.clone()), informer_options);
    feed.list("10", &[]);
    let running = run_synced(&informer);
    let bad: DynamicObject = serde_json::from_value(object("bad", "11")).unwrap();
    let early = informer.wait_for_object(&bad, SHORT, &Stop::never());
    let early = early.unwrap_err();
    assert_eq!(early.cause(), &WaitCause::TimedOut(SHORT), "{early}");
    running.end().unwrap();
}
