//! An informer on one thread. The suite also runs on one thread, without the tests whose callbacks
//! block.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use k8s_informer::error::{ShutdownError, WaitCause};
use k8s_informer::handler::ChannelHandler;
use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::reflector::{ReflectorOptions, ReflectorState};
use k8s_informer::store::Transform;
use k8s_informer::time::Backoff;
use k8s_informer::{DynamicObject, Error, Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};
use serde_json::{Value, json};

use super::support::{
    Door, Feed, Informer, SECOND, SOON, logged, logging, options, record, run, run_synced, status,
    until, version,
};

fn informer_with(feed: &Feed, reflector: ReflectorOptions) -> Informer {
    let options = SharedIndexInformerOptions::new()
        .one_thread(true)
        .reflector(reflector);
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
fn handler_added_by_an_error_callback_is_called_before_the_next_wait() {
    let feed = Feed::new("added by an error");
    feed.list("10", &[("a", "1")]);
    feed.fail_list(status(500, "InternalError", "not now"));
    let clock = FakeClock::new();
    let mut reflector = options(&clock);
    reflector.backoff = Backoff::new(60 * SECOND);
    let (adds, late) = mpsc::channel::<Informer>();
    let (sender, receiver) = mpsc::channel();
    let late = Mutex::new(late);
    reflector.watch_error_handler = Some(Arc::new(move |_: &Error| {
        let late = late.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(informer) = late.try_recv() {
            sender.send(record(&informer)).unwrap();
        }
    }));
    let informer = informer_with(&feed, reflector);
    adds.send(informer.clone()).unwrap();
    let _running = run_synced(&informer);
    feed.expire();
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(60 * SECOND);
    // The list has failed. The informer waits for its back-off, and the clock stands still.
    let (handler, events) = receiver.recv_timeout(SOON).unwrap();
    assert_eq!(events.next(), "add a@1 initial");
    assert!(handler.synced().wait_timeout(SOON));
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
    let (stop, of_run) = (Stopper::new(), informer.clone());
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
                    .send(own.shut_down_event_handler(&own_handler, None))
                    .unwrap();
            })
        })
        .unwrap();
    *slot.lock().unwrap() = Some(third.clone());
    feed.event("MODIFIED", "b", "12");
    feed.event("MODIFIED", "b", "13");
    let shutdown = answers.recv_timeout(SOON).unwrap();
    assert_eq!(shutdown, Err(ShutdownError::FromWithin));
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
        let stop = Stopper::new();
        let reached = own.wait_for_resource_version(&version("10"), SOON, &stop);
        let synced = own.wait_for_sync(None, &stop);
        let current = own.wait_for_current_state(Instant::now(), None, &stop);
        sender.send((reached, synced, current)).unwrap();
    };
    informer
        .add_event_handler(|handlers| handlers.on_add(handler))
        .unwrap();
    let running = run_synced(&informer);
    let (reached, synced, current) = results.recv_timeout(SOON).unwrap();
    let (reached, synced, current) = (
        reached.unwrap_err(),
        synced.unwrap_err(),
        current.unwrap_err(),
    );
    for error in [&reached, &synced, &current] {
        assert_eq!(error.cause(), &WaitCause::OwnThread, "{error}");
    }
    let text = synced.to_string();
    assert!(text.starts_with("this thread can't wait for itself: waits"));
    let own_thread = "this thread can't wait for itself";
    assert_eq!(
        current.to_string(),
        format!("failed waiting until waits is current: {own_thread}")
    );
    assert_eq!(
        reached.to_string(),
        format!(r#"failed waiting for the resourceVersion "10": {own_thread}; last seen: nothing"#)
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
        let from = request.resource_version.as_ref();
        assert_eq!((*kind, from), ("watch", Some(&version("10"))));
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
    reflector.backoff = Backoff::new(hour);
    let informer = informer_with(&feed, reflector);
    let running = run_synced(&informer);
    feed.expire();
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(hour / 2);
    let (_handler, events) = record(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    // The rest of the back-off remains.
    clock.wait_for_waits(2, SOON).unwrap();
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

fn object_in(namespace: &str, name: &str) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": "11" } })
}

/// An informer for two namespaces whose lists are empty.
fn two_namespaces() -> (Feed, Feed, Informer) {
    let (blue, green) = (Feed::new("blue things"), Feed::new("green things"));
    blue.list("10", &[]);
    green.list("10", &[]);
    let sources = [("blue", &blue), ("green", &green)];
    let sources = sources.map(|(name, feed)| (name.to_owned(), Arc::new(feed.clone()) as _));
    let options = SharedIndexInformerOptions::new()
        .one_thread(true)
        .reflector(options(&FakeClock::new()));
    let informer = SharedIndexInformer::for_namespaces(sources, options);
    (blue, green, informer)
}

/// Whether the condition holds within a second: for what must not happen.
fn happens(condition: impl Fn() -> bool) -> bool {
    happens_within(SECOND, condition)
}

fn happens_within(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn cache_has_no_later_change_than_its_handler() {
    let feed = Feed::new("changes of one read");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, calls) = mpsc::channel();
    let own = informer.clone();
    let note = move |new: &Arc<DynamicObject>| {
        let cached = own.lister().get("", "a");
        let cached = cached.map(|object| object.resource_version().to_owned());
        let _ = sender.send((new.resource_version().to_owned(), cached));
    };
    informer
        .add_event_handler(|handler| handler.on_update(move |_, new| note(new)))
        .unwrap();
    let running = run_synced(&informer);
    feed.events_together(&[
        ("MODIFIED", "a", "11"),
        ("MODIFIED", "a", "12"),
        ("DELETED", "a", "13"),
    ]);
    for version in ["11", "12"] {
        let (new, cached) = calls.recv_timeout(SOON).unwrap();
        assert_eq!((new.as_str(), cached.as_deref()), (version, Some(version)));
    }
    running.end().unwrap();
}

#[test]
fn handler_of_one_namespace_holds_up_the_cache_of_others() {
    let (blue, green, informer) = two_namespaces();
    let (door, (sender, calls)) = (Door::new(), mpsc::channel());
    let (passes, own) = (door.clone(), informer.clone());
    let on_add = move |object: &Arc<DynamicObject>, _| {
        if object.name() == "slow" {
            passes.pass();
        }
        let call = (thread::current().id(), own.lister().list().len());
        let _ = sender.send(call);
    };
    let handler = informer
        .add_event_handler(|handler| handler.on_add(on_add))
        .unwrap();
    let running = run_synced(&informer);
    blue.event_of("ADDED", object_in("blue", "slow"));
    door.wait_for_arrivals(1);
    (0..20).for_each(|n| green.event_of("ADDED", object_in("green", &format!("g{n}"))));
    // The thread of the green namespace reads one event. The others wait on their connection.
    until("an event is read", || green.unread() < 20);
    let is_ahead = || informer.lister().list().len() > 1 || handler.stats().received > 1;
    assert!(!happens(is_ahead), "{:?}", handler.stats());
    assert_eq!(green.unread(), 19);
    door.open();
    let calls: Vec<_> = (0..21).map(|_| calls.recv_timeout(SOON).unwrap()).collect();
    let (of_blue, _) = calls[0];
    let (of_green, _) = calls[1];
    assert_ne!(of_blue, of_green);
    for (at, call) in calls.into_iter().enumerate().skip(1) {
        assert_eq!(
            call,
            (of_green, at + 1),
            "the thread, and the objects in the cache"
        );
    }
    until("counted", || handler.stats().delivered == 21);
    let stats = handler.stats();
    assert_eq!(
        (stats.received, stats.waiting, stats.most_waiting),
        (21, 0, 1)
    );
    running.end().unwrap();
}

#[test]
fn namespace_is_read_while_another_one_is_in_a_handler() {
    let (blue, green, informer) = two_namespaces();
    let doors = [Door::new(), Door::new()];
    let passes = doors.clone();
    let on_add = move |object: &Arc<DynamicObject>, _| match object.name() {
        "b1" => passes[0].pass(),
        "g1" => passes[1].pass(),
        _ => {}
    };
    let handler = informer
        .add_event_handler(|handler| handler.on_add(on_add))
        .unwrap();
    let running = run_synced(&informer);
    blue.event_of("ADDED", object_in("blue", "b1"));
    doors[0].wait_for_arrivals(1);
    green.event_of("ADDED", object_in("green", "g1"));
    // The event of the green namespace must not be left to the thread of the blue one.
    until("it is read", || green.unread() == 0);
    let _ = happens(|| handler.stats().received == 2);
    doors[0].open();
    doors[1].wait_for_arrivals(1);
    blue.event_of("ADDED", object_in("blue", "b2"));
    let is_read = happens_within(SOON, || blue.unread() == 0);
    // Also if the test fails: the informer can't end otherwise.
    doors[1].open();
    assert!(is_read, "the blue namespace is not read");
    until("delivered", || handler.stats().delivered == 3);
    running.end().unwrap();
}

#[test]
fn stop_ends_a_namespace_that_waits_for_another_one() {
    let (blue, green, informer) = two_namespaces();
    let door = Door::new();
    let passes = door.clone();
    let handler = informer
        .add_event_handler(|handler| handler.on_add(move |_, _| passes.pass()))
        .unwrap();
    let running = run_synced(&informer);
    blue.event_of("ADDED", object_in("blue", "b"));
    door.wait_for_arrivals(1);
    green.event_of("ADDED", object_in("green", "g"));
    until("it is read", || green.unread() == 0);
    running.stop.stop();
    until("the green namespace has ended", || {
        informer.statuses()[1].1.state == ReflectorState::Stopped
    });
    door.open();
    running.ended().unwrap();
    assert_eq!(handler.stats().delivered, 1);
}

#[test]
fn handler_added_after_the_stop_is_not_called() {
    let feed = Feed::new("late stop");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let door = Door::new();
    let passes = door.clone();
    informer
        .add_event_handler(|handler| handler.on_add(move |_, _| passes.pass()))
        .unwrap();
    let running = run(&informer);
    door.wait_for_arrivals(1);
    running.stop.stop();
    // Nothing receives from the channel, so a call would not return.
    let (handler, _channel) = ChannelHandler::new(0);
    let blocking = informer.add_handler(handler).unwrap();
    let (recording, events) = record(&informer);
    door.open();
    running.ended().unwrap();
    assert!(events.is_disconnected());
    for late in [blocking, recording] {
        assert!(late.ended().is_done());
        assert_eq!((late.stats().delivered, late.stats().waiting), (0, 0));
    }
}

#[test]
fn late_handler_is_called_while_no_response_arrives() {
    const EXPIRED: &str = r#"{"type": "ERROR", "object": {"kind": "Status", "code": 410}}"#;
    let list = |namespace: &str| {
        let items = [object_in(namespace, "a"), object_in(namespace, "b")];
        let metadata = json!({ "resourceVersion": "10" });
        let list = json!({ "kind": "List", "metadata": metadata, "items": items });
        Answer::body(list.to_string())
    };
    // What each namespace waits for after its first list. Without a response, a request blocks.
    type Answers = fn() -> Vec<Answer>;
    let phases: [(&str, usize, Answers); 3] = [
        ("a watch has no response", 2, Vec::new),
        ("a list has no response", 3, || vec![Answer::body(EXPIRED)]),
        ("a list is incomplete", 3, || {
            vec![Answer::body(EXPIRED), Answer::open(r#"{"items": ["#)]
        }),
    ];
    for (phase, requests, answers) in phases {
        for namespaces in [&["blue"] as &[_], &["blue", "green"]] {
            let scripts = namespaces.iter().map(|namespace| {
                let answers = [list(namespace)].into_iter().chain(answers());
                ScriptedListerWatcher::new(answers)
            });
            let scripts: Vec<_> = scripts.collect();
            let sources = namespaces.iter().zip(&scripts);
            let sources = sources.map(|(namespace, script)| {
                let source: Arc<dyn k8s_informer::reflector::ListerWatcher> =
                    Arc::new(script.clone());
                ((*namespace).to_owned(), source)
            });
            let options = SharedIndexInformerOptions::new()
                .one_thread(true)
                .reflector(options(&FakeClock::new()));
            let informer: Informer = SharedIndexInformer::for_namespaces(sources, options);
            let running = run_synced(&informer);
            for script in &scripts {
                script.wait_for_requests(requests, SOON).unwrap();
            }
            let count = 2 * namespaces.len();
            // The second one is added while the thread of the first one may still exist.
            for _ in 0..2 {
                let (late, events) = record(&informer);
                let added = events.take(count);
                assert!(
                    added.iter().all(|event| event.ends_with("initial")),
                    "{added:?}"
                );
                assert!(late.synced().wait_timeout(SOON), "{phase}");
            }
            // A callback of a late handler adds another one.
            let (sender, nested) = mpsc::channel();
            let own = informer.clone();
            let on_add = move |_: &Arc<DynamicObject>, _| drop(sender.send(record(&own)));
            informer
                .add_event_handler(|handler| handler.on_add(on_add))
                .unwrap();
            let (late, events) = nested.recv_timeout(SOON).unwrap();
            assert_eq!(events.take(count).len(), count, "{phase}");
            assert!(late.synced().wait_timeout(SOON), "{phase}");
            // No request was repeated.
            for script in &scripts {
                assert_eq!(script.requests().len(), requests, "{phase}");
            }
            running.end().unwrap();
        }
    }
}

#[test]
fn initial_list_of_a_late_handler_counts_as_waiting() {
    let feed = Feed::new("waiting");
    feed.list("10", &[("a", "1"), ("b", "1"), ("c", "1")]);
    let informer = informer(&feed);
    let door = Door::new();
    let passes = door.clone();
    let first = informer
        .add_event_handler(|handler| handler.on_update(move |_, _| passes.pass()))
        .unwrap();
    let running = run_synced(&informer);
    feed.event("MODIFIED", "a", "11");
    door.wait_for_arrivals(1);
    let (late, events) = record(&informer);
    let stats = late.stats();
    assert_eq!(
        (stats.received, stats.waiting, stats.most_waiting),
        (3, 3, 3)
    );
    let removed = informer.add_event_handler(|handler| handler).unwrap();
    assert_eq!(removed.stats().waiting, 3);
    informer.shut_down_event_handler(&removed, None).unwrap();
    let stats = removed.stats();
    assert_eq!((stats.received, stats.waiting, stats.delivered), (3, 0, 0));
    door.open();
    events.take(3);
    assert!(late.synced().wait_timeout(SOON));
    assert_eq!((late.stats().waiting, late.stats().most_waiting), (0, 3));
    assert_eq!(first.stats().waiting, 0);
    running.end().unwrap();
}

#[test]
fn signal_of_the_own_thread_ends_its_wait() {
    logging();
    let feed = Feed::new("own signals");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, results) = mpsc::channel();
    let own = informer.clone();
    let slot = Arc::new(Mutex::new(None));
    let registration = Arc::clone(&slot);
    let on_add = move |_: &Arc<DynamicObject>, _| {
        let handler: Option<k8s_informer::handler::HandlerRegistration> =
            registration.lock().unwrap().take();
        let handler = handler.expect("one call");
        let signals = [own.synced(), own.ended(), handler.synced(), handler.ended()];
        for signal in signals {
            signal.wait();
            let is_set = [
                signal.wait_timeout(SOON),
                signal.wait_or_stop(None, &Stop::never()).is_ok(),
                signal.is_done(),
            ];
            sender.send(is_set).unwrap();
        }
    };
    let handler = informer
        .add_event_handler(|handlers| handlers.on_add(on_add))
        .unwrap();
    *slot.lock().unwrap() = Some(handler.clone());
    let running = run_synced(&informer);
    for _ in 0..4 {
        assert_eq!(results.recv_timeout(SOON).unwrap(), [false; 3]);
    }
    assert!(handler.synced().wait_timeout(SOON));
    running.end().unwrap();
    logged(&["own signals", "waits for its own thread"]);
}

#[test]
fn late_handlers_do_not_start_a_thread_each() {
    let feed = Feed::new("many late handlers");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (door, (sender, threads)) = (Door::new(), mpsc::channel());
    let passes = door.clone();
    informer
        .add_event_handler(|handler| handler.on_update(move |_, _| passes.pass()))
        .unwrap();
    let running = run_synced(&informer);
    feed.event("MODIFIED", "a", "11");
    door.wait_for_arrivals(1);
    for _ in 0..1_000 {
        let sender = sender.clone();
        let on_add = move |_: &Arc<DynamicObject>, _| sender.send(thread::current().id()).unwrap();
        informer
            .add_event_handler(|handler| handler.on_add(on_add))
            .unwrap();
    }
    door.open();
    let threads = (0..1_000).map(|_| threads.recv_timeout(SOON).unwrap());
    let threads: HashSet<_> = threads.collect();
    assert!(threads.len() <= 3, "{threads:?}");
    running.end().unwrap();
}
