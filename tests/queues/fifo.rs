//! `Fifo` through its public API. Ports the essence of client-go's fifo_test, and tests processing
//! without the lock.

use std::sync::{Arc, mpsc};
use std::thread;

use k8s_informer::Deleted;
use k8s_informer::object::{Accessor, Key};
use k8s_informer::queue::{Fifo, Origin, PopError, ProcessError};
use k8s_informer::store::{ReflectorStore, StoreError};

use super::things::{Thing, accessor, gone, thing, version, with_timeout};

pub(crate) type Action = fn(&Fifo<Thing>);

pub(crate) fn queue() -> Fifo<Thing> {
    Fifo::new(accessor())
}

/// A queue with its first list.
pub(crate) fn queue_with_list(things: &[Thing]) -> Fifo<Thing> {
    let queue = queue();
    queue
        .replace(
            things.iter().map(|thing| Arc::new(*thing)).collect(),
            Some(version("1")),
        )
        .unwrap();
    queue
}

/// Pops a thing, and returns whether it is part of the initial list.
pub(crate) fn pop(queue: &Fifo<Thing>) -> (Thing, bool) {
    pop_with(queue, |_| Ok(()))
}

pub(crate) fn pop_with(
    queue: &Fifo<Thing>,
    process: impl Fn(&Thing) -> Result<(), ProcessError>,
) -> (Thing, bool) {
    assert!(!queue.is_empty(), "pop would block");
    let mut initial = None;
    let popped = queue.pop(&mut |thing, origin| {
        initial = Some(origin == Origin::InitialList);
        process(thing)
    });
    (*popped.unwrap(), initial.unwrap())
}

pub(crate) fn drain(queue: &Fifo<Thing>) -> Vec<Thing> {
    std::iter::from_fn(|| (!queue.is_empty()).then(|| pop(queue).0)).collect()
}

pub(crate) fn failure(result: Result<Arc<Thing>, PopError<Arc<Thing>>>) -> (Thing, String) {
    let Err(PopError::Process { popped, error }) = result else {
        panic!("processing did not fail")
    };
    (*popped, error.to_string())
}

#[test]
fn f1_pop_returns_newest_state_at_the_first_position() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    queue.update(thing("c", 1)).unwrap();
    queue.update(thing("a", 2)).unwrap();
    queue.add(thing("b", 2)).unwrap();
    assert_eq!(drain(&queue), [("a", 2), ("b", 2), ("c", 1)]);
}

#[test]
fn f1_key_readded_after_pop_moves_to_the_end() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    pop(&queue);
    queue.add(thing("a", 2)).unwrap();
    assert_eq!(drain(&queue), [("b", 1), ("a", 2)]);
}

#[test]
fn f2_deleted_keys_are_not_popped() {
    let queue = queue();
    for key in ["a", "b", "c", "d"] {
        queue.add(thing(key, 1)).unwrap();
    }
    queue.delete(gone("b", 0)).unwrap();
    queue.delete(gone("never seen", 0)).unwrap();
    queue
        .delete(Deleted::FinalStateUnknown {
            key: "c".into(),
            last_known: None,
        })
        .unwrap();
    assert_eq!((queue.len(), drain(&queue)), (2, vec![("a", 1), ("d", 1)]));
}

#[test]
fn f2_key_readded_before_pop_keeps_its_place() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(thing(key, 1)).unwrap();
    }
    for value in 2..4 {
        queue.delete(gone("a", 0)).unwrap();
        queue.add(thing("a", value)).unwrap();
    }
    assert_eq!(queue.list_keys(), ["a", "b", "c"].map(Key::from));
    assert_eq!(drain(&queue), [("a", 3), ("b", 1), ("c", 1)]);
    // The drain has removed the old positions, so new adds go to the end.
    queue.add(thing("b", 4)).unwrap();
    assert_eq!(drain(&queue), [("b", 4)]);
    queue.add(thing("b", 5)).unwrap();
    queue.add(thing("a", 5)).unwrap();
    assert_eq!(drain(&queue), [("b", 5), ("a", 5)]);
}

#[test]
fn f2_f5_deleted_initial_key_delays_sync_until_pop_passes_it() {
    let queue = queue_with_list(&[("a", 1), ("b", 1), ("c", 1)]);
    queue.delete(gone("b", 0)).unwrap();
    queue.delete(gone("c", 0)).unwrap();
    assert_eq!(pop(&queue), (("a", 1), true));
    assert!(!queue.has_synced());
    queue.add(thing("d", 1)).unwrap();
    assert!(!queue.has_synced());
    assert_eq!(
        pop(&queue),
        (("d", 1), true),
        "the pop that passes the deleted keys is still initial"
    );
    assert!(queue.has_synced());
    queue.add(thing("d", 2)).unwrap();
    assert_eq!(pop(&queue), (("d", 2), false));
}

#[test]
fn f2_f5_readded_initial_key_keeps_its_place() {
    let queue = queue_with_list(&[("a", 1), ("b", 1)]);
    queue.delete(gone("a", 0)).unwrap();
    queue.add(thing("a", 2)).unwrap();
    assert_eq!(
        [pop(&queue), pop(&queue)],
        [(("a", 2), true), (("b", 1), true)]
    );
    assert!(queue.has_synced(), "the re-added key must not count twice");
}

#[test]
fn f2_f5_pop_of_only_deleted_keys_completes_the_sync() {
    with_timeout(|| {
        let queue = queue_with_list(&[("a", 1)]);
        queue.delete(gone("a", 0)).unwrap();
        queue.close();
        assert!(!queue.has_synced());
        assert!(matches!(
            queue.pop(&mut |_, _| Ok(())),
            Err(PopError::Closed)
        ));
        assert!(queue.has_synced());
    });
}

#[test]
fn f2_f5_waiting_pop_passes_deleted_keys() {
    with_timeout(|| {
        let queue = Arc::new(queue_with_list(&[("a", 1), ("b", 1)]));
        let (sender, started) = mpsc::channel();
        pop_with(&queue, |_| {
            let (queue, sender) = (Arc::clone(&queue), sender.clone());
            queue.delete(gone("b", 0))?;
            drop(thread::spawn(move || {
                sender.send(()).unwrap();
                drop(queue.pop(&mut |_, _| Ok(())));
            }));
            started.recv().unwrap();
            (0..1000).for_each(|_| thread::yield_now());
            Ok(())
        });
        queue.synced().wait();
        queue.close();
    });
}

#[test]
fn f3_replace_discards_old_items_and_keeps_list_order() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    let list = [("d", 2), ("b", 2), ("c", 2), ("b", 3)]
        .map(Arc::new)
        .to_vec();
    queue.replace(list, Some(version("2"))).unwrap();
    assert_eq!(drain(&queue), [("d", 2), ("b", 3), ("c", 2)]);
    queue.add(thing("a", 1)).unwrap();
    queue.replace(Vec::new(), Some(version("3"))).unwrap();
    assert!(queue.is_empty() && queue.list().is_empty());
}

#[test]
fn f3_sync_waits_for_the_key_count_of_the_first_list_only() {
    let queue = queue_with_list(&[("a", 1), ("a", 2), ("b", 1)]);
    queue
        .replace(vec![thing("x", 1)], Some(version("2")))
        .unwrap();
    assert_eq!(pop(&queue), (("x", 1), true));
    assert!(!queue.has_synced(), "the first list had two keys");
    queue
        .replace(vec![thing("y", 1), thing("z", 1)], Some(version("3")))
        .unwrap();
    assert_eq!(pop(&queue), (("y", 1), true));
    assert!(queue.has_synced());
    assert_eq!(pop(&queue), (("z", 1), false));
}

#[test]
fn f3_list_with_keyless_object_leaves_queue_unchanged() {
    for bad in [thing("", 1), thing("panic", 1)] {
        let queue = queue();
        let list = || vec![thing("a", 1), Arc::clone(&bad), thing("b", 1)];
        assert!(matches!(
            queue.replace(list(), Some(version("1"))),
            Err(StoreError::Key(_))
        ));
        assert!(queue.is_empty() && !queue.has_synced());
        queue
            .replace(vec![thing("c", 1)], Some(version("1")))
            .unwrap();
        assert!(queue.replace(list(), Some(version("2"))).is_err());
        assert_eq!(pop(&queue), (("c", 1), true));
    }
}

#[test]
fn f4_resync_does_nothing() {
    let queue = queue_with_list(&[("a", 1)]);
    queue.add(thing("b", 1)).unwrap();
    queue.delete(gone("a", 0)).unwrap();
    queue.resync().unwrap();
    assert!(!queue.has_synced());
    assert_eq!(drain(&queue), [("b", 1)]);
}

/// The cases are those of the table in client-go's test.
#[test]
fn f5_synced_matches_the_table_of_client_go() {
    let pop: Action = |queue| _ = pop(queue);
    let list: Action = |queue| {
        queue
            .replace(vec![thing("a", 1), thing("b", 1)], Some(version("0")))
            .unwrap();
    };
    let empty: Action = |queue| queue.replace(Vec::new(), Some(version("0"))).unwrap();
    let add: Action = |queue| queue.add(thing("a", 1)).unwrap();
    let delete: Action = |queue| queue.delete(gone("a", 0)).unwrap();
    let bad: Action = |queue| {
        assert!(queue.add(thing("", 1)).is_err());
        assert!(queue.delete(gone("panic", 0)).is_err());
    };
    let cases: [(&[Action], bool); 10] = [
        (&[], false),
        (&[bad], false),
        (&[add], true),
        (&[delete], true),
        (&[empty], true),
        (&[add, list], true),
        (&[list], false),
        (&[list, pop], false),
        (&[list, add, pop, pop], true),
        (&[empty, list], true),
    ];
    for (number, (actions, synced)) in cases.into_iter().enumerate() {
        let queue = queue();
        actions.iter().for_each(|action| action(&queue));
        assert_eq!(
            (queue.has_synced(), queue.synced().is_done()),
            (synced, synced),
            "case {number}"
        );
    }
}

#[test]
fn f6_pop_blocks_until_an_object_is_queued() {
    with_timeout(|| {
        let writes: [Action; 2] = [
            |queue| queue.add(thing("a", 1)).unwrap(),
            |queue| {
                queue
                    .replace(vec![thing("a", 1)], Some(version("1")))
                    .unwrap();
            },
        ];
        let queue = Arc::new(queue());
        for write in writes {
            let popping = Arc::clone(&queue);
            let popped = thread::spawn(move || *popping.pop(&mut |_, _| Ok(())).unwrap());
            write(&queue);
            assert_eq!(popped.join().unwrap(), ("a", 1));
        }
    });
}

#[test]
fn f6_process_error_or_panic_returns_object_without_requeue() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    let result = queue.pop(&mut |_, _| Err("no".into()));
    assert_eq!(failure(result), (("a", 1), "no".to_owned()));
    queue.add(thing("a", 2)).unwrap();
    let result = queue.pop(&mut |_, _| panic!("oh"));
    assert_eq!(failure(result), (("a", 2), "panicked: oh".to_owned()));
    assert!(queue.is_empty());
    queue.add(thing("a", 3)).unwrap();
    assert_eq!(drain(&queue), [("a", 3)]);
}

#[test]
fn f6_process_may_use_the_queue() {
    with_timeout(|| {
        let queue = queue_with_list(&[("a", 1)]);
        pop_with(&queue, |popped| {
            assert_eq!((*popped, queue.len()), (("a", 1), 0));
            queue.add(thing("b", 1))?;
            queue.update(thing("a", 2))?;
            queue.delete(gone("b", 0))?;
            queue.resync()?;
            queue.add(thing("c", 1))?;
            assert!(
                !queue.has_synced(),
                "a of the initial list is still being processed"
            );
            assert_eq!(queue.list(), [thing("a", 2), thing("c", 1)]);
            queue.replace(vec![thing("c", 2), thing("a", 3)], Some(version("2")))?;
            queue.close();
            Ok(())
        });
        assert!(queue.has_synced() && queue.is_closed());
        assert_eq!(drain(&queue), [("c", 2), ("a", 3)]);
    });
}

#[test]
fn f6_pop_during_process_fails_without_deadlock() {
    with_timeout(|| {
        let queue = queue();
        queue.add(thing("a", 1)).unwrap();
        queue.add(thing("b", 1)).unwrap();
        let (popped, error) = failure(queue.pop(&mut |_, _| {
            queue.pop(&mut |_, _| Ok(())).unwrap();
            Ok(())
        }));
        assert_eq!(popped, ("a", 1));
        assert!(error.contains("must not pop"), "{error}");
        assert_eq!(drain(&queue), [("b", 1)]);
    });
}

#[test]
fn f7_close_wakes_every_pop_and_keeps_queued_items() {
    with_timeout(|| {
        let queue = Arc::new(queue());
        let pop = |_| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.pop(&mut |_, _| Ok(())))
        };
        let threads: Vec<_> = (0..10).map(pop).collect();
        queue.close();
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Err(PopError::Closed)));
        }
        assert!(queue.is_closed());
        queue.add(thing("a", 1)).unwrap();
        queue.add(thing("b", 1)).unwrap();
        assert_eq!(drain(&queue), [("a", 1), ("b", 1)]);
        queue
            .replace(vec![thing("c", 1)], Some(version("1")))
            .unwrap();
        assert!(queue.pop(&mut |_, _| Err("no".into())).is_err());
        queue.add(thing("c", 1)).unwrap();
        assert_eq!(drain(&queue), [("c", 1)]);
        assert!(matches!(
            queue.pop(&mut |_, _| Ok(())),
            Err(PopError::Closed)
        ));
    });
}

/// A close also ends the pops that wait while another pop processes its item.
#[test]
fn f7_close_during_processing_wakes_waiting_pops() {
    with_timeout(|| {
        let queue = Arc::new(queue());
        queue.add(thing("a", 1)).unwrap();
        let mut threads = Vec::new();
        pop_with(&queue, |_| {
            queue.close();
            Ok(())
        });
        queue.add(thing("b", 1)).unwrap();
        let result = queue.pop(&mut |_, _| {
            threads.extend((0..5).map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.pop(&mut |_, _| Ok(())))
            }));
            queue.close();
            Ok(())
        });
        assert_eq!(*result.unwrap(), ("b", 1));
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Err(PopError::Closed)));
        }
    });
}

#[test]
fn f8_synced_after_last_initial_object_is_processed() {
    for fails in [false, true] {
        let queue = queue_with_list(&[("a", 1), ("b", 1)]);
        let synced = queue.synced();
        assert_eq!(pop(&queue), (("a", 1), true));
        let result = queue.pop(&mut |_, origin| {
            queue.add(thing("c", 1))?;
            assert_eq!(origin, Origin::InitialList);
            assert!(!synced.is_done() && !queue.has_synced());
            if fails { Err("failed".into()) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), fails);
        assert!(synced.is_done() && queue.has_synced());
        assert_eq!(pop(&queue), (("c", 1), false));
    }
}

#[test]
fn reads_return_queued_objects() {
    let queue = queue();
    queue.add(thing("b", 1)).unwrap();
    queue.add(thing("a", 1)).unwrap();
    assert_eq!(queue.list(), [thing("b", 1), thing("a", 1)]);
    assert_eq!((queue.len(), queue.is_empty()), (2, false));
    pop_with(&queue, |_| {
        assert_eq!(
            format!("{queue:?}"),
            r#"Fifo { len: 1, in_flight: true, synced: true, closed: false, .. }"#
        );
        Ok(())
    });
}

#[test]
fn empty_and_huge_keys_are_accepted() {
    let queue = Fifo::new(Accessor::new(|key: &String| Ok(key.as_str().into())));
    let huge = Arc::new("k".repeat(1 << 20));
    queue.add(Arc::clone(&huge)).unwrap();
    queue.add(Arc::default()).unwrap();
    queue.delete(Deleted::Final(Arc::clone(&huge))).unwrap();
    queue.add(Arc::clone(&huge)).unwrap();
    assert_eq!(queue.pop(&mut |_, _| Ok(())).unwrap(), huge);
    assert_eq!(*queue.pop(&mut |_, _| Ok(())).unwrap(), "");
}
