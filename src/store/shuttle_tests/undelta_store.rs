//! Interleaving tests of pushes.

use std::sync::{Arc, OnceLock};

use super::{Item, accessor, item};
use crate::object::Deleted;
use crate::store::{ReflectorStore, Store, UndeltaStore};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, any, check, join_all, thread};

/// The pushed lists, each sorted.
#[derive(Default)]
struct Pushed {
    lists: Mutex<Vec<Vec<Arc<Item>>>>,
    pushing: AtomicBool,
}

impl Pushed {
    fn push(&self, mut list: Vec<Arc<Item>>) {
        assert!(
            !self.pushing.swap(true, Ordering::SeqCst),
            "two pushes at the same time"
        );
        list.sort_unstable();
        self.lists.lock().push(list);
        self.pushing.store(false, Ordering::SeqCst);
    }

    /// Checks that no push is older than the one before, and that the last one equals the content
    /// of the store.
    fn assert_ends_with(&self, store: &UndeltaStore<Item>) {
        let lists = self.lists.lock();
        let mut content = store.list();
        content.sort_unstable();
        assert_eq!(lists.last(), Some(&content));
        for pair in lists.windows(2) {
            let older = |new: &Arc<Item>| {
                pair[0]
                    .iter()
                    .any(|old| old.key == new.key && old.version > new.version)
            };
            assert!(!pair[1].iter().any(older), "{pair:?}");
        }
    }
}

fn store() -> (Arc<UndeltaStore<Item>>, Arc<Pushed>) {
    let pushed = Arc::new(Pushed::default());
    let store = UndeltaStore::new(accessor(), {
        let pushed = Arc::clone(&pushed);
        move |list| pushed.push(list)
    });
    (Arc::new(store), pushed)
}

#[test]
fn s10_last_push_has_the_final_state() {
    check(|| {
        let (store, pushed) = store();
        let writers = [0, 1, 2].map(|key| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.add(item(key, 1)).unwrap();
                match any(3) {
                    0 => store.delete(Deleted::Final(item(key, 1))).unwrap(),
                    1 => store.update(item(key, 2)).unwrap(),
                    _ => store.replace(vec![item(key, 2)], "1").unwrap(),
                }
            })
        });
        join_all(writers);
        pushed.assert_ends_with(&store);
        // The store must not still be marked as pushing: the next write has to push.
        let before = pushed.lists.lock().len();
        store.add(item(0, 3)).unwrap();
        assert_eq!(pushed.lists.lock().len(), before + 1);
        pushed.assert_ends_with(&store);
    });
}

/// A write while no other thread pushes is pushed before it returns.
#[test]
fn s10_uncontended_write_is_pushed_before_return() {
    check(|| {
        let (store, pushed) = store();
        let reader = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                for _ in 0..2 {
                    assert!(store.list().len() <= 2);
                }
            }
        });
        for count in 1..=2 {
            store.add(item(count, 1)).unwrap();
            assert_eq!(pushed.lists.lock().len(), count);
        }
        reader.join().unwrap();
        pushed.assert_ends_with(&store);
    });
}

#[test]
fn s10_push_callback_can_write() {
    check(|| {
        let pushed = Arc::new(Pushed::default());
        let this: Arc<OnceLock<Arc<UndeltaStore<Item>>>> = Arc::default();
        let store = Arc::new(UndeltaStore::new(accessor(), {
            let (pushed, this) = (Arc::clone(&pushed), Arc::clone(&this));
            move |list: Vec<Arc<Item>>| {
                let written = list.iter().any(|item| item.key == 9);
                pushed.push(list);
                if !written {
                    this.get().unwrap().add(item(9, 1)).unwrap();
                }
            }
        }));
        this.set(Arc::clone(&store)).unwrap();
        let writers = [0, 1].map(|key| {
            let store = Arc::clone(&store);
            thread::spawn(move || store.add(item(key, 1)).unwrap())
        });
        join_all(writers);
        pushed.assert_ends_with(&store);
        assert_eq!(store.list().len(), 3);
    });
}
