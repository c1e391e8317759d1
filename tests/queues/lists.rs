//! Lists in a `DeltaFifo`, in all orders with other operations. Lookups in between change nothing.

use std::sync::Arc;
use std::thread;

use k8s_informer::Indexer;
use k8s_informer::object::ResourceVersion;
use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Origin, Queue};
use k8s_informer::store::{Indexers, ReflectorStore, StoreError};

use super::things::*;

/// An operation on a queue. Returns its result as text.
type Operation = fn(&DeltaFifo<Thing>, &Indexer<Thing>) -> String;

const OPERATIONS: [(&str, Operation); 14] = [
    ("pop", |queue, store| {
        if queue.is_empty() {
            return String::new();
        }
        let popped = queue.pop(&mut |deltas, origin| {
            for delta in deltas.iter() {
                match delta {
                    Delta::Deleted { gone, .. } => store.delete(gone.clone())?,
                    delta => drop(store.add(Arc::clone(delta.object().ok_or("no object")?))?),
                }
            }
            assert_eq!(queue.has_synced(), origin == Origin::Later);
            Ok(())
        });
        format!("{popped:?}")
    }),
    ("failing pop", |queue, _| {
        if queue.is_empty() {
            String::new()
        } else {
            format!("{:?}", queue.pop(&mut |_, _| Err("no".into())))
        }
    }),
    ("add b", |queue, _| shown(queue.add(thing("b", 2)))),
    ("update e", |queue, _| shown(queue.update(thing("e", 2)))),
    ("add without key", |queue, _| shown(queue.add(thing("", 2)))),
    ("delete c", |queue, _| shown(queue.delete(gone("c", 2)))),
    ("replace", |queue, _| {
        shown(queue.replace(
            vec![thing("a", 3), thing("d", 3), thing("f", 3)],
            Some(version("9")),
        ))
    }),
    ("resync", |queue, _| shown(queue.resync())),
    ("bookmark", |queue, _| {
        shown(queue.bookmark(Some(version("8"))))
    }),
    ("update during pop", |queue, _| {
        pop_with(queue, &|| shown(queue.update(thing("c", 4))))
    }),
    ("replace during pop", |queue, _| {
        pop_with(queue, &|| {
            shown(queue.replace(vec![thing("b", 5), thing("g", 5)], Some(version("10"))))
        })
    }),
    ("shorter replace", |queue, _| {
        shown(queue.replace(
            vec![thing("a", 6), thing("d", 6)],
            ResourceVersion::new("11"),
        ))
    }),
    ("close", |queue, _| {
        queue.close();
        String::new()
    }),
    ("get", |queue, _| format!("{:?}", queue.list())),
];

fn pop_with(queue: &DeltaFifo<Thing>, action: &dyn Fn() -> String) -> String {
    if queue.is_empty() {
        return String::new();
    }
    let mut response = String::new();
    let popped = queue.pop(&mut |_, _| {
        response = action();
        Ok(())
    });
    format!("{response} {popped:?}")
}

fn shown(result: Result<(), StoreError>) -> String {
    format!("{:?}", result.map_err(|error| error.to_string()))
}

/// Performs the operations on a queue that holds its first list (`is_first`) or a later one. With
/// `looked_up`, there is a lookup before each operation. Returns every observable state, and the
/// final contents of the store.
fn observed_states(is_first: bool, operations: &[usize], looked_up: bool) -> Vec<String> {
    let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new()
            .known_objects(store.clone())
            .emit_replaced(true),
    );
    let list = |keys: &[&'static str]| keys.iter().map(|key| thing(key, 1)).collect();
    if !is_first {
        queue
            .replace(list(&["x", "a", "c", "y"]), Some(version("5")))
            .unwrap();
        (0..4).for_each(|_| drop(OPERATIONS[0].1(&queue, &store)));
    }
    queue
        .replace(list(&["a", "b", "c", "d"]), Some(version("7")))
        .unwrap();
    let mut seen = Vec::new();
    let all = OPERATIONS.len();
    // The last operations pop all remaining items.
    for index in operations.iter().copied().chain([0; 12]) {
        if looked_up {
            let _ = queue.list_keys();
        }
        let (name, operation) = OPERATIONS[index % all];
        let response = operation(&queue, &store);
        let (len, synced) = (queue.len(), queue.has_synced());
        let processed = queue.processed().current();
        seen.push(format!(
            "{name}: {response} {len} {synced} {processed:?} {queue:?}"
        ));
    }
    assert!(queue.is_empty() && queue.has_synced());
    seen.push(format!("{:?}", {
        let mut all = store.list();
        all.sort();
        all
    }));
    seen
}

#[test]
fn d6_d8_lookups_do_not_change_what_a_list_does() {
    for first in 0..OPERATIONS.len() {
        for second in 0..OPERATIONS.len() {
            for third in 0..OPERATIONS.len() {
                let operations = [first, second, third];
                for is_first in [true, false] {
                    let [unsplit, split] = [false, true]
                        .map(|looked_up| observed_states(is_first, &operations, looked_up));
                    assert_eq!(unsplit, split, "{operations:?}");
                }
            }
        }
    }
}

#[test]
fn d1_duplicate_key_in_list_is_one_item_in_any_order() {
    for (list, keys) in [
        (&["a", "a", "b"][..], &["a", "b"][..]),
        (&["b", "a", "b"], &["b", "a"]),
        (&["b", "a"], &["b", "a"]),
        (&["a", "b"], &["a", "b"]),
    ] {
        let queue =
            DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().emit_replaced(true));
        queue
            .replace(
                list.iter().map(|key| thing(key, 1)).collect(),
                Some(version("7")),
            )
            .unwrap();
        for (at, key) in keys.iter().enumerate() {
            assert_eq!((queue.len(), queue.has_synced()), (keys.len() - at, false));
            let popped = queue
                .pop(&mut |_, origin| {
                    assert_eq!(origin, Origin::InitialList);
                    Ok(())
                })
                .unwrap();
            let times = list.iter().filter(|other| *other == key).count();
            assert_eq!(popped.to_vec(), vec![replaced(key, 1); times]);
        }
        assert!(queue.is_empty() && queue.has_synced());
    }
}

#[test]
fn dropping_queue_drops_remaining_list_objects() {
    let objects: Vec<_> = ["a", "b", "c"].map(|key| thing(key, 1)).into();
    let queue = DeltaFifo::new(accessor());
    queue.replace(objects.clone(), Some(version("7"))).unwrap();
    queue.pop(&mut |_, _| Ok(())).unwrap();
    assert_eq!(
        objects.iter().map(Arc::strong_count).collect::<Vec<_>>(),
        [1, 2, 2]
    );
    drop(queue);
    assert!(objects.iter().all(|object| Arc::strong_count(object) == 1));
}

#[test]
fn d13_list_wakes_waiting_pop_which_wakes_the_next() {
    {
        let queue = DeltaFifo::new(accessor());
        let list = || {
            queue
                .replace(
                    ["a", "b", "c"].map(|key| thing(key, 1)).into(),
                    Some(version("7")),
                )
                .unwrap();
        };
        let popped = thread::scope(|scope| {
            let pop = || {
                scope.spawn(|| {
                    queue
                        .pop(&mut |_, _| Ok(()))
                        .unwrap()
                        .key()
                        .unwrap()
                        .to_string()
                })
            };
            let pops = [pop(), pop(), pop()];
            list();
            let mut popped = pops.map(|pop| pop.join().unwrap());
            popped.sort();
            popped
        });
        assert_eq!(popped, ["a", "b", "c"]);
        assert!(queue.has_synced());
    }
}

#[test]
fn d6_list_is_queued_as_sync_by_default() {
    let queue = DeltaFifo::new(accessor());
    queue
        .replace(vec![thing("a", 1), thing("b", 1)], Some(version("7")))
        .unwrap();
    assert_eq!(
        queue.pop(&mut |_, _| Ok(())).unwrap().to_vec(),
        [sync("a", 1)]
    );
    assert_eq!(queue.list()[0].to_vec(), [sync("b", 1)]);
}
