//! A callback may do anything with the informer that calls it.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use k8s_informer::error::WaitCause;
use k8s_informer::handler::HandlerRegistration;
use k8s_informer::time::Clock;
use k8s_informer::{Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::FakeClock;
use parking_lot::Mutex;

use super::{informer, informer_options, informer_with, one_thread};
use crate::informer::support::{
    Door, Feed, SOON, logged, logging, options, record, recorder, run, run_synced, until, version,
};

/// The registration of a handler, for the handler's own callback.
type Slot = Arc<Mutex<Option<HandlerRegistration>>>;

#[test]
fn sp5_self_removal_during_stop_does_not_hang() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("sp5");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (door, slot, (sender, results)) = (Door::new(), Slot::default(), mpsc::channel());
    let (at, inner, own) = (door.clone(), informer.clone(), Arc::clone(&slot));
    let handler = informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| {
                at.pass();
                inner.remove_event_handler(own.lock().as_ref().unwrap());
                sender.send(inner.is_stopped()).unwrap();
            })
        })
        .unwrap();
    *slot.lock() = Some(handler);
    let running = run_synced(&informer);
    door.wait_for_arrivals(1);
    running.stop.stop();
    // The informer has stopped, but `run` waits for the callback.
    until("stopped", || informer.is_stopped());
    door.open();
    assert_eq!(results.recv_timeout(SOON), Ok(true));
    running.ended().unwrap();
}

#[test]
fn callback_may_remove_its_own_handler() {
    let feed = Feed::new("removes itself");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (slot, (mut recorder, events)) = (Slot::default(), recorder());
    let (inner, own) = (informer.clone(), Arc::clone(&slot));
    let handler = informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, initial| {
                k8s_informer::handler::ResourceEventHandler::on_add(&mut recorder, object, initial);
                inner.remove_event_handler(own.lock().as_ref().unwrap());
            })
        })
        .unwrap();
    *slot.lock() = Some(handler);
    let (_other, other_events) = record(&informer);
    let _running = run_synced(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    assert!(events.is_disconnected());
    feed.event("ADDED", "b", "11");
    assert_eq!(other_events.take(2), ["add a@1 initial", "add b@11"]);
}

#[test]
fn callback_may_add_handlers() {
    let feed = Feed::new("adds others");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (added, additions) = mpsc::channel();
    let inner = informer.clone();
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| added.send(record(&inner)).unwrap())
        })
        .unwrap();
    let _running = run(&informer);
    let (handler, events) = additions.recv_timeout(SOON).unwrap();
    assert_eq!(events.next(), "add a@1 initial");
    assert!(handler.synced().wait_timeout(SOON));
    feed.event("ADDED", "b", "11");
    assert_eq!(events.next(), "add b@11");
}

#[test]
fn callback_reads_cache_that_includes_its_event() {
    let feed = Feed::new("reads");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    informer
        .add_index("version", |object| {
            vec![object.resource_version().to_owned()]
        })
        .unwrap();
    let (seen, versions) = mpsc::channel();
    let (added, updated, deleted) = (seen.clone(), seen.clone(), seen);
    let (on_add, on_update, on_delete) = (informer.lister(), informer.lister(), informer.clone());
    informer
        .add_event_handler(|handler| {
            let cached = |lister: &k8s_informer::Lister<_>, name: &str| {
                lister
                    .get("", name)
                    .map(|object: Arc<k8s_informer::DynamicObject>| {
                        let version = object.resource_version().to_owned();
                        (lister.by_index("version", &version).unwrap().len(), version)
                    })
            };
            handler
                .on_add(move |object, _| added.send(cached(&on_add, object.name())).unwrap())
                .on_update(move |_, new| updated.send(cached(&on_update, new.name())).unwrap())
                .on_delete(move |gone| {
                    deleted
                        .send(cached(&on_delete.lister(), gone.name()))
                        .unwrap();
                })
        })
        .unwrap();
    let _running = run(&informer);
    assert_eq!(
        versions.recv_timeout(SOON).unwrap(),
        Some((1, "1".to_owned()))
    );
    feed.event("MODIFIED", "a", "11");
    assert_eq!(
        versions.recv_timeout(SOON).unwrap(),
        Some((1, "11".to_owned()))
    );
    feed.event("DELETED", "a", "12");
    assert_eq!(versions.recv_timeout(SOON).unwrap(), None);
}

#[test]
fn callback_may_stop_the_informer() {
    let feed = Feed::new("stops");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (slot, ready) = (Arc::new(Mutex::new(None::<Stopper>)), Door::new());
    let (stop, at) = (Arc::clone(&slot), ready.clone());
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| {
                at.pass();
                stop.lock().as_ref().unwrap().stop();
            })
        })
        .unwrap();
    let running = run(&informer);
    *slot.lock() = Some(running.stop.clone());
    ready.open();
    running.ended().unwrap();
}

#[test]
fn callback_may_query_informer_and_add_index() {
    let feed = Feed::new("queries");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, answers) = mpsc::channel();
    let inner = informer.clone();
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| {
                inner
                    .add_index("late", |object| vec![object.name().to_owned()])
                    .unwrap();
                let again = inner.run(&Stop::never()).is_err();
                let state = (
                    inner.is_stopped(),
                    inner.last_sync_resource_version(),
                    inner.status().listed,
                );
                sender
                    .send((again, state, format!("{inner:?}").contains("queries")))
                    .unwrap();
            })
        })
        .unwrap();
    let _running = run(&informer);
    let (again, (stopped, last_version, _), named) = answers.recv_timeout(SOON).unwrap();
    assert!(again && named && !stopped);
    // The reflector's version may change just after the callback.
    assert!(last_version.is_none() || last_version == Some(version("10")));
}

#[test]
fn sync_callback_may_add_and_remove_handlers() {
    // With an empty list, the sync happens on another thread than with objects.
    for objects in [&[][..], &[("a", "1"), ("b", "1")]] {
        let feed = Feed::new("waits");
        let informer = informer(&feed);
        let (sender, results) = mpsc::channel();
        let (first, _events) = record(&informer);
        let (second, _other_events) = record(&informer);
        let subscriptions = [first.synced(), second.synced(), informer.synced()].map(|synced| {
            let (inner, first, sender) = (informer.clone(), first.clone(), sender.clone());
            synced.on_done(move || {
                inner.remove_event_handler(&first);
                let late = record(&inner);
                sender.send((inner.is_stopped(), late)).unwrap();
            })
        });
        let running = run(&informer);
        feed.list("10", objects);
        let handlers: Vec<_> = (0..2)
            .map(|_| results.recv_timeout(SOON).unwrap())
            .collect();
        for (stopped, (late, _events)) in handlers {
            assert!(!stopped);
            assert!(late.synced().wait_timeout(SOON));
        }
        running.end().unwrap();
        drop(subscriptions);
    }
}

#[test]
fn panicking_sync_callback_ends_no_thread() {
    logging();
    let feed = Feed::new("waits and panics");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (handler, events) = record(&informer);
    let _one = handler.synced().on_done(|| panic!("handler's sync"));
    let _two = informer.synced().on_done(|| panic!("informer's sync"));
    let running = run(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    feed.event("ADDED", "b", "11");
    assert_eq!(events.next(), "add b@11", "both threads continue");
    logged(&["ERROR", "handler's sync"]);
    logged(&["ERROR", "informer's sync"]);
    running.end().unwrap();
}

#[test]
fn panicking_stop_callback_does_not_block_others() {
    logging();
    let feed = Feed::new("stop and panic");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (stop, (ended, ends)) = (Stopper::new(), mpsc::channel());
    // This callback is registered before the informer's own stop callback.
    let _bad = stop.on_stop(|| panic!("while stopping"));
    std::thread::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        move || ended.send(informer.run(&stop)).unwrap()
    });
    assert!(informer.synced().wait_timeout(SOON));
    stop.stop();
    ends.recv_timeout(SOON).unwrap().unwrap();
    logged(&["ERROR", "while stopping"]);
}

/// An informer without namespaces has synced when it starts, so the callback runs during the start.
#[test]
fn sync_callback_at_start_may_add_handler() {
    let options = informer_options(options(&FakeClock::new()));
    let informer = SharedIndexInformer::for_namespaces([], options);
    let (sender, results) = mpsc::channel();
    let inner = informer.clone();
    let _synced = informer
        .synced()
        .on_done(move || sender.send(record(&inner)).unwrap());
    let running = run(&informer);
    let (late, _events) = results.recv_timeout(SOON).expect("the callback deadlocked");
    assert!(late.synced().wait_timeout(SOON));
    running.end().unwrap();
}

/// A clock that panics on handler threads.
struct PanickingClock(FakeClock);

impl Clock for PanickingClock {
    fn now(&self) -> Instant {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        assert!(
            !name.ends_with(" run"),
            "the clock panics on handler threads"
        );
        self.0.now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.0.wait(duration, stop)
    }
}

#[test]
fn sp14_panicking_clock_loses_no_events() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("clock");
    let names: Vec<_> = (0..1100).map(|n| n.to_string()).collect();
    feed.list(
        "10",
        &names
            .iter()
            .map(|name| (name.as_str(), "1"))
            .collect::<Vec<_>>(),
    );
    let mut options = options(&FakeClock::new());
    options.clock = Arc::new(PanickingClock(FakeClock::new()));
    let informer = informer_with(&feed, options);
    let (door, (calls, called)) = (Door::new(), mpsc::channel());
    let at = door.clone();
    let handler = informer.add_event_handler(|handler| {
        handler.on_add(move |_, _| {
            at.pass();
            calls.send(()).unwrap();
        })
    });
    let handler = handler.unwrap();
    let running = run_synced(&informer);
    until("all events queued", || handler.stats().waiting >= 1099);
    door.open();
    assert!(handler.synced().wait_timeout(SOON), "{:?}", handler.stats());
    assert_eq!(called.try_iter().count(), 1100);
    running.end().unwrap();
}

#[test]
fn wait_for_an_end_in_a_callback_returns() {
    let feed = Feed::new("ends");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (slot, (sender, returned)) = (Slot::default(), mpsc::channel());
    let (inner, own) = (informer.clone(), Arc::clone(&slot));
    let handler = informer
        .add_event_handler(|handler| {
            handler.on_add(move |_, _| {
                let handler = own.lock().clone().unwrap();
                for ended in [inner.ended(), handler.ended()] {
                    ended.wait();
                    sender
                        .send(ended.wait_or_stop(None, &Stop::never()))
                        .unwrap();
                }
            })
        })
        .unwrap();
    *slot.lock() = Some(handler.clone());
    let running = run_synced(&informer);
    for _ in 0..2 {
        let error = returned.recv_timeout(SOON).unwrap().unwrap_err();
        assert_eq!(error.cause(), &WaitCause::OwnThread);
    }
    running.end().unwrap();
    assert!(informer.ended().is_done() && handler.ended().is_done());
    slot.lock().take();
}
