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
fn d11_who_asks_for_it_again_gets_it_again_at_the_end() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    queue.add(thing("b", 1)).unwrap();
    let popped = queue.pop(&mut |_, _| Err(Requeue::new().into())).unwrap();
    assert_eq!(popped.to_vec(), [added("a", 1)], "that pop has not failed");
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
fn d11_what_comes_meanwhile_follows_what_goes_back() {
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
fn d4_two_deletions_that_meet_by_going_back_are_one() {
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
fn d8_what_goes_back_still_belongs_to_the_initial_list() {
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
    // `a` is not requeued behind `c`: otherwise the sync would wait for `c` as well.
    let expected = [("a", true), ("b", true), ("a", true), ("c", false)];
    assert_eq!(
        seen,
        expected.map(|(key, initial)| (key.to_owned(), initial))
    );
    assert!(queue.has_synced());
}

#[test]
fn add_if_not_present_gives_way_to_what_is_newer() {
    let queue = queue();
    queue.add(thing("a", 1)).unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert!(queue.add_if_not_present(popped.clone()).unwrap().is_none());
    assert_eq!(queue.get_by_key("a").unwrap(), popped);
    let back = queue.add_if_not_present(popped.clone()).unwrap();
    assert_eq!(
        back,
        Some(popped),
        "given back: something waits for that key"
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
fn what_waits_can_be_read() {
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
fn d3_a_deletion_is_not_lost_behind_one_that_fails() {
    let (store, queue) = with_store();
    queue.delete(gone("a", 2)).unwrap();
    let failed = queue.pop(&mut |_, _| {
        queue.delete(gone("a", 3))?;
        Err("no".into())
    });
    assert!(failed.is_err());
    assert!(store.get_by_key("a").is_some(), "the consumer still has it");
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [deleted("a", 3)]
    );
}

#[test]
fn d3_nor_behind_one_that_panics_and_it_precedes_what_is_newer() {
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
fn d6_a_list_that_comes_while_a_deletion_fails_tells_it_again() {
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
fn d3_a_deletion_that_succeeds_needs_no_second() {
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

    // If a deletion fails after the object is gone, the repeated deletion is not needed either.
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
fn d11_a_deletion_that_goes_back_is_told_once() {
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
fn deltas_know_the_key_they_were_queued_by() {
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
        "which makes them no others"
    );
}

#[test]
fn deltas_without_key_get_the_one_they_are_queued_by() {
    let queue = queue();
    queue
        .add_if_not_present(vec![added("a", 1)].into())
        .unwrap();
    let popped = queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(popped.key().map(|key| &**key), Some("a"));
}

/// Calls its queue when dropped.
struct Loaded(Weak<DeltaFifo<Self>>);

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.0.upgrade().map(|queue| queue.len());
    }
}

#[test]
fn redundant_second_delete_is_dropped_outside_the_lock() {
    in_time(|| {
        let accessor = || Accessor::new(|_: &Loaded| Ok::<_, KeyError>("a".into()));
        let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
        let queue = Arc::new(DeltaFifo::builder(accessor()).known_objects(store).build());
        let loaded = || Arc::new(Loaded(Arc::downgrade(&queue)));
        queue.add(loaded()).unwrap();
        queue.delete(Deleted::Final(loaded())).unwrap();
        queue
            .pop(&mut |_, _| Ok(queue.delete(Deleted::Final(loaded()))?))
            .unwrap();
        assert!(queue.is_empty());
    });
}
