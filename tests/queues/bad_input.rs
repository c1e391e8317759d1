//! Misuse of a queue, with the same result for every type of queue.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use k8s_informer::object::{Accessor, Key, KeyError};
use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, PopError, Queue, RealFifo};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore, StoreError, Transform};
use k8s_informer::{Deleted, Indexer};

use super::things::{version, with_timeout};

/// An object that is its own key, and runs a closure when dropped.
struct Word(String, Option<Arc<dyn Fn() + Send + Sync>>);

impl Drop for Word {
    fn drop(&mut self) {
        if let Some(on_drop) = &self.1 {
            on_drop();
        }
    }
}

fn word(key: &str) -> Arc<Word> {
    Arc::new(Word(key.to_owned(), None))
}

fn accessor() -> Accessor<Word> {
    Accessor::new(|word: &Word| match word.0.as_str() {
        "unkeyable" => Err(KeyError::new("no key")),
        "panic" => panic!("key function"),
        key => Ok(key.into()),
    })
}

/// Queues of each type. Some have known objects.
fn queues() -> Vec<(&'static str, Arc<dyn Queue<Word>>)> {
    let store = || Arc::new(Indexer::new(accessor(), Indexers::new()));
    vec![
        ("DeltaFifo", Arc::new(DeltaFifo::new(accessor()))),
        (
            "DeltaFifo with known objects",
            Arc::new(DeltaFifo::with_options(
                accessor(),
                DeltaFifoOptions::new().known_objects(store()),
            )),
        ),
        ("RealFifo", Arc::new(RealFifo::new(accessor()))),
    ]
}

/// Returns the queued objects without waiting for more.
fn drain(queue: &dyn Queue<Word>) -> Vec<Arc<Word>> {
    queue.close();
    let mut objects = Vec::new();
    while let Ok(popped) = queue.pop(&mut |_, _| Ok(())) {
        for delta in popped.iter() {
            match delta {
                Delta::ReplacedAll(list) => objects.extend(list.objects().cloned()),
                delta => objects.extend(delta.object().cloned()),
            }
        }
    }
    objects
}

#[test]
fn empty_and_huge_keys_are_accepted() {
    let huge = "k".repeat(1 << 20);
    for (name, queue) in queues() {
        queue.add(word("")).unwrap();
        queue
            .replace(vec![word(""), word(&huge)], Some(version("1")))
            .unwrap();
        queue
            .delete(Deleted::FinalStateUnknown {
                key: "".into(),
                last_known: None,
            })
            .unwrap();
        let objects = drain(&*queue);
        assert!(objects.iter().any(|object| object.0.is_empty()), "{name}");
        assert!(
            objects.iter().any(|object| object.0.len() == 1 << 20),
            "{name}"
        );
    }
}

#[test]
fn p6_duplicate_key_in_list_is_delivered_twice_in_order() {
    for (name, queue) in queues() {
        let twice = vec![word("a"), word("a")];
        queue.replace(twice.clone(), Some(version("1"))).unwrap();
        let objects = drain(&*queue);
        assert_eq!(objects.len(), 2, "{name}");
        assert!(
            objects
                .iter()
                .zip(&twice)
                .all(|(got, given)| Arc::ptr_eq(got, given)),
            "{name}"
        );
        assert!(queue.has_synced(), "{name}");
    }
}

#[test]
fn keyless_object_is_rejected_and_the_next_accepted() {
    for (name, queue) in queues() {
        for bad in ["unkeyable", "panic"] {
            for result in [queue.add(word(bad)), queue.update(word(bad))] {
                assert!(matches!(result, Err(StoreError::Key(_))), "{name}");
            }
            let result = queue.delete(Deleted::Final(word(bad)));
            assert!(matches!(result, Err(StoreError::Key(_))), "{name}");
        }
        queue.add(word("a")).unwrap();
        assert_eq!(drain(&*queue).len(), 1, "{name}");
    }
}

#[test]
fn closed_queue_still_accepts_writes() {
    for (name, queue) in queues() {
        queue.close();
        queue.close();
        assert!(queue.is_closed(), "{name}");
        queue.replace(vec![word("a")], Some(version("1"))).unwrap();
        queue.add(word("b")).unwrap();
        queue.bookmark(Some(version("2"))).unwrap();
        queue.resync().unwrap();
        assert_eq!(drain(&*queue).len(), 2, "{name}");
    }
}

/// A destructor is user code: it may call the queue that drops the object.
#[test]
fn object_destructors_may_use_the_queue() {
    with_timeout(|| {
        for (name, queue) in queues() {
            let dropped = Arc::new(Mutex::new(0));
            let weak: Weak<dyn Queue<Word>> = Arc::downgrade(&queue);
            let on_drop: Arc<dyn Fn() + Send + Sync> = {
                let dropped = Arc::clone(&dropped);
                Arc::new(move || {
                    let Some(queue) = weak.upgrade() else { return };
                    *dropped.lock().unwrap() += 1;
                    let _ = (
                        queue.is_closed(),
                        queue.has_synced(),
                        queue.bookmark(Some(version("1"))),
                    );
                })
            };
            let loaded = |key: &str| Arc::new(Word(key.to_owned(), Some(Arc::clone(&on_drop))));
            queue.add(loaded("unkeyable")).unwrap_err();
            queue.add(loaded("a")).unwrap();
            for _ in 0..3 {
                queue.delete(Deleted::Final(loaded("a"))).unwrap();
            }
            queue.delete(Deleted::Final(loaded("nobody"))).unwrap();
            queue
                .replace(vec![loaded("b"), loaded("b")], Some(version("1")))
                .unwrap();
            queue.close();
            while queue
                .pop(&mut |_, _| Err("no".into()))
                .is_err_and(|error| !matches!(error, PopError::Closed))
            {}
            assert_eq!(*dropped.lock().unwrap(), 8, "{name}");
        }
    });
}

#[test]
fn panicking_callback_leaves_queue_working() {
    for (name, queue) in queues() {
        queue.replace(vec![word("a")], Some(version("1"))).unwrap();
        queue.add(word("b")).unwrap();
        for _ in 0..2 {
            let popped =
                std::panic::catch_unwind(AssertUnwindSafe(|| queue.pop(&mut |_, _| panic!("oh"))));
            assert!(
                popped.is_ok_and(|popped| popped.is_err()),
                "{name}: pop must return the panic as an error"
            );
        }
        assert!(queue.has_synced(), "{name}");
        queue.add(word("c")).unwrap();
        assert_eq!(drain(&*queue).len(), 1, "{name}");
    }
}

/// The payload of a panic in user code can be any object, so its destructor may panic.
#[test]
fn panic_payload_that_panics_leaves_queue_working() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("once more");
        }
    }

    with_timeout(|| {
        for (name, queue) in queues() {
            queue.add(word("a")).unwrap();
            queue.add(word("b")).unwrap();
            let popped = queue.pop(&mut |_, _| std::panic::panic_any(Bomb));
            assert!(matches!(popped, Err(PopError::Process { .. })), "{name}");
            assert_eq!(drain(&*queue).len(), 1, "{name}");
        }
    });
}

/// An implementation of `KnownObjects` may create the objects on demand. The queue then drops the
/// last reference to each object, and its destructor may call the queue.
#[test]
fn known_objects_using_queue_on_drop_do_not_hang() {
    #[derive(Default)]
    struct CreatedOnDemand(Mutex<Weak<DeltaFifo<Word>>>, AtomicBool);

    impl KnownObjects<Word> for CreatedOnDemand {
        fn list_keys(&self) -> Vec<Key> {
            vec!["a".into(), "b".into()]
        }

        fn lookup(&self, key: &str) -> Result<Option<Arc<Word>>, StoreError> {
            assert!(
                key == "a" || !self.1.load(Ordering::SeqCst),
                "known objects"
            );
            let queue = self.0.lock().unwrap().clone();
            let on_drop = move || assert!(queue.upgrade().is_none_or(|queue| queue.len() < 9));
            Ok(Some(Arc::new(Word(
                key.to_owned(),
                Some(Arc::new(on_drop)),
            ))))
        }
    }

    with_timeout(|| {
        let known = Arc::new(CreatedOnDemand::default());
        let transform = Transform::new(Ok::<_, StoreError>);
        let options = DeltaFifoOptions::new()
            .known_objects(known.clone())
            .transform(transform);
        let queue = Arc::new(DeltaFifo::with_options(accessor(), options));
        *known.0.lock().unwrap() = Arc::downgrade(&queue);
        known.1.store(true, Ordering::SeqCst);
        queue.replace(Vec::new(), Some(version("1"))).unwrap_err();
        queue.resync().unwrap_err();
        known.1.store(false, Ordering::SeqCst);
        // The object is looked up before and after the transform.
        queue.delete(Deleted::Final(word("a"))).unwrap();
        let tombstone = || Deleted::FinalStateUnknown {
            key: "a".into(),
            last_known: None,
        };
        let failed = queue.pop(&mut |_, _| {
            queue.delete(tombstone())?;
            queue.replace(vec![word("c")], Some(version("1")))?;
            queue.resync()?;
            Err("no".into())
        });
        assert!(failed.is_err());
        assert_eq!(drain(&*queue).len(), 3, "a and b are deleted, c is new");
    });
}
