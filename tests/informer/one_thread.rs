//! An informer on one thread. The suite also runs on one thread, without the tests whose callbacks
//! block.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::queue::WaitError;
use k8s_informer::reflector::{ReflectorOptions, ReflectorState};
use k8s_informer::store::Transform;
use k8s_informer::time::Backoff;
use k8s_informer::{DynamicObject, Error, Object, SharedIndexInformer, Stop};
use k8s_informer_testing::FakeClock;

use super::support::{Feed, Informer, SOON, options, record, run_synced, until};

fn informer_with(feed: &Feed, reflector: ReflectorOptions) -> Informer {
    let options = SharedIndexInformerOptions {
        one_thread: true,
        reflector,
        ..SharedIndexInformerOptions::default()
    };
    SharedIndexInformer::new(Arc::new(feed.clone()), options)
}

fn informer(feed: &Feed) -> Informer {
    informer_with(feed, options(&FakeClock::new()))
}

/// The threads of callbacks, with their names.
#[derive(Clone, Default)]
struct Threads(Arc<Mutex<Vec<(&'static str, ThreadId)>>>);

impl Threads {
    fn note(&self, callback: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((callback, thread::current().id()));
    }
}

#[test]
fn all_callbacks_run_on_the_thread_of_run() {
    let feed = Feed::new("one thread");
    feed.list("10", &[("a", "1")]);
    let threads = Threads::default();
    let of = |callback| {
        let threads = threads.clone();
        move || threads.note(callback)
    };
    let mut reflector = options(&FakeClock::new());
    let failed = of("watch error");
    reflector.watch_error_handler = Some(Arc::new(move |_: &Error| failed()));
    let informer = informer_with(&feed, reflector);
    let (transformed, indexed, handled) = (of("transform"), of("index"), of("handler"));
    let transform = Transform::new(move |object: Arc<DynamicObject>| {
        transformed();
        Ok::<_, Error>(object)
    });
    informer.set_transform(transform).unwrap();
    let index = move |_: &DynamicObject| {
        indexed();
        Vec::new()
    };
    informer.add_index("index", index).unwrap();
    informer
        .add_event_handler(|handler| handler.on_event(move |_| handled()))
        .unwrap();
    let (_handler, events) = record(&informer);
    let (sender, ran_on) = mpsc::channel();
    let (stop, of_run) = (Stop::new(), informer.clone());
    let stops = stop.clone();
    let running = thread::spawn(move || {
        sender.send(thread::current().id()).unwrap();
        of_run.run(&stops)
    });
    assert_eq!(events.next(), "add a@1 initial");
    feed.event("MODIFIED", "a", "11");
    assert_eq!(events.next(), "update a@1-11");
    feed.fail_list(Error::other("the list failed"));
    feed.list("12", &[]);
    feed.expire();
    assert_eq!(events.next(), "gone a@11");
    stop.stop();
    running.join().unwrap().unwrap();
    let ran_on = ran_on.recv().unwrap();
    let all = threads.0.lock().unwrap_or_else(PoisonError::into_inner);
    for callback in ["transform", "index", "handler", "watch error"] {
        assert!(all.contains(&(callback, ran_on)), "{callback}: {all:?}");
    }
    assert!(all.iter().all(|(_, thread)| *thread == ran_on), "{all:?}");
}

#[test]
fn callback_may_add_and_remove_handlers() {
    let feed = Feed::new("handlers in callbacks");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, added) = mpsc::channel();
    let own = informer.clone();
    let first = informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, _| {
                assert!(own.lister().get("", object.name()).is_some());
                sender.send(record(&own)).unwrap();
            })
        })
        .unwrap();
    let running = run_synced(&informer);
    let (second, events) = added.recv_timeout(SOON).unwrap();
    assert_eq!(events.next(), "add a@1 initial");
    assert!(second.synced().wait_timeout(SOON));
    informer.remove_event_handler(&first);
    assert!(first.ended().wait_timeout(SOON));
    feed.event("ADDED", "b", "11");
    assert_eq!(events.next(), "add b@11");
    // A handler that shuts itself down is not called again.
    let own = informer.clone();
    let slot = Arc::new(Mutex::new(None));
    let (sender, answers) = mpsc::channel();
    let of = Arc::clone(&slot);
    let third = informer
        .add_event_handler(|handler| {
            handler.on_update(move |_, _| {
                let own_handler = of.lock().unwrap().take().expect("one call");
                sender
                    .send(own.shut_down_event_handler(&own_handler))
                    .unwrap();
            })
        })
        .unwrap();
    *slot.lock().unwrap() = Some(third.clone());
    feed.event("MODIFIED", "b", "12");
    feed.event("MODIFIED", "b", "13");
    assert!(!answers.recv_timeout(SOON).unwrap());
    assert_eq!(events.take(2), ["update b@11-12", "update b@12-13"]);
    assert!(third.ended().wait_timeout(SOON));
    assert!(answers.recv().is_err(), "the handler was dropped");
    running.end().unwrap();
}

#[test]
fn wait_on_the_own_thread_fails() {
    let feed = Feed::new("waits");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, results) = mpsc::channel();
    let own = informer.clone();
    let handler = move |_: &Arc<DynamicObject>, _| {
        let stop = Stop::new();
        let reached = own.wait_for_resource_version("10", SOON, &stop);
        let synced = own.wait_for_sync(&stop, None);
        let current = own.wait_until_current(Instant::now(), &stop);
        sender.send((reached, synced, current)).unwrap();
    };
    informer
        .add_event_handler(|handlers| handlers.on_add(handler))
        .unwrap();
    let running = run_synced(&informer);
    let (reached, synced, current) = results.recv_timeout(SOON).unwrap();
    assert_eq!(reached, Err(WaitError::OwnThread));
    let text = synced.unwrap_err().to_string();
    assert!(text.starts_with("the only thread of an informer can't wait for itself: waits"));
    let text = current.unwrap_err().to_string();
    assert_eq!(
        text,
        "waits: the only thread of an informer can't wait for itself"
    );
    // What is reached needs no wait.
    feed.event("ADDED", "b", "11");
    let (_, synced, _) = results.recv_timeout(SOON).unwrap();
    assert!(synced.is_ok());
    running.end().unwrap();
}

#[test]
fn late_handler_interrupts_silent_watch_without_a_failure() {
    let feed = Feed::new("late handler");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let running = run_synced(&informer);
    until("the watch is open", || {
        informer.status().state == ReflectorState::Watching
    });
    for _ in 0..3 {
        let (handler, events) = record(&informer);
        assert_eq!(events.next(), "add a@1 initial");
        assert!(handler.synced().wait_timeout(SOON));
    }
    let requests = feed.requests();
    for (kind, request) in &requests[1..] {
        let version = request.resource_version.as_deref();
        assert_eq!((*kind, version), ("watch", Some("10")));
    }
    let status = informer.status();
    assert!(
        status.last_error.is_none() && status.failures == 0,
        "{status}"
    );
    running.end().unwrap();
}

#[test]
fn late_handler_is_called_during_a_back_off() {
    let feed = Feed::new("back-off");
    feed.list("10", &[("a", "1")]);
    let clock = FakeClock::new();
    let mut reflector = options(&clock);
    let hour = Duration::from_secs(3600);
    reflector.backoff = Backoff::new(hour, 1.0, hour, 0.0);
    let informer = informer_with(&feed, reflector);
    let running = run_synced(&informer);
    feed.expire();
    assert!(clock.until_waits(1, SOON));
    clock.advance(hour / 2);
    let (_handler, events) = record(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    // The rest of the back-off remains.
    assert!(clock.until_waits(2, SOON));
    assert_eq!(clock.waits(), [hour, hour / 2]);
    feed.list("20", &[("a", "1"), ("b", "15")]);
    clock.advance(hour / 2);
    assert_eq!(events.take(2), ["update a@1-1", "add b@15"]);
    running.end().unwrap();
}

#[test]
fn stop_ends_the_replay_of_a_late_handler() {
    let feed = Feed::new("replay");
    feed.list("10", &[("a", "1"), ("b", "1"), ("c", "1")]);
    let informer = informer(&feed);
    let running = run_synced(&informer);
    let (sender, calls) = mpsc::channel();
    let stop = running.stop.clone();
    let first = move |object: &Arc<DynamicObject>, _| {
        stop.stop();
        sender.send(object.name().to_owned()).unwrap();
    };
    informer
        .add_event_handler(|handler| handler.on_add(first))
        .unwrap();
    running.ended().unwrap();
    assert_eq!(calls.iter().count(), 1);
}
