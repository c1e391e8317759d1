//! `RealFifo` through its public API, rule by rule.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::Indexer;
use k8s_informer::object::{Accessor, Key, KeyError};
use k8s_informer::queue::{Delta, Deltas, PopError, Queue, RealFifo, RealFifoMode, Requeue};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore, StoreError, Transform};

use super::things::*;

fn atomic(unlock_while_processing: bool) -> RealFifo<Thing> {
    RealFifo::builder(
        accessor(),
        RealFifoMode::Atomic {
            unlock_while_processing,
            bookmarks: true,
        },
    )
    .build()
}

fn with_known(known: &[Thing]) -> RealFifo<Thing> {
    RealFifo::builder(
        accessor(),
        RealFifoMode::InOrder(Arc::new(Known(known.to_vec()))),
    )
    .build()
}

/// A queue whose transform fails on 50, panics on 51, removes the key of 52, and doubles other
/// values.
fn transforming(mode: RealFifoMode<Thing>) -> RealFifo<Thing> {
    let transform = Transform::new(|object: Arc<Thing>| match object.1 {
        50 => Err("bad"),
        51 => panic!("transform"),
        52 => Ok(Arc::new(("", 52))),
        value => Ok(Arc::new((object.0, 2 * value))),
    });
    RealFifo::builder(accessor(), mode)
        .transform(transform)
        .build()
}

fn pop(queue: &RealFifo<Thing>) -> Delta<Thing> {
    assert!(!queue.is_empty(), "pop would block");
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(popped.len(), 1);
    popped[0].clone()
}

fn drain(queue: &RealFifo<Thing>) -> Vec<Delta<Thing>> {
    std::iter::from_fn(|| (!queue.is_empty()).then(|| pop(queue))).collect()
}

fn list(delta: &Delta<Thing>) -> Vec<Thing> {
    match delta {
        Delta::ReplacedAll(list) => list.objects.iter().map(|object| **object).collect(),
        other => panic!("{other:?}"),
    }
}

/// Pops a batch. Returns its keys, with `!` before the key of a single item, and whether it is
/// initial.
fn batch(queue: &RealFifo<Thing>) -> (Vec<String>, bool) {
    let seen = Mutex::new((Vec::new(), false));
    let key = |deltas: &Deltas<Thing>| deltas.key().map_or("-", |key| &**key).to_owned();
    let popped = queue
        .pop_batch(
            &mut |batch, initial| {
                *seen.lock().unwrap() = (batch.iter().map(key).collect(), initial);
                Ok(())
            },
            &mut |single, initial| {
                *seen.lock().unwrap() = (vec![format!("!{}", key(single))], initial);
                Ok(())
            },
        )
        .unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!(popped.len(), seen.0.len());
    seen
}

#[test]
fn r1_r2_every_change_is_delivered_separately() {
    let queue = with_known(&[]);
    queue.add(thing("a", 1)).unwrap();
    queue.update(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    queue.delete(gone("a", 2)).unwrap();
    queue.delete(gone("nobody", 1)).unwrap();
    assert!(queue.has_synced());
    let all = [
        added("a", 1),
        updated("a", 1),
        added("b", 1),
        deleted("a", 2),
        deleted("nobody", 1),
    ];
    assert_eq!(drain(&queue), all);
}

#[test]
fn r3_failed_write_populates_but_queues_nothing() {
    for bad in ["", "panic"] {
        let queue = atomic(true);
        assert!(matches!(queue.add(thing(bad, 1)), Err(StoreError::Key(_))));
        assert!(queue.has_synced() && queue.is_empty());
        assert!(matches!(
            atomic(true).delete(gone(bad, 1)),
            Err(StoreError::Key(_))
        ));
    }
}

#[test]
fn k4_k5_each_object_is_transformed_once_and_tombstones_never() {
    let queue = transforming(RealFifoMode::Atomic {
        unlock_while_processing: true,
        bookmarks: false,
    });
    queue.replace(vec![thing("a", 1)], "1").unwrap();
    queue.add(thing("b", 2)).unwrap();
    queue.delete(gone("b", 3)).unwrap();
    let Delta::Deleted(tombstone_of_c) = tombstone("c", Some(thing("c", 4))) else {
        panic!()
    };
    queue.delete(tombstone_of_c).unwrap();
    assert_eq!(list(&pop(&queue)), [("a", 2)]);
    assert_eq!(
        drain(&queue),
        [
            added("b", 4),
            deleted("b", 6),
            tombstone("c", Some(thing("c", 4)))
        ]
    );

    for bad in [50, 51] {
        assert!(matches!(
            queue.add(thing("a", bad)),
            Err(StoreError::Transform { .. })
        ));
    }
    assert!(queue.is_empty());
}

/// client-go panics on contradictory options: known objects in atomic mode, no known objects in
/// in-order mode, and unlocking or bookmarks in in-order mode. Here, each mode holds only its own
/// options.
#[test]
fn r4_bookmarks_need_atomic_mode_and_known_objects_in_order() {
    assert_eq!(with_known(&[]).synced().name(), "RealFifo");
    let (atomic, in_order) = (RealFifo::new(accessor()), with_known(&[("known", 1)]));
    for queue in [&atomic, &in_order] {
        queue.bookmark("7").unwrap();
        queue.resync().unwrap();
    }
    assert_eq!(
        drain(&atomic),
        [Delta::Bookmark("7".into()), Delta::SyncAll]
    );
    assert_eq!(drain(&in_order), [sync("known", 1)]);
}

#[test]
fn r5_r6_in_order_list_queues_deletions_before_additions() {
    let queue = with_known(&[
        ("known", 1),
        ("ghost", 0),
        ("broken", 99),
        ("listed", 1),
        ("queued", 1),
    ]);
    queue.add(thing("queued", 2)).unwrap();
    queue.update(thing("queued", 3)).unwrap();
    queue.add(thing("going", 1)).unwrap();
    queue.delete(gone("going", 2)).unwrap();
    let before = queue.len();
    queue
        .replace(vec![thing("listed", 5), thing("new", 6)], "9")
        .unwrap();
    let queued: Vec<_> = drain(&queue).split_off(before);
    let expected = [
        tombstone("queued", Some(thing("queued", 3))),
        tombstone("known", Some(thing("known", 1))),
        tombstone("ghost", None),
        tombstone("broken", None),
        replaced("listed", 5),
        replaced("new", 6),
    ];
    assert_eq!(queued, expected);
}

#[test]
fn r5_list_with_keyless_object_queues_nothing() {
    let queue = with_known(&[("known", 1)]);
    assert!(matches!(
        queue.replace(vec![thing("a", 1), thing("", 1)], "1"),
        Err(StoreError::Key(_))
    ));
    assert!(queue.is_empty() && !queue.has_synced());
}

#[test]
fn r5_failed_transform_keeps_deletes_and_earlier_items() {
    let queue = transforming(RealFifoMode::InOrder(Arc::new(Known(vec![("known", 1)]))));
    let failed = queue.replace(vec![thing("a", 1), thing("b", 50), thing("c", 1)], "1");
    assert!(matches!(failed, Err(StoreError::Transform { .. })));
    assert!(!queue.has_synced());
    assert_eq!(
        drain(&queue),
        [
            tombstone("known", Some(thing("known", 1))),
            replaced("a", 2)
        ]
    );
}

#[test]
fn r5_keyless_item_blocks_lists_until_popped() {
    let queue = transforming(RealFifoMode::InOrder(Arc::new(Known(vec![]))));
    queue.add(thing("a", 52)).unwrap();
    assert!(matches!(
        queue.replace(vec![thing("b", 1)], "1"),
        Err(StoreError::Key(_))
    ));
    assert!(matches!(queue.resync(), Err(StoreError::Key(_))));
    assert_eq!(pop(&queue), added("", 52));
    queue.replace(vec![thing("b", 1)], "1").unwrap();
    assert_eq!(drain(&queue), [replaced("b", 2)]);
}

#[test]
fn r7_atomic_list_is_one_change_with_unchecked_keys() {
    let queue = atomic(true);
    queue.add(thing("a", 1)).unwrap();
    queue
        .replace(vec![thing("b", 1), thing("", 2), thing("b", 3)], "9")
        .unwrap();
    assert_eq!(pop(&queue), added("a", 1));
    let popped = pop(&queue);
    assert_eq!(list(&popped), [("b", 1), ("", 2), ("b", 3)]);
    let Delta::ReplacedAll(popped) = popped else {
        panic!()
    };
    assert_eq!(popped.resource_version, "9");
}

#[test]
fn r7_atomic_list_with_failed_transform_queues_nothing() {
    let mode = RealFifoMode::Atomic {
        unlock_while_processing: true,
        bookmarks: true,
    };
    let queue = transforming(mode);
    for bad in [50, 51] {
        let failed = queue.replace(vec![thing("a", 1), thing("b", bad)], "1");
        assert!(
            matches!(failed, Err(StoreError::Transform { key: Some(key), .. }) if &*key == "b")
        );
    }
    assert!(queue.is_empty() && !queue.has_synced());
    queue.replace(vec![thing("", 1)], "1").unwrap();
    assert_eq!(list(&pop(&queue)), [("", 2)]);
}

#[test]
fn r8_synced_when_the_first_list_is_processed() {
    let queue = with_known(&[("gone", 1)]);
    queue.replace(vec![thing("a", 1)], "1").unwrap();
    assert!(!queue.has_synced());
    queue.add(thing("b", 1)).unwrap();
    pop(&queue);
    let seen = queue.pop(&mut |_, initial| {
        assert!(
            initial && !queue.has_synced(),
            "r13: an item counts once its processing has ended"
        );
        Err("no matter".into())
    });
    assert!(seen.is_err() && queue.has_synced());
    queue
        .pop(&mut |_, initial| {
            if initial {
                Err("initial".into())
            } else {
                Ok(())
            }
        })
        .unwrap();

    let queue = atomic(true);
    queue.bookmark("1").unwrap();
    queue.replace(vec![thing("a", 1)], "2").unwrap();
    pop(&queue);
    assert!(
        !queue.has_synced(),
        "a bookmark before the list also counts"
    );
    pop(&queue);
    assert!(queue.has_synced());

    let queue = atomic(true);
    queue.replace(Vec::new(), "1").unwrap();
    assert!(
        !queue.has_synced(),
        "an empty list is a change to be processed"
    );
    pop(&queue);
    assert!(queue.has_synced());
    let queue = with_known(&[]);
    queue.replace(Vec::new(), "1").unwrap();
    assert!(queue.has_synced());
}

#[test]
fn r9_resync_queues_known_objects_without_queued_changes() {
    let queue = with_known(&[("a", 1), ("b", 1), ("ghost", 0), ("broken", 99)]);
    queue.delete(gone("b", 2)).unwrap();
    queue.resync().unwrap();
    assert_eq!(drain(&queue), [deleted("b", 2), sync("a", 1)]);

    let queue = atomic(true);
    queue.add(thing("a", 1)).unwrap();
    queue.resync().unwrap();
    assert_eq!(drain(&queue), [added("a", 1), Delta::SyncAll]);
}

#[test]
fn r10_keyless_known_object_fails_the_resync() {
    struct Unkeyed;
    impl KnownObjects<Thing> for Unkeyed {
        fn list_keys(&self) -> Vec<Key> {
            vec!["a".into(), "b".into()]
        }
        fn lookup(&self, key: &str) -> Result<Option<Arc<Thing>>, StoreError> {
            Ok(Some(thing(if key == "a" { "a" } else { "" }, 1)))
        }
    }
    let queue = RealFifo::builder(accessor(), RealFifoMode::InOrder(Arc::new(Unkeyed))).build();
    assert!(matches!(queue.resync(), Err(StoreError::Key(_))));
    assert_eq!(
        drain(&queue),
        [sync("a", 1)],
        "objects before it are queued"
    );
}

#[test]
fn r11_bookmarks_are_queued_if_enabled_and_do_not_populate() {
    let queue = atomic(true);
    queue.bookmark("7").unwrap();
    assert!(!queue.has_synced());
    assert_eq!(pop(&queue), Delta::Bookmark("7".into()));
    assert!(!queue.has_synced());
    let mode = RealFifoMode::Atomic {
        unlock_while_processing: true,
        bookmarks: false,
    };
    for without_bookmarks in [RealFifo::builder(accessor(), mode).build(), with_known(&[])] {
        without_bookmarks.bookmark("7").unwrap();
        assert!(without_bookmarks.is_empty());
    }
}

#[test]
fn r12_pop_takes_one_change_and_flags_initial_list() {
    let queue = with_known(&[]);
    queue.replace(vec![thing("a", 1)], "1").unwrap();
    queue.update(thing("a", 2)).unwrap();
    let mut popped = Vec::new();
    for _ in 0..2 {
        let pop = queue.pop(&mut |deltas, initial| {
            popped.push((deltas.to_vec(), initial));
            Ok(())
        });
        assert_eq!(pop.unwrap().len(), 1);
    }
    assert_eq!(
        popped,
        [
            (vec![replaced("a", 1)], true),
            (vec![updated("a", 2)], false)
        ]
    );
}

#[test]
fn r13_sync_waits_for_list_received_during_a_bookmark() {
    let queue = atomic(true);
    queue.bookmark("1").unwrap();
    queue
        .pop(&mut |_, _| Ok(queue.replace(vec![thing("a", 1)], "2")?))
        .unwrap();
    assert!(!queue.has_synced());
    queue
        .pop(&mut |_, initial| {
            if initial {
                Ok(())
            } else {
                Err("not initial".into())
            }
        })
        .unwrap();
    assert!(queue.has_synced());
}

#[test]
fn r14_r17_keys_of_a_batch_are_distinct() {
    let queue = with_known(&[]);
    for key in ["a", "b", "a", "c"] {
        queue.add(thing(key, 1)).unwrap();
    }
    queue.delete(gone("b", 2)).unwrap();
    assert_eq!(batch(&queue), (vec!["a".into(), "b".into()], false));
    assert_eq!(
        batch(&queue),
        (vec!["a".into(), "c".into(), "b".into()], false)
    );
    queue.add(thing("d", 1)).unwrap();
    assert_eq!(batch(&queue), (vec!["!d".into()], false));
}

#[test]
fn r14_r18_batch_ends_with_the_initial_list() {
    let queue = with_known(&[]);
    queue
        .replace(vec![thing("a", 1), thing("b", 1)], "1")
        .unwrap();
    queue.add(thing("c", 1)).unwrap();
    queue.add(thing("d", 1)).unwrap();
    assert_eq!(batch(&queue), (vec!["a".into(), "b".into()], true));
    assert!(queue.has_synced());
    assert_eq!(batch(&queue), (vec!["c".into(), "d".into()], false));
}

#[test]
fn r14_batch_has_at_most_1000_items() {
    let queue = RealFifo::new(Accessor::new(|n: &u32| {
        Ok::<_, KeyError>(n.to_string().into())
    }));
    for n in 0..1001 {
        queue.add(Arc::new(n)).unwrap();
    }
    let popped = queue
        .pop_batch(&mut |_, _| Ok(()), &mut |_, _| Err("single".into()))
        .unwrap();
    assert_eq!((popped.len(), queue.len()), (1000, 1));
}

#[test]
fn r15_list_resync_and_bookmark_are_not_batched() {
    let queue = atomic(true);
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    queue.replace(vec![thing("c", 1)], "1").unwrap();
    queue.bookmark("2").unwrap();
    queue.resync().unwrap();
    queue.add(thing("d", 1)).unwrap();
    let batches: Vec<_> =
        std::iter::from_fn(|| (!queue.is_empty()).then(|| batch(&queue).0)).collect();
    assert_eq!(
        batches,
        [
            vec!["a", "b"],
            vec!["!-"],
            vec!["!-"],
            vec!["!-"],
            vec!["!d"]
        ]
    );
}

#[test]
fn r16_keyless_item_ends_a_batch() {
    let queue = transforming(RealFifoMode::InOrder(Arc::new(Known(vec![]))));
    for value in [1, 52, 1] {
        queue.add(thing("a", value)).unwrap();
    }
    assert_eq!(batch(&queue), (vec!["a".into(), "-".into()], false));
    assert_eq!(batch(&queue), (vec!["!a".into()], false));
}

#[test]
fn r17_failed_batch_is_returned_and_not_requeued() {
    let queue = with_known(&[]);
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    let failed = queue.pop_batch(&mut |_, _| panic!("oh"), &mut |_, _| Ok(()));
    let Err(PopError::Process { popped, error }) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (popped.len(), error.to_string()),
        (2, "panicked: oh".to_owned())
    );
    assert!(queue.is_empty());
}

#[test]
fn requeued_items_are_popped_next() {
    let queue = with_known(&[]);
    queue
        .replace(vec![thing("a", 1), thing("b", 1)], "1")
        .unwrap();
    let requeue = || Err(Requeue::new().into());
    queue.pop(&mut |_, _| requeue()).unwrap();
    queue.add(thing("c", 1)).unwrap();
    queue
        .pop_batch(&mut |_, _| requeue(), &mut |_, _| requeue())
        .unwrap();
    assert!(!queue.has_synced());
    assert_eq!(batch(&queue), (vec!["a".into(), "b".into()], true));
    assert!(queue.has_synced());
    assert_eq!(drain(&queue), [added("c", 1)]);

    // A requeued item goes before a first list that arrived during its processing, and counts as
    // part of that list.
    let queue = atomic(true);
    queue.bookmark("1").unwrap();
    queue
        .pop(&mut |_, _| {
            queue.replace(vec![thing("a", 1)], "2")?;
            requeue()
        })
        .unwrap();
    assert_eq!(pop(&queue), Delta::Bookmark("1".into()));
    assert!(!queue.has_synced());
    pop(&queue);
    assert!(queue.has_synced());
}

/// Returns whether another thread can write while an item is processed.
fn writes_meanwhile(queue: &RealFifo<Thing>, timeout: Duration) -> bool {
    let (written, is_written) = mpsc::channel();
    thread::scope(|scope| {
        let mut meanwhile = false;
        let popped = queue.pop(&mut |_, _| {
            let written = written.clone();
            scope.spawn(move || {
                queue.add(thing("late", 1)).unwrap();
                written.send(()).unwrap();
            });
            meanwhile = is_written.recv_timeout(timeout).is_ok();
            Ok(())
        });
        popped.unwrap();
        if !meanwhile {
            is_written.recv().unwrap();
        }
        meanwhile
    })
}

#[test]
fn r19_writers_wait_unless_unlocked_and_few_items_are_queued() {
    with_timeout(|| {
        for (unlocked, queued, expected) in [
            (true, 1, true),
            (false, 1, false),
            (true, 2000, true),
            (true, 2001, false),
        ] {
            let queue = atomic(unlocked);
            for _ in 0..queued {
                queue.add(thing("a", 1)).unwrap();
            }
            // The absence of a write can only be shown by waiting.
            let timeout = Duration::from_millis(if expected { 5000 } else { 20 });
            let written_meanwhile = writes_meanwhile(&queue, timeout);
            assert_eq!(
                written_meanwhile, expected,
                "unlocked {unlocked}, {queued} queued"
            );
        }
        let queue = with_known(&[]);
        queue.add(thing("a", 1)).unwrap();
        assert!(
            !writes_meanwhile(&queue, Duration::from_millis(20)),
            "writers always wait in in-order mode"
        );
    });
}

#[test]
fn process_may_use_the_queue_but_not_pop() {
    with_timeout(|| {
        for queue in [atomic(true), atomic(false), with_known(&[("k", 1)])] {
            queue.add(thing("a", 1)).unwrap();
            queue
                .pop(&mut |_, _| {
                    queue.add(thing("b", 1))?;
                    queue.replace(vec![thing("c", 1)], "1")?;
                    queue.resync()?;
                    assert_eq!((queue.has_synced(), queue.is_closed()), (true, false));
                    Ok(())
                })
                .unwrap();
            assert!(queue.len() > 1);
            let failed =
                queue.pop(&mut |_, _| queue.pop(&mut |_, _| Ok(())).map(drop).map_err(Into::into));
            assert!(
                matches!(failed, Err(PopError::Process { error, .. }) if error.to_string().contains("must not pop"))
            );
        }
    });
}

#[test]
fn r20_popped_items_are_not_retained() {
    let queue = with_known(&[]);
    let object = thing("a", 1);
    queue.add(object.clone()).unwrap();
    queue.add(thing("b", 1)).unwrap();
    pop(&queue);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn r21_close_wakes_every_pop_and_keeps_queued_items() {
    with_timeout(|| {
        let queue = atomic(true);
        thread::scope(|scope| {
            let pops: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| queue.pop(&mut |_, _| Ok(())).is_err()))
                .collect();
            queue.close();
            assert!(pops.into_iter().all(|pop| pop.join().unwrap()));
        });
        assert!(queue.is_closed());
        queue.add(thing("a", 1)).unwrap();
        assert_eq!(pop(&queue), added("a", 1));
        let closed = queue.pop_batch(&mut |_, _| Ok(()), &mut |_, _| Ok(()));
        assert!(matches!(closed, Err(PopError::Closed)));
    });
}

#[test]
fn r24_transformer_is_the_configured_transform_or_none() {
    assert!(atomic(true).transformer().is_none());
    let queue = transforming(RealFifoMode::InOrder(Arc::new(Known(vec![]))));
    assert_eq!(
        *queue.transformer().unwrap().apply(thing("a", 2)).unwrap(),
        ("a", 4)
    );
}

#[test]
fn queued_items_can_be_read() {
    let queue = atomic(true);
    queue.add(thing("b", 1)).unwrap();
    queue.add(thing("a", 1)).unwrap();
    queue.update(thing("b", 2)).unwrap();
    queue.resync().unwrap();
    assert_eq!(queue.list_keys(), ["b".into(), "a".into()]);
    assert_eq!(queue.list().len(), 4);
    assert_eq!(
        queue.get_by_key("b").unwrap().to_vec(),
        [added("b", 1), updated("b", 2)]
    );
    assert!(queue.get(&("c", 1)).unwrap().is_none() && queue.get(&("", 1)).is_err());
}

#[test]
fn panic_of_known_objects_leaves_queue_unchanged() {
    struct Panicking;
    impl KnownObjects<Thing> for Panicking {
        fn list_keys(&self) -> Vec<Key> {
            panic!("known objects")
        }
        fn lookup(&self, _: &str) -> Result<Option<Arc<Thing>>, StoreError> {
            Ok(None)
        }
    }
    with_timeout(|| {
        let queue =
            RealFifo::builder(accessor(), RealFifoMode::InOrder(Arc::new(Panicking))).build();
        assert!(matches!(
            queue.replace(vec![thing("a", 1)], "1"),
            Err(StoreError::Other(_))
        ));
        assert!(matches!(queue.resync(), Err(StoreError::Other(_))));
        assert!(queue.is_empty() && !queue.has_synced());
        queue.add(thing("a", 1)).unwrap();
        assert_eq!(pop(&queue), added("a", 1));
    });
}

/// A relist deletes each missing key exactly once, wherever the key is between queue and store.
#[test]
fn d3_r5_relist_deletes_missing_key_exactly_once() {
    with_timeout(|| {
        for round in 0..200 {
            let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
            let queue = RealFifo::builder(accessor(), RealFifoMode::InOrder(store.clone())).build();
            let deletions = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let apply = |deltas: &Deltas<Thing>| match deltas.newest() {
                        Some(Delta::Deleted(gone)) => {
                            deletions.fetch_add(1, Ordering::Relaxed);
                            store.delete(gone.clone())
                        }
                        Some(delta) => store.add(delta.object().unwrap().clone()).map(drop),
                        None => Ok(()),
                    };
                    while queue
                        .pop_batch(
                            &mut |batch, _| Ok(batch.iter().try_for_each(apply)?),
                            &mut |single, _| Ok(apply(single)?),
                        )
                        .is_ok()
                    {}
                });
                queue.add(thing("a", round)).unwrap();
                queue.add(thing("b", round)).unwrap();
                queue.replace(vec![thing("b", round)], "1").unwrap();
                queue.close();
            });
            assert_eq!(
                deletions.into_inner(),
                1,
                "the deletion must be delivered once"
            );
            assert_eq!(store.list_keys(), ["b".into()]);
        }
    });
}
