//! `UndeltaStore` through its public API. Ports client-go's undelta_store_test, and tests what this
//! crate adds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use k8s_informer::Deleted;
use k8s_informer::object::Accessor;
use k8s_informer::store::{Change, KnownObjects, ReflectorStore, Store, StoreError, UndeltaStore};

use super::things::*;
use crate::log_capture;

const TIMEOUT: Duration = Duration::from_secs(60);

fn sorted(mut things: Vec<Arc<Thing>>) -> Vec<Thing> {
    things.sort();
    things.iter().map(|thing| **thing).collect()
}

fn recording() -> (UndeltaStore<Thing>, Receiver<Vec<Thing>>) {
    let (sender, pushed) = channel();
    (
        UndeltaStore::new(accessor(), move |things| drop(sender.send(sorted(things)))),
        pushed,
    )
}

#[test]
fn s10_each_write_pushes_the_whole_state_once() {
    let (store, pushed) = recording();
    let assert_pushed =
        |expected: &[Thing]| assert_eq!(pushed.try_iter().collect::<Vec<_>>(), [expected]);
    store.add(thing("a", 1)).unwrap();
    assert_pushed(&[("a", 1)]);
    store.add(thing("b", 2)).unwrap();
    assert_pushed(&[("a", 1), ("b", 2)]);
    store.add(thing("a", 1)).unwrap();
    assert_pushed(&[("a", 1), ("b", 2)]);
    store.update(thing("a", 3)).unwrap();
    assert_pushed(&[("a", 3), ("b", 2)]);
    store.delete(Deleted::Final(thing("b", 0))).unwrap();
    assert_pushed(&[("a", 3)]);
    store
        .delete(Deleted::FinalStateUnknown {
            key: "never there".into(),
            last_known: None,
        })
        .unwrap();
    assert_pushed(&[("a", 3)]);
    store
        .replace(vec![thing("c", 1), thing("d", 1), thing("c", 2)], "7")
        .unwrap();
    assert_pushed(&[("c", 2), ("d", 1)]);
    store.replace(Vec::new(), "8").unwrap();
    assert_pushed(&[]);
}

#[test]
fn s10_reads_bookmarks_and_resyncs_push_nothing() {
    let (store, pushed) = recording();
    store.replace(vec![thing("a", 1)], "7").unwrap();
    assert_eq!(pushed.try_iter().count(), 1);
    store.bookmark("8").unwrap();
    store.resync().unwrap();
    assert_eq!(store.last_store_sync_resource_version(), "8");
    assert_eq!(store.get(&thing("a", 0)).unwrap(), Some(thing("a", 1)));
    assert_eq!(store.get_by_key("a"), Some(thing("a", 1)));
    assert_eq!(
        (store.list(), store.list_keys()),
        (vec![thing("a", 1)], vec!["a".into()])
    );
    assert_eq!(pushed.try_iter().count(), 0);
}

#[test]
fn s10_rejected_writes_push_nothing() {
    let (store, pushed) = recording();
    store.replace(vec![thing("a", 1)], "7").unwrap();
    pushed.try_iter().for_each(drop);
    for key in ["unkeyable", "panic"] {
        let key_error =
            |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Key(_))));
        key_error(store.add(thing(key, 1)));
        key_error(store.update(thing(key, 1)));
        key_error(store.delete(Deleted::Final(thing(key, 1))));
        key_error(store.replace(vec![thing("b", 1), thing(key, 1)], "8"));
        key_error(store.get(&thing(key, 1)).map(drop));
    }
    assert_eq!(pushed.try_iter().count(), 0);
    assert_eq!(
        (
            store.list(),
            store.last_store_sync_resource_version().as_str()
        ),
        (vec![thing("a", 1)], "7")
    );
    let huge: &'static str = "k".repeat(1 << 20).leak();
    store.add(thing(huge, 1)).unwrap();
    store.add(thing("", 1)).unwrap();
    assert_eq!(
        pushed.try_iter().last().unwrap(),
        [("", 1), ("a", 1), (huge, 1)]
    );
}

#[test]
fn undelta_store_implements_store_without_transactions() {
    let (store, pushed) = recording();
    let store: Arc<dyn Store<Thing>> = Arc::new(store);
    store.add(thing("a", 1)).unwrap();
    store.update(thing("a", 2)).unwrap();
    store.delete(Deleted::Final(thing("a", 2))).unwrap();
    store.replace(vec![thing("b", 1)], "5").unwrap();
    assert_eq!(pushed.try_iter().count(), 4);
    store.bookmark("6").unwrap();
    assert_eq!(
        store
            .transaction(vec![Change::Add(thing("c", 1))])
            .unwrap_err()
            .total,
        1
    );
    assert_eq!(pushed.try_iter().count(), 0);
    assert_eq!(
        (store.list(), store.list_keys()),
        (vec![thing("b", 1)], vec!["b".into()])
    );
    assert_eq!(
        store.get(&thing("b", 0)).unwrap(),
        store.lookup("b").unwrap()
    );
    assert_eq!(store.last_store_sync_resource_version(), "6");
}

#[test]
fn s10_push_function_panic_is_logged_and_write_stands() {
    log_capture::start();
    let (sender, pushed) = channel();
    let own_store: Arc<OnceLock<Weak<UndeltaStore<Thing>>>> = Arc::default();
    let store = Arc::new(UndeltaStore::new(accessor(), {
        let own_store = Arc::clone(&own_store);
        move |things: Vec<Arc<Thing>>| match things.len() {
            1 => panic!("one is too few"),
            2 => {
                own_store
                    .get()
                    .and_then(Weak::upgrade)
                    .unwrap()
                    .add(thing("c", 1))
                    .unwrap();
                panic!("two are too few: {}", log_capture::LOGGER_PANICS);
            }
            _ => sender.send(sorted(things)).unwrap(),
        }
    }));
    own_store.set(Arc::downgrade(&store)).unwrap();
    store.add(thing("a", 1)).unwrap();
    let line = "ERROR the push function of an UndeltaStore panicked: one is too few";
    assert_eq!(
        log_capture::lines_with(&["UndeltaStore", "too few"]),
        [line]
    );
    assert_eq!(store.list(), [thing("a", 1)]);
    store.add(thing("b", 1)).unwrap();
    assert_eq!(
        pushed.try_iter().collect::<Vec<_>>(),
        [[("a", 1), ("b", 1), ("c", 1)]]
    );
}

/// With concurrent writers, the last push has the final contents. In client-go, a push with older
/// contents may come last.
#[test]
fn s10_last_push_equals_the_store_contents() {
    let pushing = AtomicBool::new(false);
    let pushes = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(Mutex::new(Vec::new()));
    let store = UndeltaStore::new(accessor(), {
        let (pushes, last) = (Arc::clone(&pushes), Arc::clone(&last));
        move |things| {
            assert!(
                !pushing.swap(true, Ordering::SeqCst),
                "two pushes run at once"
            );
            pushes.fetch_add(1, Ordering::Relaxed);
            *last.lock().unwrap() = sorted(things);
            thread::yield_now();
            pushing.store(false, Ordering::SeqCst);
        }
    });
    for round in 1..50 {
        thread::scope(|scope| {
            for key in ["a", "b", "c", "d"] {
                let store = &store;
                scope.spawn(move || {
                    for value in 0..20 {
                        store.add(thing(key, round * 100 + value)).unwrap();
                    }
                });
            }
        });
        let value = round * 100 + 19;
        let expected = [("a", value), ("b", value), ("c", value), ("d", value)];
        assert_eq!(*last.lock().unwrap(), expected);
        assert_eq!(sorted(store.list()), expected);
    }
    assert!(pushes.load(Ordering::Relaxed) <= 49 * 80);
}

#[test]
fn s10_writes_during_a_push_share_the_next_push() {
    let (sender, pushed) = channel();
    let (release, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let store = Arc::new(UndeltaStore::new(accessor(), move |things| {
        sender.send(sorted(things)).unwrap();
        gate.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
    }));
    let first = thread::spawn({
        let store = Arc::clone(&store);
        move || store.add(thing("a", 1)).unwrap()
    });
    assert_eq!(pushed.recv_timeout(TIMEOUT).unwrap(), [("a", 1)]);
    // These writes return while the push is in progress, and reads continue.
    store.add(thing("b", 1)).unwrap();
    store.add(thing("c", 1)).unwrap();
    assert_eq!(store.list().len(), 3);
    assert_eq!(pushed.try_iter().count(), 0);
    release.send(()).unwrap();
    assert_eq!(
        pushed.recv_timeout(TIMEOUT).unwrap(),
        [("a", 1), ("b", 1), ("c", 1)]
    );
    release.send(()).unwrap();
    first.join().unwrap();
    assert_eq!(pushed.try_iter().count(), 0, "one push covers both writes");
}

/// The push function and destructors use the store. They would hang if a lock were held.
#[test]
fn s10_user_code_runs_without_the_lock_and_may_write() {
    struct Reentrant(u32, Arc<OnceLock<Arc<UndeltaStore<Self>>>>);
    impl Reentrant {
        fn look(&self) {
            if let Some(store) = self.1.get() {
                store.bookmark("looked").unwrap();
                store.list_keys();
            }
        }
    }
    impl Drop for Reentrant {
        fn drop(&mut self) {
            self.look();
        }
    }
    let (done, finished) = channel();
    thread::spawn(move || {
        let cell = Arc::new(OnceLock::<Arc<UndeltaStore<Reentrant>>>::new());
        let accessor = Accessor::new(|reentrant: &Reentrant| {
            reentrant.look();
            Ok(reentrant.0.to_string().into())
        });
        let (sender, pushed) = channel();
        let push = {
            let cell = Arc::clone(&cell);
            move |objects: Vec<Arc<Reentrant>>| {
                // Adds objects until there are three.
                let len = objects.len() as u32;
                if (1..3).contains(&len) {
                    cell.get()
                        .unwrap()
                        .add(Arc::new(Reentrant(len + 1, Arc::clone(&cell))))
                        .unwrap();
                }
                sender.send(len).unwrap();
            }
        };
        let store = Arc::new(UndeltaStore::new(accessor, push));
        assert!(cell.set(Arc::clone(&store)).is_ok());
        let reentrant = |id| Arc::new(Reentrant(id, Arc::clone(&cell)));
        store.add(reentrant(1)).unwrap();
        assert_eq!(pushed.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
        store.update(reentrant(1)).unwrap();
        store.replace(Vec::new(), "r").unwrap();
        store.delete(Deleted::Final(reentrant(1))).unwrap();
        assert_eq!(pushed.try_iter().last(), Some(0));
        done.send(()).unwrap();
    });
    finished
        .recv_timeout(TIMEOUT)
        .expect("a lock is held, or an assertion failed");
}
