//! `Heap` through its public API. Ports the essence of client-go's heap_test, and tests comparisons
//! without the lock.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::atomic::{self, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::thread;

use k8s_informer::object::{Accessor, Key, KeyError};
use k8s_informer::queue::{Heap, PopError, Refused};
use k8s_informer::store::StoreError;

use super::things::{Thing, accessor, thing, with_timeout};

/// Compares by value. The value 99 cannot be compared.
fn compare(a: &Thing, b: &Thing) -> Ordering {
    assert!(a.1 != 99 && b.1 != 99, "incomparable");
    a.1.cmp(&b.1)
}

fn heap(things: &[Thing]) -> Heap<Thing> {
    let heap = Heap::new(accessor(), compare);
    heap.bulk_add(things.iter().map(|thing| Arc::new(*thing)).collect())
        .unwrap();
    heap
}

fn drain<T>(heap: &Heap<T>) -> Vec<Arc<T>> {
    std::iter::from_fn(|| (!heap.is_empty()).then(|| heap.pop().unwrap())).collect()
}

fn things(objects: Vec<Arc<Thing>>) -> Vec<Thing> {
    objects.iter().map(|object| **object).collect()
}

fn refused<R, V>(result: Result<R, Refused<V>>) -> (V, StoreError) {
    let Err(Refused { value, reason }) = result else {
        panic!("not refused")
    };
    (value, reason)
}

#[test]
fn f9_pop_returns_the_smallest_object() {
    let numbers = |compare: fn(&u32, &u32) -> Ordering| {
        let heap = Heap::new(
            Accessor::new(|number: &u32| Ok(number.to_string().into())),
            compare,
        );
        for number in 0..500 {
            heap.add(Arc::new(number * 7919 % 500)).unwrap();
        }
        drain(&heap)
            .iter()
            .map(|number| **number)
            .collect::<Vec<_>>()
    };
    assert!(numbers(u32::cmp).into_iter().eq(0..500));
    assert!(numbers(|a, b| b.cmp(a)).into_iter().eq((0..500).rev()));
}

#[test]
fn f9_equal_objects_are_popped_in_write_order() {
    let heap = heap(&[("a", 2), ("b", 1), ("c", 1), ("d", 2), ("e", 1)]);
    heap.add(thing("a", 1)).unwrap();
    heap.add(thing("c", 1)).unwrap();
    heap.add(thing("b", 2)).unwrap();
    assert_eq!(
        things(drain(&heap)),
        [("c", 1), ("e", 1), ("a", 1), ("d", 2), ("b", 2)]
    );
}

#[test]
fn f9_add_and_update_move_an_object_to_its_new_position() {
    let heap = heap(&[("foo", 10), ("bar", 1), ("baz", 11), ("zab", 30)]);
    heap.add(thing("baz", 0)).unwrap();
    assert_eq!((heap.len(), *heap.pop().unwrap()), (4, ("baz", 0)));
    heap.update(thing("bar", 20)).unwrap();
    heap.update(thing("new", 15)).unwrap();
    assert_eq!(
        things(drain(&heap)),
        [("foo", 10), ("new", 15), ("bar", 20), ("zab", 30)]
    );
}

#[test]
fn f9_pop_waits_until_a_bulk_add_is_complete() {
    with_timeout(|| {
        let heap = Arc::new(heap(&[]));
        let popping = Arc::clone(&heap);
        let popped = thread::spawn(move || {
            (0..500)
                .map(|_| popping.pop().unwrap().1)
                .collect::<Vec<_>>()
        });
        let names = || (0..500).map(|number| &*number.to_string().leak());
        heap.bulk_add(names().zip((1000..1500).rev()).map(Arc::new).collect())
            .unwrap();
        assert!(popped.join().unwrap().into_iter().eq(1000..1500));
    });
}

#[test]
fn f9_bulk_add_keeps_objects_before_a_keyless_one() {
    for bad in [thing("", 2), thing("panic", 2)] {
        let heap = heap(&[]);
        let list = vec![
            thing("a", 3),
            thing("b", 1),
            thing("a", 2),
            bad,
            thing("c", 1),
        ];
        let (given_back, reason) = refused(heap.bulk_add(list.clone()));
        assert!(matches!(reason, StoreError::Key(_)));
        assert_eq!(given_back, list[3..]);
        assert_eq!(things(drain(&heap)), [("b", 1), ("a", 2)]);
    }
    let heap = heap(&[]);
    heap.bulk_add(Vec::new()).unwrap();
    assert!(heap.is_empty());
}

#[test]
fn f9_add_if_not_present_keeps_the_existing_object() {
    let heap = heap(&[("a", 2), ("b", 3)]);
    assert_eq!(
        heap.add_if_not_present(thing("a", 9)).unwrap(),
        Some(thing("a", 9))
    );
    assert_eq!(heap.add_if_not_present(thing("c", 1)).unwrap(), None);
    assert_eq!(
        refused(heap.add_if_not_present(thing("", 1))).0,
        thing("", 1)
    );
    assert_eq!(things(drain(&heap)), [("c", 1), ("a", 2), ("b", 3)]);
}

#[test]
fn f9_adds_and_bulk_adds_wake_blocked_pops() {
    with_timeout(|| {
        let heap = Arc::new(heap(&[]));
        let (sender, popped) = mpsc::channel();
        for _ in 0..4 {
            let (heap, sender) = (Arc::clone(&heap), sender.clone());
            thread::spawn(move || sender.send(heap.pop().unwrap().0).unwrap());
        }
        heap.add(thing("a", 1)).unwrap();
        assert_eq!(popped.recv().unwrap(), "a");
        heap.add_if_not_present(thing("b", 1)).unwrap();
        assert_eq!(popped.recv().unwrap(), "b");
        heap.bulk_add(vec![thing("c", 1), thing("d", 1)]).unwrap();
        let rest: BTreeSet<_> = [popped.recv().unwrap(), popped.recv().unwrap()].into();
        assert_eq!(rest, ["c", "d"].into());
    });
}

#[test]
fn f9_delete_removes_and_returns_the_object() {
    let heap = heap(&[("foo", 10), ("bar", 1), ("bal", 31), ("baz", 11)]);
    assert_eq!(heap.delete(&("bar", 200)).unwrap(), thing("bar", 1));
    assert!(
        matches!(heap.delete(&("bar", 1)), Err(StoreError::NotFound { key }) if &*key == "bar")
    );
    assert!(matches!(heap.delete(&("", 1)), Err(StoreError::Key(_))));
    assert!(matches!(
        heap.delete(&("panic", 1)),
        Err(StoreError::Key(_))
    ));
    heap.add(thing("zab", 30)).unwrap();
    assert_eq!(heap.delete(&("zab", 0)).unwrap(), thing("zab", 30));
    heap.close();
    assert_eq!(heap.delete(&("baz", 0)).unwrap(), thing("baz", 11));
    assert_eq!(things(drain(&heap)), [("foo", 10), ("bal", 31)]);
}

#[test]
fn f9_reads_return_stored_objects() {
    let heap = heap(&[("foo", 10), ("bar", 1), ("baz", 11)]);
    assert_eq!(heap.get(&("foo", 0)).unwrap(), Some(thing("foo", 10)));
    assert_eq!(heap.get(&("none", 0)).unwrap(), None);
    assert!(heap.get(&("", 0)).is_err());
    assert_eq!(
        (heap.get_by_key("baz"), heap.get_by_key("none")),
        (Some(thing("baz", 11)), None)
    );
    assert_eq!(things(heap.list()), [("bar", 1), ("foo", 10), ("baz", 11)]);
    assert_eq!(heap.list_keys(), ["bar", "foo", "baz"].map(Key::from));
    assert_eq!(
        (heap.len(), heap.is_empty(), heap.is_closed()),
        (3, false, false)
    );
    assert_eq!(format!("{heap:?}"), "Heap { len: 3, closed: false, .. }");
}

#[test]
fn f9_close_wakes_every_pop_and_keeps_queued_items() {
    with_timeout(|| {
        let heap = Arc::new(heap(&[]));
        let pop = |_| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || heap.pop())
        };
        let threads: Vec<_> = (0..10).map(pop).collect();
        heap.close();
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Err(PopError::Closed)));
        }
        assert!(heap.is_closed());
    });
    let heap = heap(&[("a", 2), ("b", 1)]);
    heap.close();
    assert_eq!(things(drain(&heap)), [("b", 1), ("a", 2)]);
    let Err(error @ PopError::Closed) = heap.pop() else {
        panic!("not closed")
    };
    assert_eq!(error.to_string(), "the queue is closed");
}

#[test]
fn f9_closed_heap_rejects_and_returns_written_objects() {
    let heap = heap(&[("a", 1)]);
    heap.close();
    for write in [Heap::add, Heap::update] {
        let (given_back, reason) = refused(write(&heap, thing("a", 2)));
        assert!(matches!(reason, StoreError::Closed) && *given_back == ("a", 2));
        assert!(matches!(
            refused(write(&heap, thing("", 2))).1,
            StoreError::Key(_)
        ));
    }
    for key in ["a", "b"] {
        let (given_back, reason) = refused(heap.add_if_not_present(thing(key, 2)));
        assert!(matches!(reason, StoreError::Closed) && *given_back == (key, 2));
    }
    assert!(matches!(
        refused(heap.add_if_not_present(thing("", 2))).1,
        StoreError::Key(_)
    ));
    let (given_back, reason) = refused(heap.bulk_add(vec![thing("", 2), thing("b", 1)]));
    assert!(matches!(reason, StoreError::Closed));
    assert_eq!(things(given_back), [("", 2), ("b", 1)]);
    assert!(matches!(
        refused(heap.bulk_add(Vec::new())).1,
        StoreError::Closed
    ));
    assert_eq!(things(drain(&heap)), [("a", 1)]);
}

#[test]
fn f9_panicking_comparison_rejects_the_write() {
    let heap = heap(&[("a", 1), ("b", 2), ("c", 3)]);
    for write in [Heap::add, Heap::update] {
        for key in ["b", "new"] {
            let (given_back, reason) = refused(write(&heap, thing(key, 99)));
            assert_eq!(*given_back, (key, 99));
            assert_eq!(
                reason.to_string(),
                format!("comparing {key} panicked: incomparable")
            );
        }
    }
    assert_eq!(
        *refused(heap.add_if_not_present(thing("new", 99))).0,
        ("new", 99)
    );
    let list = vec![thing("c", 0), thing("d", 4), thing("b", 99), thing("e", 5)];
    let (given_back, reason) = refused(heap.bulk_add(list.clone()));
    assert!(matches!(reason, StoreError::Compare { key, .. } if &*key == "b"));
    assert_eq!(given_back, list[2..]);
    assert_eq!(heap.list_keys(), ["c", "a", "b", "d"].map(Key::from));
    assert_eq!(
        things(drain(&heap)),
        [("c", 0), ("a", 1), ("b", 2), ("d", 4)]
    );
}

/// Pops and deletions do not compare. An incomparable object fails only the writes that compare
/// with it.
#[test]
fn f9_incomparable_object_can_be_removed() {
    let heap = heap(&[("a", 99)]);
    assert!(matches!(
        refused(heap.add(thing("b", 1))).1,
        StoreError::Compare { .. }
    ));
    assert!(matches!(
        refused(heap.add(thing("a", 1))).1,
        StoreError::Compare { .. }
    ));
    assert_eq!(*heap.delete(&("a", 0)).unwrap(), ("a", 99));
    heap.add(thing("c", 99)).unwrap();
    assert_eq!(*heap.pop().unwrap(), ("c", 99));
    heap.add(thing("b", 1)).unwrap();
    assert_eq!(things(drain(&heap)), [("b", 1)]);
}

#[test]
fn f9_inconsistent_comparison_loses_no_object() {
    let calls = AtomicUsize::new(0);
    let heap = Heap::new(
        Accessor::new(|number: &usize| Ok((number % 300).to_string().into())),
        move |_, _| {
            [Ordering::Less, Ordering::Greater, Ordering::Equal]
                [calls.fetch_add(1, atomic::Ordering::Relaxed) % 3]
        },
    );
    for number in 0..900 {
        heap.add(Arc::new(number)).unwrap();
        if number % 3 == 0 {
            heap.delete(&number).unwrap();
        }
    }
    assert_eq!((heap.len(), heap.list().len()), (200, 200));
    let popped: BTreeSet<usize> = drain(&heap).into_iter().map(|number| *number).collect();
    assert!(
        popped
            .into_iter()
            .eq((600..900).filter(|number| number % 3 != 0))
    );
}

/// A heap whose comparisons run `action` on it.
fn heap_with_comparison_action(action: fn(&Heap<Thing>)) -> Arc<Heap<Thing>> {
    let own_heap = Arc::new(OnceLock::<Weak<Heap<Thing>>>::new());
    let slot = Arc::clone(&own_heap);
    let heap = Arc::new(Heap::new(accessor(), move |a: &Thing, b: &Thing| {
        action(&slot.get().unwrap().upgrade().unwrap());
        a.1.cmp(&b.1)
    }));
    own_heap.set(Arc::downgrade(&heap)).unwrap();
    heap.add(thing("a", 2)).unwrap();
    heap
}

#[test]
fn f9_comparison_may_read_its_heap() {
    with_timeout(|| {
        let heap = heap_with_comparison_action(|heap| {
            assert_eq!(
                (heap.len(), heap.is_closed(), heap.get_by_key("a")),
                (1, false, Some(thing("a", 2)))
            );
            assert_eq!(
                (things(heap.list()), heap.list_keys()),
                (vec![("a", 2)], vec!["a".into()])
            );
        });
        heap.add(thing("b", 1)).unwrap();
        assert_eq!(things(drain(&heap)), [("b", 1), ("a", 2)]);
    });
}

#[test]
fn f9_reentrant_comparison_is_refused_without_deadlock() {
    with_timeout(|| {
        let actions: [fn(&Heap<Thing>); 5] = [
            |heap| heap.add(thing("x", 1)).unwrap(),
            |heap| drop(heap.add_if_not_present(thing("x", 1))),
            |heap| drop(heap.bulk_add(vec![thing("x", 1)])),
            |heap| drop(heap.delete(&("a", 1))),
            |heap| drop(heap.pop()),
        ];
        for action in actions {
            let heap = heap_with_comparison_action(action);
            let (given_back, reason) = refused(heap.add(thing("b", 1)));
            assert!(
                reason
                    .to_string()
                    .contains("must not write to its heap or pop from it"),
                "{reason}"
            );
            assert_eq!(
                (*given_back, things(drain(&heap))),
                (("b", 1), vec![("a", 2)])
            );
        }
        let heap = heap_with_comparison_action(Heap::close);
        assert!(matches!(
            refused(heap.add(thing("b", 1))).1,
            StoreError::Closed
        ));
        assert_eq!(things(drain(&heap)), [("a", 2)]);
    });
}

/// Each comparison blocks until the test releases it. Meanwhile reads return, and other writes
/// wait.
#[test]
fn f9_reads_proceed_and_writes_wait_during_a_comparison() {
    with_timeout(|| {
        let (entered, in_comparison) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let gate = Mutex::new((entered, wait));
        let heap = Arc::new(Heap::new(accessor(), move |a: &Thing, b: &Thing| {
            if a.1 == 1 {
                let gate = gate.lock().unwrap();
                gate.0.send(()).unwrap();
                gate.1.recv().unwrap();
            }
            compare(a, b)
        }));
        heap.add(thing("a", 2)).unwrap();
        let spawn = |action: fn(&Heap<Thing>)| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || action(&heap))
        };
        let mut threads = vec![spawn(|heap| heap.add(thing("b", 1)).unwrap())];
        in_comparison.recv().unwrap();
        threads.push(spawn(|heap| assert_eq!(*heap.pop().unwrap(), ("b", 1))));
        threads.push(spawn(|heap| drop(heap.delete(&("none", 0)))));
        threads.push(spawn(|heap| heap.add(thing("c", 3)).unwrap()));
        assert_eq!((heap.len(), heap.list_keys()), (1, vec!["a".into()]));
        release.send(()).unwrap();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        // A write that is comparing when the heap closes is rejected.
        let writing = Arc::clone(&heap);
        let writer = thread::spawn(move || writing.add(thing("d", 1)));
        in_comparison.recv().unwrap();
        heap.close();
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert!(matches!(
            refused(writer.join().unwrap()).1,
            StoreError::Closed
        ));
        assert_eq!(things(drain(&heap)), [("a", 2), ("c", 3)]);
    });
}

/// Objects that are replaced, deleted or popped are dropped outside the lock and while no write
/// compares.
#[test]
fn f9_object_destructors_may_use_the_heap() {
    struct Noisy(&'static str, u32, Weak<Heap<Self>>);
    impl Drop for Noisy {
        fn drop(&mut self) {
            if let Some(heap) = self.2.upgrade()
                && self.1 > 0
            {
                let echo = Arc::new(Self("echo", 0, Weak::new()));
                drop((heap.add(echo), heap.len(), heap.list()));
            }
        }
    }
    with_timeout(|| {
        let by_name = Accessor::new(|noisy: &Noisy| match noisy.0 {
            "" => Err(KeyError::new("no key")),
            name => Ok(name.into()),
        });
        let heap = Arc::new(Heap::new(by_name, |a: &Noisy, b: &Noisy| {
            assert!(a.1 != 99, "incomparable");
            a.1.cmp(&b.1)
        }));
        let noisy = |name, value| Arc::new(Noisy(name, value, Arc::downgrade(&heap)));
        let echoed = || heap.delete(&Noisy("echo", 0, Weak::new())).is_ok();
        heap.add(noisy("a", 1)).unwrap();
        heap.add(noisy("a", 2)).unwrap();
        assert!(echoed());
        heap.bulk_add(vec![noisy("a", 3), noisy("a", 4)]).unwrap();
        assert!(echoed());
        assert!(heap.add_if_not_present(noisy("a", 5)).unwrap().is_some());
        assert!(echoed());
        assert!(heap.add(noisy("", 6)).is_err());
        assert!(echoed());
        assert!(
            heap.bulk_add(vec![noisy("a", 7), noisy("a", 99), noisy("b", 8)])
                .is_err()
        );
        assert!(echoed());
        drop(heap.delete(&Noisy("a", 0, Weak::new())));
        assert!(echoed());
        heap.add(noisy("b", 9)).unwrap();
        drop(heap.pop());
        assert!(echoed() && heap.is_empty());
    });
}

#[test]
fn f9_empty_and_huge_keys_are_accepted() {
    let heap = Heap::new(
        Accessor::new(|key: &String| Ok(key.as_str().into())),
        |a: &String, b: &String| a.len().cmp(&b.len()),
    );
    let huge = "k".repeat(1 << 20);
    heap.add(Arc::new(huge.clone())).unwrap();
    heap.add(Arc::new(String::new())).unwrap();
    assert!(heap.get_by_key("").is_some() && heap.get_by_key(&huge).is_some());
    assert_eq!(*heap.pop().unwrap(), "");
    assert_eq!(*heap.delete(&huge).unwrap(), huge);
    assert!(heap.is_empty());
}

/// Each key is written once, so each is popped or deleted once.
#[test]
fn f9_concurrent_use_pops_or_deletes_each_key_once() {
    const PER_PRODUCER: u32 = 3000;
    with_timeout(|| {
        let heap = Arc::new(Heap::new(
            Accessor::new(|number: &u32| Ok(number.to_string().into())),
            |a: &u32, b: &u32| (a % 64).cmp(&(b % 64)),
        ));
        let produce = |producer: u32| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                let mut deleted = Vec::new();
                for number in producer * PER_PRODUCER..(producer + 1) * PER_PRODUCER {
                    match number % 8 {
                        0 => drop(heap.add_if_not_present(Arc::new(number)).unwrap()),
                        1 => heap.bulk_add(vec![Arc::new(number)]).unwrap(),
                        _ => heap.add(Arc::new(number)).unwrap(),
                    }
                    if number % 16 == 0 {
                        deleted.extend(heap.delete(&number).ok().map(|number| *number));
                    }
                }
                deleted
            })
        };
        let consume = |_| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                std::iter::from_fn(|| heap.pop().ok())
                    .map(|number| *number)
                    .collect::<Vec<u32>>()
            })
        };
        let producers: Vec<_> = (0..3).map(produce).collect();
        let consumers: Vec<_> = (0..3).map(consume).collect();
        let mut all: Vec<u32> = producers
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        heap.close();
        all.extend(
            consumers
                .into_iter()
                .flat_map(|thread| thread.join().unwrap()),
        );
        all.sort_unstable();
        assert!(all.into_iter().eq(0..3 * PER_PRODUCER));
    });
}
