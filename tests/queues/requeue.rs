//! Items that a consumer requests again: `Requeue` and `add_if_not_present`, which client-go had
//! until 1.32.

use std::sync::{Arc, Weak};
use std::thread;

use k8s_informer::object::{Accessor, Key, KeyError};
use k8s_informer::queue::{
    Delta, DeltaFifo, DeltaFifoOptions, Deltas, Entry, Fifo, Origin, PopError, ProcessError, Queue,
    RealFifo, Requeue,
};
use k8s_informer::store::{Indexers, ReflectorStore, StoreError};
use k8s_informer::{Deleted, Indexer};

use super::fifo::{Action, drain, failure, pop, pop_with, queue as fifo, queue_with_list};
use super::things::*;
use super::watermark::{each_kind, versioned};

fn again() -> Result<(), ProcessError> {
    Err(Requeue::new().into())
}

fn keys(queue: &DeltaFifo<Thing>) -> Vec<String> {
    queue.list_keys().iter().map(ToString::to_string).collect()
}

fn waiting(queue: &DeltaFifo<Thing>) -> Vec<Vec<Delta<Thing>>> {
    queue.list().iter().map(|deltas| deltas.to_vec()).collect()
}

/// Pops an item and returns its key, and whether it belongs to the initial list.
fn pop_item(
    queue: &dyn Queue<Thing>,
    outcome: impl Fn() -> Result<(), ProcessError>,
) -> (String, bool) {
    let mut initial = None;
    let popped = queue.pop(&mut |_, origin| {
        initial = Some(origin == Origin::InitialList);
        outcome()
    });
    let key = popped.unwrap().key().map(ToString::to_string);
    (key.unwrap_or_default(), initial.unwrap())
}

#[test]
fn f6_requeued_object_moves_to_the_end() {
    let queue = fifo();
    for key in ["a", "b"] {
        queue.add(thing(key, 1)).unwrap();
    }
    pop_with(&queue, |_| {
        queue.add(thing("c", 1))?;
        again()
    });
    assert_eq!(queue.list(), [thing("b", 1), thing("c", 1), thing("a", 1)]);
    let result = queue.pop(&mut |_, _| Err(Requeue::because("not today").into()));
    assert_eq!(failure(result), (("b", 1), "not today".to_owned()));
    assert_eq!(drain(&queue), [("c", 1), ("a", 1), ("b", 1)]);
}

#[test]
fn f6_requeued_object_alone_is_popped_again_immediately() {
    with_timeout(|| {
        let queue = fifo();
        queue.add(thing("a", 1)).unwrap();
        for _ in 0..4 {
            assert_eq!(pop_with(&queue, |_| again()).0, ("a", 1));
        }
        assert_eq!(pop(&queue).0, ("a", 1));
        assert!(queue.is_empty());
    });
}

#[test]
fn f5_requeued_object_counts_once_for_synced() {
    let queue = queue_with_list(&[("a", 1), ("b", 1)]);
    assert_eq!(pop_with(&queue, |_| again()), (("a", 1), true));
    assert!(!queue.has_synced());
    assert_eq!(pop(&queue), (("b", 1), true));
    assert!(queue.has_synced(), "both have been processed once");
    assert_eq!(pop(&queue), (("a", 1), false));
}

#[test]
fn f8_requeued_pop_still_counts_the_deleted_keys_it_skipped() {
    let queue = queue_with_list(&[("a", 1), ("b", 1), ("c", 1)]);
    queue.delete(gone("a", 0)).unwrap();
    assert_eq!(pop_with(&queue, |_| again()), (("b", 1), true));
    assert_eq!(pop(&queue), (("c", 1), true));
    assert!(queue.has_synced());
    assert_eq!(drain(&queue), [("b", 1)]);
}

#[test]
fn f6_write_during_processing_supersedes_the_requeued_object() {
    let rest_after = |write: Action| {
        let queue = queue_with_list(&[("a", 1), ("b", 1)]);
        pop_with(&queue, |_| {
            write(&queue);
            again()
        });
        drain(&queue)
    };
    let cases: [(Action, &[Thing]); 8] = [
        (|_| (), &[("b", 1), ("a", 1)]),
        (
            |queue| queue.add(thing("a", 2)).unwrap(),
            &[("b", 1), ("a", 2)],
        ),
        (
            |queue| assert!(queue.add_if_not_present(thing("a", 0)).unwrap()),
            &[("b", 1), ("a", 0)],
        ),
        (|queue| queue.delete(gone("a", 0)).unwrap(), &[("b", 1)]),
        // Added and deleted again: nothing waits, but the popped object is not the newest state.
        (
            |queue| {
                queue.add(thing("a", 2)).unwrap();
                queue.delete(gone("a", 3)).unwrap();
            },
            &[("b", 1)],
        ),
        (|queue| queue.delete(gone("b", 0)).unwrap(), &[("a", 1)]),
        (
            |queue| {
                queue
                    .replace(vec![thing("c", 2)], Some(version("2")))
                    .unwrap();
            },
            &[("c", 2)],
        ),
        (
            |queue| {
                queue
                    .replace(vec![thing("a", 2)], Some(version("2")))
                    .unwrap();
            },
            &[("a", 2)],
        ),
    ];
    for (number, (write, rest)) in cases.into_iter().enumerate() {
        assert_eq!(rest_after(write), rest, "case {number}");
    }
}

#[test]
fn fifo_add_if_not_present_keeps_the_waiting_object() {
    let queue = fifo();
    assert!(matches!(
        queue.add_if_not_present(thing("", 1)),
        Err(StoreError::Key(_))
    ));
    assert!(!queue.has_synced(), "a failed call is no write");
    assert!(queue.add_if_not_present(thing("a", 1)).unwrap());
    assert!(queue.has_synced(), "the first write populates the queue");
    queue.add(thing("b", 1)).unwrap();
    assert!(!queue.add_if_not_present(thing("a", 2)).unwrap());
    queue.delete(gone("a", 3)).unwrap();
    assert!(queue.add_if_not_present(thing("a", 4)).unwrap());
    assert_eq!(queue.list_keys(), ["a", "b"].map(Key::from), "F2");
    assert_eq!(drain(&queue), [("a", 4), ("b", 1)]);
}

#[test]
fn add_if_not_present_and_requeue_wake_a_pop() {
    with_timeout(|| {
        let queue = Arc::new(fifo());
        let pop = |queue: &Arc<Fifo<Thing>>| {
            let queue = Arc::clone(queue);
            thread::spawn(move || *queue.pop(&mut |_, _| Ok(())).unwrap())
        };
        let first = pop(&queue);
        queue.add_if_not_present(thing("a", 1)).unwrap();
        assert_eq!(first.join().unwrap(), ("a", 1));
        queue.add(thing("b", 1)).unwrap();
        let mut second = None;
        queue
            .pop(&mut |_, _| {
                second = Some(pop(&queue));
                again()
            })
            .unwrap();
        assert_eq!(second.unwrap().join().unwrap(), ("b", 1));
        // A closed queue returns what was put back.
        queue.add(thing("c", 1)).unwrap();
        queue.close();
        queue.pop(&mut |_, _| again()).unwrap();
        assert_eq!(drain(&queue), [("c", 1)]);
        assert!(matches!(
            queue.pop(&mut |_, _| Ok(())),
            Err(PopError::Closed)
        ));
    });
}

#[test]
fn d11_requeued_item_moves_to_the_end() {
    let queue = DeltaFifo::new(accessor());
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    queue.update(thing("a", 2)).unwrap();
    let popped = queue.pop(&mut |_, _| again()).unwrap();
    assert_eq!(popped.to_vec(), [added("a", 1), updated("a", 2)]);
    assert_eq!(keys(&queue), ["b", "a"]);
    let failed = queue.pop(&mut |_, _| Err(Requeue::because("not today").into()));
    let Err(PopError::Process { popped, error }) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (popped.to_vec(), error.to_string()),
        (vec![added("b", 1)], "not today".to_owned())
    );
    assert_eq!(
        waiting(&queue),
        [vec![added("a", 1), updated("a", 2)], vec![added("b", 1)]]
    );
}

#[test]
fn d11_newer_changes_replace_the_requeued_item() {
    let queue = DeltaFifo::new(accessor());
    queue.add(thing("a", 1)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.add(thing("b", 1))?;
            queue.update(thing("a", 2))?;
            again()
        })
        .unwrap();
    assert_eq!(
        waiting(&queue),
        [vec![added("b", 1)], vec![updated("a", 2)]]
    );
}

#[test]
fn d9_d11_resync_does_not_replace_the_requeued_item() {
    let (store, queue) = with_store();
    queue.delete(gone("a", 1)).unwrap();
    queue.add(thing("a", 2)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.resync()?;
            again()
        })
        .unwrap();
    // The resync has queued the state of `a` that was being processed. That is nothing newer.
    assert_eq!(
        waiting(&queue),
        [vec![added("b", 1)], vec![deleted("a", 1), added("a", 2)]]
    );
    // Another state is newer.
    store.delete(gone("a", 1)).unwrap();
    queue.pop(&mut |_, _| Ok(())).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.resync()?;
            queue.update(thing("a", 3))?;
            again()
        })
        .unwrap();
    assert_eq!(waiting(&queue), [vec![sync("a", 2), updated("a", 3)]]);
}

#[test]
fn d8_requeued_item_counts_once_for_synced() {
    let queue = DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().emit_replaced(true));
    queue
        .replace(vec![thing("a", 1), thing("b", 1)], Some(version("1")))
        .unwrap();
    queue.add(thing("c", 1)).unwrap();
    let item = |key: &str, initial| (key.to_owned(), initial);
    assert_eq!(pop_item(&queue, again), item("a", true));
    assert!(!queue.has_synced());
    assert_eq!(pop_item(&queue, || Ok(())), item("b", true));
    assert!(queue.has_synced(), "both have been processed once");
    assert_eq!(pop_item(&queue, || Ok(())), item("c", false));
    assert_eq!(pop_item(&queue, || Ok(())), item("a", false));
    assert!(queue.is_empty());
}

#[test]
fn d11_requeued_batch_keeps_its_order() {
    let queue = DeltaFifo::new(accessor());
    for key in ["a", "b", "c"] {
        queue.add(thing(key, 1)).unwrap();
    }
    let batch = &mut |batch: &[Deltas<Thing>], _: Origin| {
        assert_eq!(batch.len(), 3);
        queue.update(thing("b", 2))?;
        again()
    };
    let popped = queue.pop_batch(batch, &mut |_, _| Ok(())).unwrap();
    assert_eq!(popped.len(), 3);
    assert_eq!(
        waiting(&queue),
        [
            vec![updated("b", 2)],
            vec![added("a", 1)],
            vec![added("c", 1)]
        ]
    );
}

fn with_store() -> (Arc<Indexer<Thing>>, DeltaFifo<Thing>) {
    let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new().known_objects(store.clone()),
    );
    store.add(thing("a", 1)).unwrap();
    (store, queue)
}

#[test]
fn d3_d4_requeued_deletion_is_delivered_once() {
    let (_store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(gone("a", 3))?;
            again()
        })
        .unwrap();
    assert_eq!(waiting(&queue), [vec![deleted("a", 2)]]);

    // Of two deletions, the one that is no tombstone is kept.
    let tombstone = Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known: None,
    };
    queue.pop(&mut |_, _| Ok(())).unwrap();
    queue.delete(tombstone).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(gone("a", 3))?;
            again()
        })
        .unwrap();
    assert_eq!(waiting(&queue), [vec![deleted("a", 3)]]);
}

#[test]
fn d3_deletion_during_a_requeued_one_precedes_newer_add() {
    let (_store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(gone("a", 3))?;
            queue.add(thing("a", 4))?;
            again()
        })
        .unwrap();
    assert_eq!(waiting(&queue), [vec![deleted("a", 3), added("a", 4)]]);
}

#[test]
fn d3_requeued_object_counts_as_known() {
    let (_store, queue) = with_store();
    queue.add(thing("b", 1)).unwrap();
    queue.pop(&mut |_, _| again()).unwrap();
    queue.delete(gone("b", 2)).unwrap();
    assert_eq!(waiting(&queue), [vec![added("b", 1), deleted("b", 2)]]);
}

#[test]
fn delta_fifo_add_if_not_present_keeps_waiting_deltas() {
    let queue = DeltaFifo::new(accessor());
    queue.add(thing("a", 1)).unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert!(queue.add_if_not_present(popped.clone()).unwrap());
    assert_eq!(waiting(&queue), [popped.to_vec()]);
    assert!(!queue.add_if_not_present(popped.clone()).unwrap());
    queue.pop(&mut |_, _| Ok(())).unwrap();
    queue.update(thing("a", 2)).unwrap();
    assert!(!queue.add_if_not_present(popped).unwrap());
    assert_eq!(waiting(&queue), [vec![updated("a", 2)]]);

    let by_object = Deltas::from(vec![added("b", 1)]);
    assert!(queue.add_if_not_present(by_object).unwrap());
    let by_tombstone = Deltas::from(vec![tombstone("c", None)]);
    assert!(queue.add_if_not_present(by_tombstone).unwrap());
    assert_eq!(keys(&queue), ["a", "b", "c"]);
    assert_eq!(queue.list()[1].key().map(|key| &**key), Some("b"));
}

#[test]
fn delta_fifo_add_if_not_present_rejects_bad_deltas() {
    let queue = DeltaFifo::new(accessor());
    let list = RealFifo::new(accessor());
    list.replace(vec![thing("a", 1)], Some(version("1")))
        .unwrap();
    let list = list.pop(&mut |_, _| Ok(())).unwrap();
    let object_and_list = Deltas::from([&list[..], &[added("a", 1)]].concat());
    let no_deltas = Deltas::from(Vec::new());
    let two_objects = Deltas::from(vec![added("a", 1), added("b", 1)]);
    for deltas in [list, object_and_list, no_deltas, two_objects] {
        let added = queue.add_if_not_present(deltas.clone());
        assert!(matches!(added, Err(StoreError::Key(_))), "{deltas:?}");
    }
    assert!(
        queue.is_empty() && !queue.has_synced(),
        "nothing has changed"
    );
    let deltas = Deltas::from(vec![added("a", 1)]);
    assert!(queue.add_if_not_present(deltas).unwrap());
    assert!(queue.has_synced(), "the first write populates the queue");
}

#[test]
fn r17_requeued_changes_stay_in_front() {
    let queue = RealFifo::new(accessor());
    let list = |queue: &RealFifo<Thing>| -> Vec<_> {
        queue
            .list()
            .iter()
            .map(|deltas| deltas[0].clone())
            .collect()
    };
    for key in ["a", "b", "a"] {
        queue.add(thing(key, 1)).unwrap();
    }
    let all = list(&queue);
    queue.pop(&mut |_, _| again()).unwrap();
    assert_eq!(list(&queue), all);
    let batch = &mut |batch: &[Deltas<Thing>], _: Origin| {
        assert_eq!(batch.len(), 2);
        queue.add(thing("c", 1))?;
        again()
    };
    queue.pop_batch(batch, &mut |_, _| Ok(())).unwrap();
    assert_eq!(list(&queue), [&all[..], &[added("c", 1)]].concat());
}

#[test]
fn r13_requeued_changes_count_until_processed() {
    let queue = RealFifo::new(accessor());
    queue
        .replace(vec![thing("a", 1)], Some(version("1")))
        .unwrap();
    assert!(pop_item(&queue, again).1 && !queue.has_synced());
    assert!(pop_item(&queue, || Ok(())).1 && queue.has_synced());

    // A first list behind a requeued change waits for that change (R13).
    let queue = RealFifo::new(accessor());
    queue.resync().unwrap();
    queue
        .pop(&mut |_, _| {
            queue.replace(vec![thing("b", 1)], Some(version("1")))?;
            again()
        })
        .unwrap();
    pop_item(&queue, || Ok(()));
    assert!(!queue.has_synced(), "the list waits");
    pop_item(&queue, || Ok(()));
    assert!(queue.has_synced());
}

#[test]
fn requeued_change_is_not_processed_for_the_watermark() {
    for (kind, _) in each_kind() {
        let queue = kind.queue();
        let processed = queue.processed();
        let process = |outcome: fn() -> Result<(), ProcessError>| {
            queue.pop(&mut |_, _| outcome()).unwrap();
            processed.current()
        };
        queue.update(versioned("a", 5)).unwrap();
        queue.update(versioned("b", 6)).unwrap();
        assert_eq!(process(again), None);
        process(|| Ok(()));
        assert_eq!(process(|| Ok(())), Some(version("6")));

        // The version is reached together with that of the newer change.
        queue.update(versioned("a", 7)).unwrap();
        queue
            .pop(&mut |_, _| {
                queue.update(versioned("a", 8))?;
                again()
            })
            .unwrap();
        assert_eq!(processed.current(), Some(version("6")));
        queue.close();
        while queue.pop(&mut |_, _| Ok(())).is_ok() {
            assert_ne!(processed.current(), Some(version("6")));
        }
        assert_eq!(processed.current(), Some(version("8")));
    }
}

#[test]
fn version_waits_for_deltas_that_are_queued_again() {
    let queue = DeltaFifo::new(super::watermark::accessor());
    let processed = queue.processed();
    queue.update(versioned("a", 5)).unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(processed.current(), Some(version("5")));
    assert!(queue.add_if_not_present(popped).unwrap());
    queue.update(versioned("b", 6)).unwrap();
    let last = queue.list().pop().unwrap();
    assert!(!queue.add_if_not_present(last).unwrap());
    queue.bookmark(Some(version("7"))).unwrap();
    assert_eq!(processed.current(), Some(version("5")));
    queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(processed.current(), Some(version("5")), "b waits");
    queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(processed.current(), Some(version("7")));
}

#[test]
fn r19_requeue_lets_waiting_writers_go_on() {
    with_timeout(|| {
        let queue = Arc::new(RealFifo::new(accessor()));
        for _ in 0..2001 {
            queue.add(thing("a", 1)).unwrap();
        }
        let (popped, taken) = std::sync::mpsc::channel();
        let writer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                taken.recv().unwrap();
                queue.add(thing("b", 1)).unwrap();
            }
        });
        queue
            .pop(&mut |_, _| {
                popped.send(()).unwrap();
                again()
            })
            .unwrap();
        writer.join().unwrap();
        assert_eq!(queue.len(), 2002);
    });
}

/// Calls its queue when dropped.
struct CallsQueueOnDrop(&'static str, Weak<DeltaFifo<Self>>);

impl Drop for CallsQueueOnDrop {
    fn drop(&mut self) {
        let _ = self.1.upgrade().map(|queue| queue.len());
    }
}

#[test]
fn unused_deltas_are_dropped_outside_the_lock() {
    with_timeout(|| {
        let key = |object: &CallsQueueOnDrop| Ok::<_, KeyError>(object.0.into());
        let queue = Arc::new(DeltaFifo::new(Accessor::new(key)));
        let object = || Arc::new(CallsQueueOnDrop("a", Arc::downgrade(&queue)));
        queue.add(object()).unwrap();
        let popped = queue.pop(&mut |_, _| {
            queue.add(object())?;
            again()
        });
        drop(popped.unwrap());
        let unused = Deltas::from(vec![Delta::Added(Entry::new("a".into(), object()))]);
        assert!(!queue.add_if_not_present(unused).unwrap());
        assert_eq!(queue.len(), 1);
    });
}
