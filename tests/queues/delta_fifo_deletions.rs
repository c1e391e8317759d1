//! Deletions that a `DeltaFifo` receives during processing, and reads of the queue.

use std::sync::{Arc, Weak};

use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{DeltaFifo, DeltaFifoOptions, Deltas, Queue};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore};
use k8s_informer::{Deleted, Indexer};

use super::things::*;

fn queue() -> DeltaFifo<Thing> {
    DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().emit_replaced(true))
}

fn keys(queue: &DeltaFifo<Thing>) -> Vec<String> {
    queue
        .list_keys()
        .iter()
        .map(|key| key.to_string())
        .collect()
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
    assert_eq!(queue.list()[0].newest(), Some(&updated("b", 2)));
}

fn with_store() -> (Arc<Indexer<Thing>>, DeltaFifo<Thing>) {
    let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new()
            .known_objects(store.clone())
            .emit_replaced(true),
    );
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
        queue.replace(vec![thing("b", 1)], Some(version("9")))?;
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
            queue.replace(Vec::new(), Some(version("9")))?;
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
        let queue = Arc::new(DeltaFifo::with_options(
            accessor(),
            DeltaFifoOptions::new().known_objects(store),
        ));
        let object = || Arc::new(CallsQueueOnDrop(Arc::downgrade(&queue)));
        queue.add(object()).unwrap();
        queue.delete(Deleted::Final(object())).unwrap();
        queue
            .pop(&mut |_, _| Ok(queue.delete(Deleted::Final(object()))?))
            .unwrap();
        assert!(queue.is_empty());
    });
}
