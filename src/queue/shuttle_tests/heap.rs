//! Tests of [`Heap`](crate::queue::Heap), whose writers compare without its lock.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Guarantee::NewestConcurrent;
use super::{Item, accessor, arcs, heap};
use crate::queue::Heap;
use crate::store::StoreError;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, any, check, join_all, thread};

#[test]
fn every_pop_gets_an_item() {
    check(|| super::every_pop_gets_an_item(heap(), false, NewestConcurrent));
}

#[test]
fn every_pop_gets_an_item_of_a_list() {
    check(|| super::every_pop_gets_an_item(heap(), true, NewestConcurrent));
}

#[test]
fn every_item_wakes_a_pop() {
    check(|| super::every_item_wakes_a_pop(heap(), NewestConcurrent));
}

#[test]
fn close_at_any_point_loses_no_item() {
    check(|| super::close_at_any_point_loses_no_item(heap(), NewestConcurrent));
}

/// Like [`heap`], but asserts that one write compares at a time, and yields in each comparison.
fn heap_with_exclusive_comparisons() -> Arc<Heap<Item>> {
    let comparing = AtomicBool::new(false);
    Arc::new(Heap::new(accessor(), move |a, b| {
        assert!(
            !comparing.swap(true, Ordering::SeqCst),
            "two writes compare at the same time"
        );
        thread::yield_now();
        comparing.store(false, Ordering::SeqCst);
        b.1.cmp(&a.1)
    }))
}

/// Concurrent writers keep the heap sorted. No item appears twice, and the newest item of each key
/// is popped, deleted or still in the heap.
#[test]
fn concurrent_writers_keep_the_order() {
    check(|| {
        let heap = heap_with_exclusive_comparisons();
        heap.bulk_add(arcs(&[("a", 1), ("b", 2)])).unwrap();
        let out = Arc::new(Mutex::new(Vec::new()));
        let writers = [[("a", 5), ("c", 3)], [("b", 4), ("d", 6)]].map(|items| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || match any(3) {
                0 => heap.bulk_add(arcs(&items)).unwrap(),
                1 => items
                    .map(Arc::new)
                    .into_iter()
                    .for_each(|item| heap.add(item).unwrap()),
                _ => items.map(Arc::new).into_iter().for_each(|item| {
                    if let Some(item) = heap.add_if_not_present(item).unwrap() {
                        heap.update(item).unwrap();
                    }
                }),
            })
        });
        let consumers = [0, 1].map(|kind| {
            let (heap, out) = (Arc::clone(&heap), Arc::clone(&out));
            thread::spawn(move || match kind {
                0 => out.lock().push(*heap.pop().unwrap()),
                _ => ["a", "b"]
                    .iter()
                    .for_each(|key| match heap.delete(&(key, 0)) {
                        Ok(item) => out.lock().push(*item),
                        Err(StoreError::NotFound { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }),
            })
        });
        join_all(writers.into_iter().chain(consumers));
        let left = heap.list();
        assert!(left.is_sorted_by_key(|item| Reverse(item.1)), "{left:?}");
        let mut all = out.lock().clone();
        all.extend(left.iter().map(|item| **item));
        all.sort_unstable();
        assert!(all.is_sorted_by(|a, b| a < b), "duplicate item: {all:?}");
        for newest in [("a", 5), ("b", 4), ("c", 3), ("d", 6)] {
            assert!(all.contains(&newest), "{newest:?} is lost: {all:?}");
        }
    });
}

#[test]
fn concurrent_add_if_not_present_adds_once() {
    check(|| {
        let heap = heap_with_exclusive_comparisons();
        let writers = [1, 2].map(|version| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || heap.add_if_not_present(Arc::new(("a", version))).unwrap())
        });
        let [first, second]: [_; 2] = join_all(writers).try_into().unwrap();
        let (back, added) = match (first, second) {
            (None, Some(back)) => (back, 1),
            (Some(back), None) => (back, 2),
            both => panic!("{both:?}"),
        };
        assert_eq!((back.1, heap.list()), (3 - added, arcs(&[("a", added)])));
    });
}

/// A deletion and a pop compete for one object. The one that does not get the object must not block
/// forever.
#[test]
fn concurrent_delete_and_pop_take_an_object_only_once() {
    check(|| {
        let heap = heap_with_exclusive_comparisons();
        heap.add(Arc::new(("a", 1))).unwrap();
        let popper = thread::spawn({
            let heap = Arc::clone(&heap);
            move || heap.pop().unwrap().0
        });
        let deletion = thread::spawn({
            let heap = Arc::clone(&heap);
            move || heap.delete(&("a", 0)).is_ok()
        });
        heap.add(Arc::new(("b", 0))).unwrap();
        let popped = popper.join().unwrap();
        match deletion.join().unwrap() {
            true => assert_eq!((popped, heap.len()), ("b", 0)),
            false => assert_eq!((popped, heap.list_keys()), ("a", vec!["b".into()])),
        }
    });
}

#[test]
fn closed_heap_rejects_items() {
    check(|| {
        const ADDED: [Item; 3] = [("a", 2), ("b", 3), ("c", 4)];
        let heap = heap_with_exclusive_comparisons();
        heap.add(Arc::new(("a", 1))).unwrap();
        let writers = [(); 2].map(|()| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || match heap.bulk_add(arcs(&ADDED)) {
                Ok(()) => ADDED.len(),
                Err(refused) => {
                    assert!(matches!(refused.reason, StoreError::Closed));
                    let taken = ADDED.len() - refused.value.len();
                    assert_eq!(refused.value, arcs(&ADDED[taken..]));
                    taken
                }
            })
        });
        heap.close();
        let mut left = heap.list();
        let taken = join_all(writers).into_iter().max().unwrap_or_default();
        assert_eq!(heap.list(), left);
        left.sort_unstable();
        let expected = if taken == 0 {
            arcs(&[("a", 1)])
        } else {
            arcs(&ADDED[..taken])
        };
        assert_eq!(left, expected);
    });
}

#[test]
fn bulk_added_items_are_popped_in_order() {
    check(|| {
        let heap = heap_with_exclusive_comparisons();
        let popper = thread::spawn({
            let heap = Arc::clone(&heap);
            move || [(); 3].map(|()| heap.pop().unwrap().1)
        });
        let other = thread::spawn({
            let heap = Arc::clone(&heap);
            move || assert!(heap.delete(&("e", 0)).is_err())
        });
        heap.bulk_add(arcs(&[("a", 1), ("b", 2), ("c", 3)]))
            .unwrap();
        assert_eq!(popper.join().unwrap(), [3, 2, 1]);
        other.join().unwrap();
    });
}
