//! `DeltaFifo` through its public API. Ports the essence of client-go's delta_fifo_test, and tests
//! processing without the lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use k8s_informer::object::Key;
use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Deltas, Origin, PopError, Queue};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore, StoreError, Transform};
use k8s_informer::{Deleted, Indexer};

use super::things::*;

fn with_known(known: &[Thing]) -> DeltaFifo<Thing> {
    DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new()
            .known_objects(Arc::new(Known(known.to_vec())))
            .emit_replaced(true),
    )
}

fn without_known() -> DeltaFifo<Thing> {
    DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().emit_replaced(true))
}

fn pop(queue: &DeltaFifo<Thing>) -> Vec<Delta<Thing>> {
    assert!(!queue.is_empty(), "pop would block");
    queue.pop(&mut |_, _| Ok(())).unwrap().to_vec()
}

fn drain(queue: &DeltaFifo<Thing>) -> Vec<Vec<Delta<Thing>>> {
    std::iter::from_fn(|| (!queue.is_empty()).then(|| pop(queue))).collect()
}

#[test]
fn d1_all_changes_of_a_key_are_popped_as_one_item() {
    let queue = without_known();
    queue.add(thing("foo", 10)).unwrap();
    queue.add(thing("bar", 1)).unwrap();
    queue.update(thing("foo", 12)).unwrap();
    queue.delete(gone("foo", 15)).unwrap();
    assert_eq!(queue.len(), 2);
    assert_eq!(
        pop(&queue),
        [added("foo", 10), updated("foo", 12), deleted("foo", 15)]
    );
    assert_eq!(pop(&queue), [added("bar", 1)]);
    assert!(queue.is_empty());
}

#[test]
fn d2_failed_add_populates_failed_delete_does_not() {
    let queue = without_known();
    assert!(matches!(queue.delete(gone("", 1)), Err(StoreError::Key(_))));
    assert!(!queue.has_synced());
    assert!(matches!(
        queue.add(thing("panic", 1)),
        Err(StoreError::Key(_))
    ));
    assert!(queue.has_synced() && queue.is_empty());
}

/// A deletion with a key counts as a write even if it is rejected.
#[test]
fn d2_rejected_delete_with_a_key_populates() {
    struct Panics;
    impl KnownObjects<Thing> for Panics {
        fn list_keys(&self) -> Vec<Key> {
            Vec::new()
        }
        fn lookup(&self, _: &str) -> Result<Option<Arc<Thing>>, StoreError> {
            panic!("known objects")
        }
    }
    let known: [Arc<dyn KnownObjects<Thing>>; 2] =
        [Arc::new(Panics), Arc::new(Known(vec![("a", 1)]))];
    for known in known {
        let transform = Transform::new(|_| Err::<Arc<Thing>, _>("not this one"));
        let options = DeltaFifoOptions::new().known_objects(known);
        let queue = DeltaFifo::with_options(accessor(), options.transform(transform));
        assert!(queue.delete(gone("a", 1)).is_err());
        assert!(queue.has_synced() && queue.is_empty());
    }
}

#[test]
fn d3_delete_of_unknown_object_is_dropped() {
    let queue = without_known();
    queue.delete(gone("baz", 10)).unwrap();
    assert!(queue.is_empty());
    let queue = with_known(&[("foo", 5), ("broken", 99), ("ghost", 0)]);
    queue.add(thing("queued", 1)).unwrap();
    for key in ["foo", "broken", "ghost", "queued", "unknown"] {
        queue.delete(gone(key, 10)).unwrap();
    }
    let expected = [
        vec![added("queued", 1), deleted("queued", 10)],
        vec![deleted("foo", 10)],
        vec![deleted("broken", 10)],
    ];
    assert_eq!(drain(&queue), expected);
}

#[test]
fn d4_merged_deletions_keep_the_final_object() {
    let cases = [
        (gone("a", 1), gone("a", 2), deleted("a", 1)),
        (
            Deleted::FinalStateUnknown {
                key: "a".into(),
                last_known: None,
            },
            gone("a", 2),
            deleted("a", 2),
        ),
        (
            gone("a", 1),
            Deleted::FinalStateUnknown {
                key: "a".into(),
                last_known: None,
            },
            deleted("a", 1),
        ),
    ];
    for (first, second, expected_first) in cases {
        let queue = with_known(&[("a", 5)]);
        queue.delete(first).unwrap();
        queue.delete(second).unwrap();
        queue.update(thing("a", 3)).unwrap();
        queue.delete(gone("a", 4)).unwrap();
        assert_eq!(
            pop(&queue),
            [expected_first, updated("a", 3), deleted("a", 4)]
        );
    }
}

#[test]
fn d5_each_object_is_transformed_once_and_tombstones_never() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let transform = Transform::new(move |thing: Arc<Thing>| match thing.1 {
        13 => Err("unlucky"),
        14 => panic!("very unlucky"),
        value => {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new((thing.0, value + 100)))
        }
    });
    let known = Arc::new(Known(vec![("known", 7)]));
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new()
            .known_objects(known)
            .transform(transform),
    );
    queue.add(thing("a", 1)).unwrap();
    queue.update(thing("a", 2)).unwrap();
    queue.delete(gone("a", 3)).unwrap();
    queue.delete(gone("unknown", 13)).unwrap();
    queue
        .replace(vec![thing("b", 4)], Some(version("1")))
        .unwrap();
    for value in [13, 14] {
        assert!(matches!(
            queue.add(thing("c", value)),
            Err(StoreError::Transform { .. })
        ));
        assert!(matches!(
            queue.delete(gone("known", value)),
            Err(StoreError::Transform { .. })
        ));
    }
    assert_eq!(count.load(Ordering::Relaxed), 4);
    assert_eq!(
        pop(&queue),
        [added("a", 101), updated("a", 102), deleted("a", 103)]
    );
    assert_eq!(pop(&queue), [sync("b", 104)]);
    assert_eq!(pop(&queue), [tombstone("known", Some(thing("known", 7)))]);
    queue.resync().unwrap();
    assert_eq!(pop(&queue), [sync("known", 7)]);
}

#[test]
fn d6_d7_replace_orders_deletes_after_adds() {
    let queue = with_known(&[
        ("foo", 5),
        ("bar", 6),
        ("baz", 7),
        ("ghost", 0),
        ("broken", 99),
    ]);
    queue.delete(gone("baz", 10)).unwrap();
    queue.add(thing("queued", 1)).unwrap();
    queue
        .replace(
            vec![thing("foo", 6), thing("new", 1), thing("foo", 7)],
            Some(version("0")),
        )
        .unwrap();
    let expected = [
        // A tombstone after a deletion with the final object adds nothing.
        vec![deleted("baz", 10)],
        vec![
            added("queued", 1),
            tombstone("queued", Some(thing("queued", 1))),
        ],
        vec![replaced("foo", 6), replaced("foo", 7)],
        vec![replaced("new", 1)],
        vec![tombstone("bar", Some(thing("bar", 6)))],
        vec![tombstone("ghost", None)],
        vec![tombstone("broken", None)],
    ];
    assert_eq!(drain(&queue), expected);
}

#[test]
fn d6_replace_keeps_queued_deletion_before_new_object() {
    let queue = with_known(&[("foo", 5)]);
    queue.delete(gone("foo", 5)).unwrap();
    queue
        .replace(vec![thing("foo", 8)], Some(version("0")))
        .unwrap();
    assert_eq!(pop(&queue), [deleted("foo", 5), replaced("foo", 8)]);
}

#[test]
fn d6_repeated_tombstone_keeps_the_last_known_object() {
    let queue = with_known(&[("foo", 5)]);
    queue.replace(Vec::new(), Some(version("0"))).unwrap();
    queue.replace(Vec::new(), Some(version("0"))).unwrap();
    assert_eq!(pop(&queue), [tombstone("foo", Some(thing("foo", 5)))]);
}

#[test]
fn d6_failed_replace_queues_objects_before_the_failure() {
    let queue = with_known(&[("known", 5)]);
    assert!(matches!(
        queue.replace(
            vec![thing("a", 1), thing("", 2), thing("b", 3)],
            Some(version("0"))
        ),
        Err(StoreError::Key(_))
    ));
    assert!(!queue.has_synced());
    assert_eq!(drain(&queue), [vec![replaced("a", 1)]]);
}

#[test]
fn d6_replace_emits_sync_by_default() {
    let queue = DeltaFifo::new(accessor());
    queue
        .replace(vec![thing("a", 1)], Some(version("0")))
        .unwrap();
    assert_eq!(pop(&queue), [sync("a", 1)]);
}

#[test]
fn d8_synced_when_list_and_its_deletes_are_processed() {
    let queue = with_known(&[("foo", 5), ("bar", 6)]);
    queue
        .replace(vec![thing("foo", 6), thing("foo", 7)], Some(version("0")))
        .unwrap();
    queue.add(thing("later", 1)).unwrap();
    let mut flags = Vec::new();
    for _ in 0..3 {
        assert_eq!(queue.has_synced(), flags.len() == 2);
        let mut note = |_: &Deltas<Thing>, origin| {
            flags.push(origin);
            Ok(())
        };
        queue.pop(&mut note).unwrap();
    }
    assert_eq!(
        flags,
        [Origin::InitialList, Origin::InitialList, Origin::Later]
    );
    let queue = without_known();
    assert!(!queue.has_synced());
    queue.replace(Vec::new(), Some(version("0"))).unwrap();
    assert!(queue.has_synced(), "an empty list needs no processing");
}

#[test]
fn d9_resync_queues_known_objects_without_queued_changes() {
    let queue = with_known(&[("foo", 5), ("bar", 6), ("ghost", 0), ("broken", 99)]);
    queue.update(thing("bar", 7)).unwrap();
    queue.resync().unwrap();
    queue.resync().unwrap();
    assert_eq!(
        drain(&queue),
        [vec![updated("bar", 7)], vec![sync("foo", 5)]]
    );
    let queue = without_known();
    queue.resync().unwrap();
    assert!(queue.is_empty() && !queue.has_synced());
}

#[test]
fn d10_synced_comes_after_the_last_initial_item() {
    for fails in [false, true] {
        let queue = without_known();
        queue
            .replace(vec![thing("a", 1), thing("b", 1)], Some(version("0")))
            .unwrap();
        let synced = queue.synced();
        pop(&queue);
        let result = queue.pop(&mut |_, origin| {
            assert_eq!(origin, Origin::InitialList);
            assert!(!synced.is_done() && !queue.has_synced());
            if fails { Err("failed".into()) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), fails);
        assert!(synced.is_done() && queue.has_synced());
    }
}

#[test]
fn d11_process_error_or_panic_returns_the_deltas() {
    let queue = without_known();
    queue.add(thing("a", 1)).unwrap();
    let Err(PopError::Process {
        popped: deltas,
        error,
    }) = queue.pop(&mut |_, _| Err("no".into()))
    else {
        panic!()
    };
    assert_eq!(
        (deltas.to_vec(), error.to_string()),
        (vec![added("a", 1)], "no".to_owned())
    );
    queue.add(thing("a", 2)).unwrap();
    let Err(PopError::Process {
        popped: deltas,
        error,
    }) = queue.pop(&mut |_, _| panic!("oh"))
    else {
        panic!()
    };
    assert_eq!(
        (deltas.to_vec(), error.to_string()),
        (vec![added("a", 2)], "panicked: oh".to_owned())
    );
    assert!(queue.is_empty());
    queue.add(thing("a", 3)).unwrap();
    assert_eq!(pop(&queue), [added("a", 3)]);
}

#[test]
fn d12_key_is_that_of_the_newest_delta() {
    let key = |deltas: Vec<Delta<Thing>>| Deltas::from(deltas).key().map(ToString::to_string);
    assert_eq!(key(Vec::new()), None);
    let key = |deltas| key(deltas).unwrap();
    assert_eq!(key(vec![added("a", 1), updated("b", 1)]), "b");
    assert_eq!(key(vec![tombstone("t", Some(thing("x", 1)))]), "t");
}

#[test]
fn d13_key_readded_after_pop_moves_to_the_end() {
    let queue = without_known();
    queue.add(thing("foo", 10)).unwrap();
    queue.add(thing("bar", 1)).unwrap();
    queue.update(thing("foo", 11)).unwrap();
    assert_eq!(pop(&queue).len(), 2);
    queue.add(thing("foo", 30)).unwrap();
    assert_eq!(
        drain(&queue),
        [vec![added("bar", 1)], vec![added("foo", 30)]]
    );
}

#[test]
fn f7_close_wakes_every_pop_and_keeps_queued_items() {
    let queue = Arc::new(without_known());
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.pop(&mut |_, _| Ok(())))
        })
        .collect();
    queue.close();
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), Err(PopError::Closed)));
    }
    assert!(queue.is_closed());
    queue.add(thing("a", 1)).unwrap();
    assert_eq!(pop(&queue), [added("a", 1)]);
    assert!(matches!(
        queue.pop(&mut |_, _| Ok(())),
        Err(PopError::Closed)
    ));
}

#[test]
fn process_may_use_the_queue() {
    with_timeout(|| {
        let queue = with_known(&[("known", 5)]);
        queue.add(thing("a", 1)).unwrap();
        let result = queue.pop(&mut |deltas, _| {
            queue.add(thing("b", 1))?;
            queue.update(thing("a", 2))?;
            queue.delete(gone("known", 6))?;
            queue.resync()?;
            queue.replace(vec![thing("b", 2)], Some(version("1")))?;
            assert!(queue.has_synced() && queue.len() == 3);
            assert_eq!(**deltas, [added("a", 1)]);
            queue.close();
            Ok(())
        });
        result.unwrap();
        let expected = [
            vec![added("b", 1), replaced("b", 2)],
            vec![updated("a", 2), tombstone("a", Some(thing("a", 2)))],
            vec![deleted("known", 6)],
        ];
        assert_eq!(drain(&queue), expected);
    });
}

#[test]
fn pop_during_process_fails_without_deadlock() {
    with_timeout(|| {
        let queue = without_known();
        queue.add(thing("a", 1)).unwrap();
        queue.add(thing("b", 1)).unwrap();
        let inner =
            |queue: &DeltaFifo<Thing>| queue.pop(&mut |_, _| Ok(())).map(drop).map_err(Into::into);
        assert!(matches!(
            queue.pop(&mut |_, _| inner(&queue)),
            Err(PopError::Process { .. })
        ));
        assert_eq!(drain(&queue), [vec![added("b", 1)]]);
    });
}

/// The known objects are always empty, so the queue knows the object only from the key in flight.
#[test]
fn d3_d6_d9_key_in_flight_counts_as_known() {
    let in_flight = |last: fn(&DeltaFifo<Thing>), then: fn(&DeltaFifo<Thing>)| {
        let queue = with_known(&[]);
        queue.add(thing("a", 1)).unwrap();
        last(&queue);
        let mut process = |_: &Deltas<Thing>, _| {
            then(&queue);
            Ok(())
        };
        queue.pop(&mut process).unwrap();
        drain(&queue)
    };
    let update: fn(&DeltaFifo<Thing>) = |queue| queue.update(thing("a", 2)).unwrap();
    let end: fn(&DeltaFifo<Thing>) = |queue| queue.delete(gone("a", 3)).unwrap();
    let replace: fn(&DeltaFifo<Thing>) = |queue| {
        queue
            .replace(vec![thing("b", 1)], Some(version("1")))
            .unwrap();
    };
    let resync: fn(&DeltaFifo<Thing>) = |queue| queue.resync().unwrap();
    assert_eq!(in_flight(update, end), [vec![deleted("a", 3)]]);
    assert_eq!(
        in_flight(update, replace),
        [
            vec![replaced("b", 1)],
            vec![tombstone("a", Some(thing("a", 2)))]
        ]
    );
    assert_eq!(in_flight(update, resync), [vec![sync("a", 2)]]);
    assert!(in_flight(end, end).is_empty());
    assert_eq!(in_flight(end, replace), [vec![replaced("b", 1)]]);
    assert!(in_flight(end, resync).is_empty());
}

/// The known objects still contain the object that is being deleted.
#[test]
fn d3_d6_d9_key_in_flight_overrides_the_store() {
    let queue = with_known(&[("a", 1)]);
    queue.delete(gone("a", 2)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(gone("a", 3))?;
            queue.resync()?;
            queue.replace(Vec::new(), Some(version("1")))?;
            Ok(())
        })
        .unwrap();
    assert!(queue.is_empty());
    queue.update(thing("a", 4)).unwrap();
    queue.pop(&mut |_, _| Ok(queue.resync()?)).unwrap();
    assert_eq!(
        drain(&queue),
        [vec![sync("a", 4)]],
        "the object in flight, not the stored one"
    );
}

/// The first list arrives while an earlier item is processed. That item does not count as part of
/// the list: the queue is synced only after all objects of the list have been popped.
#[test]
fn d8_sync_waits_for_all_of_list_received_in_processing() {
    let queue = without_known();
    assert!(
        queue
            .replace(vec![thing("a", 1), thing("", 1)], Some(version("0")))
            .is_err()
    );
    queue
        .pop(&mut |_, _| Ok(queue.replace(vec![thing("b", 1), thing("c", 1)], Some(version("1")))?))
        .unwrap();
    assert!(!queue.has_synced());
    pop(&queue);
    assert!(!queue.has_synced());
    pop(&queue);
    assert!(queue.has_synced());
}

/// Writers, resyncs and relists run against several pops that fill a store. In the end, the store
/// has the last writes.
#[test]
fn concurrent_writes_and_relists_reach_the_store() {
    with_timeout(|| {
        const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
        let queue = Arc::new(DeltaFifo::with_options(
            accessor(),
            DeltaFifoOptions::new().known_objects(Arc::clone(&store) as _),
        ));
        let running = Arc::new(AtomicUsize::new(0));
        let pops: Vec<_> = (0..3)
            .map(|_| {
                let (queue, store, running) =
                    (Arc::clone(&queue), Arc::clone(&store), Arc::clone(&running));
                thread::spawn(move || {
                    let mut process = |deltas: &Deltas<Thing>, _: Origin| {
                        assert_eq!(
                            running.fetch_add(1, Ordering::SeqCst),
                            0,
                            "two items are processed at once"
                        );
                        for delta in deltas.iter() {
                            thread::yield_now();
                            match delta {
                                Delta::Deleted { gone, .. } => store.delete(gone.clone())?,
                                other => store
                                    .update(Arc::clone(other.object().unwrap()))
                                    .map(drop)?,
                            }
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    };
                    loop {
                        match queue.pop(&mut process) {
                            Ok(_) => {}
                            Err(PopError::Closed) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let resyncs = thread::spawn({
            let queue = Arc::clone(&queue);
            move || (0..2000).for_each(|_| queue.resync().unwrap())
        });
        let mut model: BTreeMap<&str, u32> = BTreeMap::new();
        let mut random = 1_u32;
        for value in 1..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = KEYS[(random >> 20) as usize % KEYS.len()];
            match random >> 28 {
                0 => {
                    model.retain(|_, old| *old % 2 == 0);
                    let list = model
                        .iter()
                        .map(|(key, value)| thing(key, *value))
                        .collect();
                    queue.replace(list, Some(version("1"))).unwrap();
                }
                1..=6 => {
                    model.remove(key);
                    queue.delete(gone(key, value)).unwrap();
                }
                _ => {
                    model.insert(key, value);
                    queue.update(thing(key, value)).unwrap();
                }
            }
        }
        resyncs.join().unwrap();
        queue.close();
        pops.into_iter().for_each(|pop| pop.join().unwrap());
        let stored: BTreeMap<_, _> = store.list().iter().map(|thing| **thing).collect();
        assert_eq!(stored, model);
    });
}

/// `KnownObjects` is user code and may panic. The queue then stays unchanged.
#[test]
fn panic_of_known_objects_leaves_queue_unchanged() {
    struct Panics(Mutex<bool>);
    impl KnownObjects<Thing> for Panics {
        fn list_keys(&self) -> Vec<Key> {
            assert!(
                !*self.0.lock().unwrap_or_else(PoisonError::into_inner),
                "known objects"
            );
            Vec::new()
        }
        fn lookup(&self, _: &str) -> Result<Option<Arc<Thing>>, StoreError> {
            assert!(
                !*self.0.lock().unwrap_or_else(PoisonError::into_inner),
                "known objects"
            );
            Ok(None)
        }
    }
    let known = Arc::new(Panics(Mutex::new(true)));
    let queue = Arc::new(DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new().known_objects(Arc::clone(&known) as _),
    ));
    let panics = |result| matches!(result, Err(StoreError::Other(what)) if what.to_string().contains("panicked"));
    assert!(panics(
        queue.replace(vec![thing("a", 1)], Some(version("1")))
    ));
    assert!(panics(queue.resync()));
    assert!(queue.is_empty() && !queue.has_synced());
    assert!(panics(queue.delete(gone("a", 1))));
    *known.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
    queue
        .replace(vec![thing("a", 1)], Some(version("1")))
        .unwrap();
    assert_eq!(drain(&queue), [vec![sync("a", 1)]]);
}
