//! Handlers that read the cache: the cache is never behind their notifications.

use k8s_informer::Stop;

use super::{informer, one_thread};
use crate::informer::support::{Door, Feed, SOON, run_synced, version};

/// A handler gets every state that a reader may have seen in the cache, even a short-lived one.
#[test]
fn handler_gets_even_short_lived_states_of_the_cache() {
    if one_thread() {
        return;
    }
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
        .wait_for_resource_version(&version("4"), SOON, &Stop::never())
        .unwrap();
    door.open();
    let received: Vec<_> = (0..4)
        .map(|_| receiver.recv_timeout(SOON).unwrap())
        .collect();
    assert_eq!(received, vec![("a".to_owned(), false); 4]);
}
