//! Namespaces that share inline handlers: they take turns.

use std::io::{self, Read};
use std::sync::Arc;

use super::listener::listener;
use super::{Recorder, Thing};
use crate::base::sync::{Mutex, any, check, check_times, join_all, thread};
use crate::base::threads::Owner;
use crate::handler::{HandlerFuncs, HandlerRegistration};
use crate::informer::delivery::Delivery;
use crate::informer::fair_lock::FairLock;
use crate::informer::handler::{KeyedNotification, Notification};
use crate::informer::shared_processor::SharedProcessor;
use crate::informer::{InformerError, SharedIndexInformer, SharedIndexInformerOptions};
use crate::object::{Object, meta_namespace_key};
use crate::reflector::{Body, ListWatch, ListerWatcher};
use crate::stop::{Stop, Stopper};
use crate::wire::ListOptions;

/// The share of the usual number of schedules, because each run is long.
const SHARE: f64 = 0.3;

/// Three threads take the lock, and a stop comes at any point. At most one has it at a time, none
/// gets it after the stop, and each thread ends, also if the lock is never given back.
#[test]
fn fair_lock_has_one_owner_until_the_stop() {
    check(|| {
        let stop = Stopper::new();
        let lock = Arc::new(FairLock::new(stop.signal()));
        let (inside, keeps) = (Arc::new(Mutex::new(0)), any(2) == 0);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (lock, inside, stop) = (Arc::clone(&lock), Arc::clone(&inside), stop.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let was_stopped = stop.is_stopped();
                        let Some(guard) = lock.lock() else {
                            assert!(stop.is_stopped());
                            return;
                        };
                        assert!(!was_stopped);
                        {
                            let mut inside = inside.lock();
                            *inside += 1;
                            assert_eq!(*inside, 1);
                        }
                        thread::yield_now();
                        *inside.lock() -= 1;
                        if keeps {
                            // A callback that ends with the stop.
                            stop.wait();
                        }
                        drop(guard);
                    }
                })
            })
            .collect();
        if keeps || any(2) == 0 {
            stop.stop();
        }
        join_all(threads);
        assert_eq!(*inside.lock(), 0);
    });
}

/// Two namespaces change the cache, which is a number here, and call a handler. Each call sees the
/// change that it is about, and nothing waits for the handler. A late handler, a removal and a stop
/// come at any point.
#[test]
fn namespaces_take_turns_at_the_cache_and_the_handlers() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new("informer".into(), Owner::new()));
        let (recorder, late) = (Recorder::new(), Recorder::new());
        let early = listener(&recorder);
        let handler = Arc::clone(&early.handler);
        processor.add_listener(early, Vec::new()).unwrap();
        processor.start(Delivery::Inline).unwrap();
        let cache = Arc::new(Mutex::new(0));
        let namespaces: Vec<_> = (0..2)
            .map(|_| {
                let (processor, cache) = (Arc::clone(&processor), Arc::clone(&cache));
                let (recorder, handler) = (recorder.clone(), Arc::clone(&handler));
                thread::spawn(move || {
                    for _ in 0..2 {
                        let Some(guard) = processor.begin_change() else {
                            return;
                        };
                        let before = recorder.read(|view| view.calls);
                        let thing = {
                            let mut cache = cache.lock();
                            *cache += 1;
                            let thing = Thing::new(&cache.to_string(), *cache);
                            let event = Notification::Added {
                                object: Arc::clone(&thing),
                                is_in_initial_list: false,
                            };
                            let key = thing.name().into();
                            processor.distribute(KeyedNotification { key, event }, None);
                            thing
                        };
                        assert!(handler.stats().waiting <= 1);
                        processor.deliver(&guard);
                        assert_eq!(*cache.lock(), thing.version(), "the cache is ahead");
                        // Not after the stop, and not after the removal.
                        let calls = recorder.read(|view| view.calls);
                        assert!(calls == before || calls == thing.version(), "{calls}");
                    }
                    // A thread delivers the initial list of a late handler, if nothing else does.
                    processor.deliver_waiting();
                })
            })
            .collect();
        let (removes, stops, adds) = (any(3) == 0, any(3) == 0, any(2) == 0);
        let disturbing = thread::spawn({
            let (processor, handler) = (Arc::clone(&processor), Arc::clone(&handler));
            let (late, cache) = (late.clone(), Arc::clone(&cache));
            move || {
                if adds {
                    let _cache = cache.lock();
                    let added = processor.add_listener(listener(&late), Vec::new());
                    assert!(added.unwrap().is_none());
                }
                removes.then(|| drop(processor.remove_listener(&handler)));
                if stops {
                    processor.stopped().stop();
                    processor.end_calls();
                }
            }
        });
        join_all(namespaces);
        disturbing.join().unwrap();
        let stats = handler.stats();
        if !removes && !stops {
            assert_eq!(
                (stats.delivered, stats.waiting, stats.most_waiting),
                (4, 0, 1)
            );
        }
        processor.stop();
        assert!(handler.ended.is_done());
        let late_calls = late.read(|view| view.calls);
        assert!(late_calls <= *cache.lock() && (adds || late_calls == 0));
        for recorder in [recorder, late] {
            assert_eq!(Arc::strong_count(&recorder.shared), 1);
        }
    });
}

/// A watch that returns some events and then blocks until the stop.
struct Watch {
    events: io::Cursor<Vec<u8>>,
    stop: Stop,
}

impl Read for Watch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.events.read(buffer)? {
            0 => self.stop.wait(),
            length => return Ok(length),
        }
        Err(io::Error::other(crate::Error::stopped()))
    }
}

/// A namespace with one object, which is changed twice in one read. `is_silent` is whether its watch
/// requests have no response.
fn namespace(name: &'static str, is_silent: bool) -> Arc<dyn ListerWatcher> {
    let object = move |version: usize| {
        format!(
            r#"{{"metadata": {{"namespace": "{name}", "name": "a", "resourceVersion": "{version}"}}}}"#
        )
    };
    let list = move |_: &ListOptions, _: &Stop| {
        let item = object(1);
        let list = format!(
            r#"{{"kind": "List", "metadata": {{"resourceVersion": "1"}}, "items": [{item}]}}"#
        );
        Ok(Body::from(list))
    };
    let watch = move |options: &ListOptions, stop: &Stop| {
        if is_silent {
            stop.wait();
            return Err(crate::Error::stopped());
        }
        // A watch that was interrupted continues from its version.
        let since = options.resource_version.as_ref().map(ToString::to_string);
        let since = since.unwrap_or_default();
        let events = [2, 3]
            .into_iter()
            .filter(|version| since < version.to_string());
        let events: String = events
            .map(|version| {
                format!(
                    "{{\"type\": \"MODIFIED\", \"object\": {}}}\n",
                    object(version)
                )
            })
            .collect();
        let events = io::Cursor::new(events.into_bytes());
        let stop = stop.clone();
        Ok(Body::new(Watch { events, stop }))
    };
    Arc::new(ListWatch::new(list, watch))
}

fn informer(is_silent: bool) -> SharedIndexInformer<Thing> {
    let options = SharedIndexInformerOptions::new().one_thread(true);
    let sources = ["x", "y"].map(|name| (name.to_owned(), namespace(name, is_silent)));
    SharedIndexInformer::for_namespaces(sources, options)
}

/// Adds a handler that keeps a view by the whole key, and checks that the cache is not ahead of its
/// calls. The initial list of a late handler may be behind.
fn add(
    informer: &SharedIndexInformer<Thing>,
    recorder: &Recorder,
) -> Result<HandlerRegistration, InformerError> {
    let (own, recorder) = (informer.clone(), recorder.clone());
    informer.add_handler(
        HandlerFuncs::new().on_event(move |event: &Notification<Thing>| {
            let (new, is_in_initial_list) = match event {
                Notification::Added {
                    object,
                    is_in_initial_list,
                } => (object, *is_in_initial_list),
                Notification::Modified { new, .. } => (new, false),
                Notification::Deleted { .. } => panic!("a deletion"),
            };
            let cached = own.lister().get(new.namespace(), new.name());
            let cached = cached.expect("a cached object").version();
            assert!(
                is_in_initial_list || cached == new.version(),
                "the cache is ahead"
            );
            recorder.note(|view| {
                view.calls += 1;
                let key = meta_namespace_key(&**new).to_string();
                view.objects.insert(key, new.version());
            });
        }),
    )
}

/// Two namespaces on one thread each, an early and a late handler. All objects arrive, also if no
/// request has a response.
#[test]
fn i12_late_handler_on_one_thread_gets_all_objects() {
    check_times(SHARE, || {
        let is_silent = any(2) == 0;
        let (informer, stop, early, late) = (
            informer(is_silent),
            Stopper::new(),
            Recorder::new(),
            Recorder::new(),
        );
        let first = add(&informer, &early).unwrap();
        let adding = thread::spawn({
            let (informer, late) = (informer.clone(), late.clone());
            move || add(&informer, &late)
        });
        let running = thread::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            move || informer.run(&stop)
        });
        let second = adding.join().unwrap().unwrap();
        let last = if is_silent { 1 } else { 3 };
        for (recorder, registration) in [(&early, &first), (&late, &second)] {
            registration.synced().wait();
            recorder.wait_for(|view| view.objects.values().eq(&[last, last]));
        }
        stop.stop();
        running.join().unwrap().unwrap();
        for registration in [first, second] {
            assert!(registration.ended().is_done());
            assert_eq!(registration.stats().waiting, 0);
        }
    });
}

/// A handler that blocks until its removal keeps the other namespace waiting. Handlers are added and
/// removed, and the informer is stopped, at any point. The run ends, and no handler is called
/// afterwards.
#[test]
fn i8_i14_stop_on_one_thread_ends_run_and_handlers() {
    /// Blocks in each call until the end of the handler.
    struct Blocking(Option<Stop>);

    impl crate::handler::ResourceEventHandler<Thing> for Blocking {
        fn begin(&mut self, removed: &Stop) {
            self.0 = Some(removed.clone());
        }

        fn on_add(&mut self, _: &Arc<Thing>, _: bool) {
            self.0.as_ref().expect("begun").wait();
        }

        fn on_update(&mut self, _: &Arc<Thing>, _: &Arc<Thing>) {}

        fn on_delete(&mut self, _: &crate::object::Deleted<Thing>) {}
    }

    check_times(SHARE, || {
        let (informer, stop) = (informer(any(2) == 0), Stopper::new());
        let early = Recorder::new();
        add(&informer, &early).unwrap();
        let running = thread::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            move || informer.run(&stop)
        });
        let adding = thread::spawn({
            let informer = informer.clone();
            move || {
                let blocking = informer.add_handler(Blocking(None));
                if let Ok(blocking) = &blocking
                    && any(2) == 0
                {
                    informer.remove_event_handler(blocking);
                }
                blocking
            }
        });
        stop.stop();
        running.join().unwrap().unwrap();
        let calls = early.read(|view| view.calls);
        if let Ok(blocking) = adding.join().unwrap() {
            assert!(blocking.ended().is_done());
        }
        assert_eq!(early.read(|view| view.calls), calls);
        assert_eq!(
            Arc::strong_count(&early.shared),
            1,
            "the handler is dropped"
        );
    });
}
