//! Handlers that read the cache: the cache is never behind their notifications.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::time::{Clock, RealClock};
use k8s_informer::{DynamicObject, Stop};

use super::informer;
use crate::informer::support::{Door, Feed, SOON, object, run_synced, until};

/// A handler gets every state that a reader may have seen in the cache, even a short-lived one.
#[test]
fn handler_gets_even_short_lived_states_of_the_cache() {
    let feed = Feed::new("things");
    let informer = informer(&feed);
    let (door, (sender, receiver)) = (Door::new(), std::sync::mpsc::channel());
    informer
        .add_event_handler({
            let (door, lister) = (door.clone(), informer.lister());
            move |handler| {
                handler.on_event(move |event| {
                    door.pass();
                    let seen = lister.get("", event.name()).is_some();
                    sender.send((event.key().to_string(), seen)).unwrap();
                })
            }
        })
        .unwrap();
    feed.list("1", &[("a", "1")]);
    let _running = run_synced(&informer);
    door.wait_for_arrivals(1);
    feed.event("DELETED", "a", "2");
    feed.event("ADDED", "a", "3");
    feed.event("DELETED", "a", "4");
    informer
        .wait_for_resource_version("4", SOON, &Stop::new())
        .unwrap();
    door.open();
    let received: Vec<_> = (0..4)
        .map(|_| receiver.recv_timeout(SOON).unwrap())
        .collect();
    assert_eq!(received, vec![("a".to_owned(), false); 4]);
}

/// A clock that blocks at the door, but only on the handler thread of a mutation cache.
struct DoorClock(Door);

impl Clock for DoorClock {
    fn now(&self) -> Instant {
        if thread::current()
            .name()
            .is_some_and(|name| name.starts_with("mutation cache"))
        {
            self.0.pass();
        }
        RealClock.now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        RealClock.wait(duration, stop)
    }
}

#[test]
fn m4_short_lived_object_leaves_mutation_cache() {
    let feed = Feed::new("things");
    let informer = informer(&feed);
    let door = Door::new();
    let clock = Arc::new(DoorClock(door.clone()));
    let cache = informer
        .mutation_cache(|cache| cache.include_adds(true).clock(clock))
        .unwrap();
    feed.list("1", &[("busy", "1")]);
    let _running = run_synced(&informer);
    door.wait_for_arrivals(1);

    let created: DynamicObject = serde_json::from_value(object("a", "2")).unwrap();
    cache.mutation(Arc::new(created)).unwrap();
    feed.event("ADDED", "a", "2");
    feed.event("DELETED", "a", "3");
    informer
        .wait_for_resource_version("3", SOON, &Stop::new())
        .unwrap();
    assert!(
        cache.get_by_key("a").unwrap().is_some(),
        "the deletion is not delivered yet"
    );
    door.open();
    until("deletion delivered", || {
        cache.get_by_key("a").unwrap().is_none()
    });
}
