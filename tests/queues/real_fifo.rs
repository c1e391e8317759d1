//! `RealFifo` through its public API, rule by rule.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{Delta, Deltas, Origin, PopError, Queue, RealFifo, RealFifoOptions};
use k8s_informer::store::{ReflectorStore, StoreError, Transform};

use super::things::*;

fn empty() -> RealFifo<Thing> {
    RealFifo::new(accessor())
}

/// A queue whose transform fails on 50, panics on 51, removes the key of 52, and doubles other
/// values.
fn transforming() -> RealFifo<Thing> {
    let transform = Transform::new(|object: Arc<Thing>| match object.1 {
        50 => Err("bad"),
        51 => panic!("transform"),
        52 => Ok(Arc::new(("", 52))),
        value => Ok(Arc::new((object.0, 2 * value))),
    });
    RealFifo::with_options(accessor(), RealFifoOptions::new().transform(transform))
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
        Delta::ReplacedAll(list) => list.objects().map(|object| **object).collect(),
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
            &mut |batch, origin| {
                let is_initial = origin == Origin::InitialList;
                *seen.lock().unwrap() = (batch.iter().map(key).collect(), is_initial);
                Ok(())
            },
            &mut |single, origin| {
                let is_initial = origin == Origin::InitialList;
                *seen.lock().unwrap() = (vec![format!("!{}", key(single))], is_initial);
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
    let queue = empty();
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
        let queue = empty();
        assert!(matches!(queue.add(thing(bad, 1)), Err(StoreError::Key(_))));
        assert!(queue.has_synced() && queue.is_empty());
        assert!(matches!(
            empty().delete(gone(bad, 1)),
            Err(StoreError::Key(_))
        ));
    }
}

#[test]
fn k4_k5_each_object_is_transformed_once_and_tombstones_never() {
    let queue = transforming();
    queue
        .replace(vec![thing("a", 1)], Some(version("1")))
        .unwrap();
    queue.add(thing("b", 2)).unwrap();
    queue.delete(gone("b", 3)).unwrap();
    let Delta::Deleted {
        gone: tombstone_of_c,
        ..
    } = tombstone("c", Some(thing("c", 4)))
    else {
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

/// client-go has options for lists as one change, bookmarks and unlocked processing.
#[test]
fn r4_queue_is_atomic_and_has_bookmarks() {
    let queue = empty();
    assert_eq!(queue.synced().name(), "RealFifo");
    queue
        .replace(vec![thing("a", 1)], Some(version("1")))
        .unwrap();
    queue.bookmark(Some(version("7"))).unwrap();
    queue.resync().unwrap();
    assert_eq!(list(&pop(&queue)), [("a", 1)]);
    assert_eq!(
        drain(&queue),
        [Delta::Bookmark(Some(version("7"))), Delta::SyncAll]
    );
}

#[test]
fn r7_atomic_list_is_one_change_with_unchecked_keys() {
    let queue = empty();
    queue.add(thing("a", 1)).unwrap();
    queue
        .replace(
            vec![thing("b", 1), thing("", 2), thing("b", 3)],
            Some(version("9")),
        )
        .unwrap();
    assert_eq!(pop(&queue), added("a", 1));
    let popped = pop(&queue);
    assert_eq!(list(&popped), [("b", 1), ("", 2), ("b", 3)]);
    let Delta::ReplacedAll(popped) = popped else {
        panic!()
    };
    assert_eq!(popped.resource_version, Some(version("9")));
}

#[test]
fn r7_atomic_list_with_failed_transform_queues_nothing() {
    let queue = transforming();
    for bad in [50, 51] {
        let failed = queue.replace(vec![thing("a", 1), thing("b", bad)], Some(version("1")));
        assert!(
            matches!(failed, Err(StoreError::Transform { key: Some(key), .. }) if &*key == "b")
        );
    }
    assert!(queue.is_empty() && !queue.has_synced());
    queue
        .replace(vec![thing("", 1)], Some(version("1")))
        .unwrap();
    assert_eq!(list(&pop(&queue)), [("", 2)]);
}

#[test]
fn r8_synced_when_the_first_list_is_processed() {
    let queue = empty();
    queue.bookmark(Some(version("1"))).unwrap();
    queue
        .replace(vec![thing("a", 1)], Some(version("2")))
        .unwrap();
    queue.add(thing("b", 1)).unwrap();
    pop(&queue);
    assert!(
        !queue.has_synced(),
        "a bookmark before the list also counts"
    );
    let seen = queue.pop(&mut |_, origin| {
        assert_eq!(origin, Origin::InitialList);
        assert!(
            !queue.has_synced(),
            "r13: an item counts once its processing has ended"
        );
        Err("no matter".into())
    });
    assert!(seen.is_err() && queue.has_synced());
    queue
        .pop(&mut |_, origin| match origin {
            Origin::InitialList => Err("initial".into()),
            Origin::Later => Ok(()),
        })
        .unwrap();

    let queue = RealFifo::new(accessor());
    queue.replace(Vec::new(), Some(version("1"))).unwrap();
    assert!(
        !queue.has_synced(),
        "an empty list is a change to be processed"
    );
    pop(&queue);
    assert!(queue.has_synced());
}

#[test]
fn r9_resync_is_queued_even_if_events_are_waiting() {
    let queue = empty();
    queue.add(thing("a", 1)).unwrap();
    queue.resync().unwrap();
    assert_eq!(drain(&queue), [added("a", 1), Delta::SyncAll]);
}

#[test]
fn r11_bookmarks_do_not_populate() {
    let queue = empty();
    queue.bookmark(Some(version("7"))).unwrap();
    assert!(!queue.has_synced());
    assert_eq!(pop(&queue), Delta::Bookmark(Some(version("7"))));
    assert!(!queue.has_synced());
}

#[test]
fn r12_pop_takes_one_change_and_flags_initial_list() {
    let queue = empty();
    queue
        .replace(vec![thing("a", 1)], Some(version("1")))
        .unwrap();
    queue.update(thing("a", 2)).unwrap();
    let mut flags = Vec::new();
    for _ in 0..2 {
        let pop = queue.pop(&mut |_, origin| {
            flags.push(origin);
            Ok(())
        });
        assert_eq!(pop.unwrap().len(), 1);
    }
    assert_eq!(flags, [Origin::InitialList, Origin::Later]);
}

#[test]
fn r13_sync_waits_for_list_received_during_a_bookmark() {
    let queue = empty();
    queue.bookmark(Some(version("1"))).unwrap();
    queue
        .pop(&mut |_, _| Ok(queue.replace(vec![thing("a", 1)], Some(version("2")))?))
        .unwrap();
    assert!(!queue.has_synced());
    queue
        .pop(&mut |_, origin| match origin {
            Origin::InitialList => Ok(()),
            Origin::Later => Err("not initial".into()),
        })
        .unwrap();
    assert!(queue.has_synced());
}

#[test]
fn r14_r17_keys_of_a_batch_are_distinct() {
    let queue = empty();
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
    let queue = empty();
    queue.bookmark(Some(version("1"))).unwrap();
    pop(&queue);
    queue.delete(gone("a", 1)).unwrap();
    assert!(queue.has_synced(), "a write before the first list");
    queue.add(thing("b", 1)).unwrap();
    assert_eq!(batch(&queue), (vec!["a".into(), "b".into()], false));
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
    let queue = empty();
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    queue
        .replace(vec![thing("c", 1)], Some(version("1")))
        .unwrap();
    queue.bookmark(Some(version("2"))).unwrap();
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
    let queue = transforming();
    for value in [1, 52, 1] {
        queue.add(thing("a", value)).unwrap();
    }
    // The second one keeps the key that it had before the transform.
    assert_eq!(batch(&queue), (vec!["a".into(), "a".into()], false));
    assert_eq!(batch(&queue), (vec!["!a".into()], false));
}

#[test]
fn r17_failed_batch_is_returned_and_not_requeued() {
    let queue = empty();
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
fn r19_writers_wait_only_if_many_items_are_queued() {
    with_timeout(|| {
        for (queued, expected) in [(1, true), (2000, true), (2001, false)] {
            let queue = empty();
            for _ in 0..queued {
                queue.add(thing("a", 1)).unwrap();
            }
            // The absence of a write can only be shown by waiting.
            let timeout = Duration::from_millis(if expected { 5000 } else { 20 });
            let written_meanwhile = writes_meanwhile(&queue, timeout);
            assert_eq!(written_meanwhile, expected, "{queued} queued");
        }
    });
}

#[test]
fn process_may_use_the_queue_but_not_pop() {
    with_timeout(|| {
        let queue = empty();
        queue.add(thing("a", 1)).unwrap();
        queue
            .pop(&mut |_, _| {
                queue.add(thing("b", 1))?;
                queue.replace(vec![thing("c", 1)], Some(version("1")))?;
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
    });
}

#[test]
fn r20_popped_items_are_not_retained() {
    let queue = empty();
    let object = thing("a", 1);
    queue.add(object.clone()).unwrap();
    queue.add(thing("b", 1)).unwrap();
    pop(&queue);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn r21_close_wakes_every_pop_and_keeps_queued_items() {
    with_timeout(|| {
        let queue = empty();
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
    assert!(empty().transformer().is_none());
    let queue = transforming();
    assert_eq!(
        *queue.transformer().unwrap().apply(thing("a", 2)).unwrap(),
        ("a", 4)
    );
}

#[test]
fn queued_items_can_be_read() {
    let queue = empty();
    queue.add(thing("b", 1)).unwrap();
    queue.add(thing("a", 1)).unwrap();
    queue.update(thing("b", 2)).unwrap();
    queue.resync().unwrap();
    assert_eq!(queue.list_keys(), ["b", "a"]);
    assert_eq!(queue.list().len(), 4);
}
