//! Features of client-go's `DeltaFIFO` in earlier years: requeued deltas, and reads of the queue.

use std::sync::{Arc, Weak};

use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{DeltaFifo, Deltas, PopError, Queue, Requeue};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore};
use k8s_informer::{Deleted, Indexer};

use super::things::*;

fn queue() -> DeltaFifo<Thing> {
    DeltaFifo::builder(accessor()).emit_replaced(true).build()
}

fn keys(queue: &DeltaFifo<Thing>) -> Vec<String> {
    queue
        .list_keys()
        .iter()
        .map(|key| key.to_string())
        .collect()
}

#[test]
fn d11_requeued_item_moves_to_the_end() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    let popped = queue.pop(&mut |_, _| Err(Requeue::new().into())).unwrap();
    assert_eq!(
        popped.to_vec(),
        [added("a", 1)],
        "a requeue without a reason must not fail the pop"
    );
    assert_eq!(keys(&queue), ["b", "a"]);

    let failed = queue.pop(&mut |_, _| Err(Requeue::because("not today").into()));
    let Err(PopError::Process { popped, error }) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (popped.to_vec(), error.to_string()),
        (vec![added("b", 1)], "not today".to_owned())
    );
    assert_eq!(keys(&queue), ["a", "b"]);
}

#[test]
fn d11_changes_during_processing_follow_requeued_deltas() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.update(thing("a", 2))?;
            queue.add(thing("b", 1))?;
            Err(Requeue::new().into())
        })
        .unwrap();
    assert_eq!(keys(&queue), ["a", "b"]);
    assert_eq!(
        queue.get_by_key("a").unwrap().to_vec(),
        [added("a", 1), updated("a", 2)]
    );
}

#[test]
fn d4_requeue_keeps_both_deletions_around_an_add() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue.delete(gone("a", 2)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.add(thing("a", 3))?;
            queue.delete(gone("a", 4))?;
            Err(Requeue::new().into())
        })
        .unwrap();
    let all = [
        added("a", 1),
        deleted("a", 2),
        added("a", 3),
        deleted("a", 4),
    ];
    assert_eq!(queue.get_by_key("a").unwrap().to_vec(), all);
}

#[test]
fn d8_requeued_item_still_belongs_to_the_initial_list() {
    let queue = queue();
    queue
        .replace(vec![thing("a", 1), thing("b", 1)], "1")
        .unwrap();
    queue.add(thing("c", 1)).unwrap();
    let (mut seen, mut first) = (Vec::new(), true);
    while !queue.is_empty() {
        let synced_before = queue.has_synced();
        let popped = queue.pop(&mut |deltas, initial| {
            seen.push((deltas.key().unwrap().to_string(), initial));
            if std::mem::take(&mut first) {
                Err(Requeue::new().into())
            } else {
                Ok(())
            }
        });
        assert_eq!(
            synced_before,
            popped.unwrap().key().map(|key| &**key) == Some("c")
        );
    }
    // `a` is not requeued behind `c`: otherwise the sync would also wait for `c`, which is not in
    // the initial list.
    let expected = [("a", true), ("b", true), ("a", true), ("c", false)];
    assert_eq!(
        seen,
        expected.map(|(key, initial)| (key.to_owned(), initial))
    );
    assert!(queue.has_synced());
}

#[test]
fn add_if_not_present_returns_deltas_if_key_is_queued() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert!(queue.add_if_not_present(popped.clone()).unwrap().is_none());
    assert_eq!(queue.get_by_key("a").unwrap(), popped);
    let back = queue.add_if_not_present(popped.clone()).unwrap();
    assert_eq!(
        back,
        Some(popped),
        "returned, because the key is already queued"
    );

    let by_object = Deltas::from(vec![added("b", 1)]);
    assert!(queue.add_if_not_present(by_object).unwrap().is_none());
    assert_eq!(keys(&queue), ["a", "b"]);
    let refused = queue
        .add_if_not_present(Deltas::from(vec![added("", 1)]))
        .unwrap_err();
    assert_eq!(refused.value.to_vec(), [added("", 1)]);
    assert!(queue.add_if_not_present(Deltas::from(Vec::new())).is_err());
}

#[test]
fn queued_items_can_be_read() {
    let queue = queue();
    queue.add(thing("b", 1)).unwrap();
    queue.add(thing("a", 1)).unwrap();
    queue.update(thing("b", 2)).unwrap();
    assert_eq!(keys(&queue), ["b", "a"]);
    let list: Vec<usize> = queue.list().iter().map(|deltas| deltas.len()).collect();
    assert_eq!(list, [2, 1]);
    assert_eq!(
        queue.get(&("b", 9)).unwrap().unwrap().newest(),
        Some(&updated("b", 2))
    );
    assert!(queue.get(&("c", 9)).unwrap().is_none());
    assert!(queue.get(&("", 9)).is_err());
    assert!(queue.get(&("panic", 9)).is_err());
}

fn with_store() -> (Arc<Indexer<Thing>>, DeltaFifo<Thing>) {
    let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
    let queue = DeltaFifo::builder(accessor())
        .known_objects(store.clone())
        .emit_replaced(true)
        .build();
    store.add(thing("a", 1)).unwrap();
    (store, queue)
}

#[test]
fn d3_deletion_during_a_failing_deletion_is_queued() {
    let (store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    let failed = queue.pop(&mut |_, _| {
        queue.delete(gone("a", 3))?;
        Err("no".into())
    });
    assert!(failed.is_err());
    assert!(
        store.get_by_key("a").is_some(),
        "the store must still have the object"
    );
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [deleted("a", 3)]
    );
}

#[test]
fn d3_deletion_during_a_panicking_one_precedes_newer_add() {
    let (_store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    let failed = queue.pop(&mut |_, _| {
        queue.delete(gone("a", 3))?;
        queue.add(thing("a", 4))?;
        panic!("oh")
    });
    assert!(failed.is_err());
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [deleted("a", 3), added("a", 4)]
    );
}

#[test]
fn d6_list_during_a_failing_deletion_queues_a_tombstone() {
    let (_store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    let failed = queue.pop(&mut |_, _| {
        queue.replace(vec![thing("b", 1)], "9")?;
        Err("no".into())
    });
    assert!(failed.is_err());
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [replaced("b", 1)]
    );
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [tombstone("a", Some(thing("a", 1)))]
    );
}

#[test]
fn d3_deletion_during_a_successful_one_is_dropped() {
    let (store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(gone("a", 3))?;
            queue.replace(Vec::new(), "9")?;
            store.delete(gone("a", 2))?;
            Ok(())
        })
        .unwrap();
    assert!(queue.is_empty(), "{:?}", queue.list());

    // If the processing of a deletion fails after it has removed the object from the store, the
    // queue also drops the second deletion.
    store.add(thing("a", 1)).unwrap();
    queue.delete(gone("a", 2)).unwrap();
    let failed = queue.pop(&mut |_, _| {
        store.delete(gone("a", 2))?;
        queue.delete(gone("a", 3))?;
        Err("afterwards".into())
    });
    assert!(failed.is_err() && queue.is_empty());
    assert!(matches!(KnownObjects::lookup(&*store, "a"), Ok(None)));
}

#[test]
fn d11_requeued_deletion_is_delivered_once() {
    let (_store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(gone("a", 3))?;
            Err(Requeue::new().into())
        })
        .unwrap();
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [deleted("a", 2)]
    );
    assert!(queue.is_empty());
}

#[test]
fn popped_deltas_have_the_key_they_were_queued_under() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue
        .delete(Deleted::FinalStateUnknown {
            key: "a".into(),
            last_known: None,
        })
        .unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(popped.key().map(|key| &**key), Some("a"));
    assert_eq!(
        popped,
        Deltas::from(popped.to_vec()),
        "the key must not affect equality"
    );
}

#[test]
fn add_if_not_present_sets_the_key_of_keyless_deltas() {
    let queue = queue();
    queue
        .add_if_not_present(vec![added("a", 1)].into())
        .unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(popped.key().map(|key| &**key), Some("a"));
}

/// Calls its queue when dropped.
struct CallsQueueOnDrop(Weak<DeltaFifo<Self>>);

impl Drop for CallsQueueOnDrop {
    fn drop(&mut self) {
        let _ = self.0.upgrade().map(|queue| queue.len());
    }
}

#[test]
fn redundant_second_delete_is_dropped_outside_the_lock() {
    with_timeout(|| {
        let accessor = || Accessor::new(|_: &CallsQueueOnDrop| Ok::<_, KeyError>("a".into()));
        let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
        let queue = Arc::new(DeltaFifo::builder(accessor()).known_objects(store).build());
        let object = || Arc::new(CallsQueueOnDrop(Arc::downgrade(&queue)));
        queue.add(object()).unwrap();
        queue.delete(Deleted::Final(object())).unwrap();
        queue
            .pop(&mut |_, _| Ok(queue.delete(Deleted::Final(object()))?))
            .unwrap();
        assert!(queue.is_empty());
    });
}
