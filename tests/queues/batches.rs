//! Changes that are applied together, and batches.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::object::ResourceVersion;
use k8s_informer::object::{Accessor, Key, KeyError};
use k8s_informer::queue::{DeltaFifo, DeltaFifoOptions, Deltas, Origin, Queue};
use k8s_informer::store::{Change, Indexers, KnownObjects, ReflectorStore, StoreError, Transform};
use k8s_informer::{Deleted, Indexer};

use super::things::{Thing, accessor, added, deleted, gone, sync, thing, tombstone, version};
use super::watermark::{each_kind, versioned};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn apply_wakes_a_waiting_pop() {
    for (kind, _) in each_kind() {
        let (queue, (popped, pops)) = (kind.queue(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Ok(deltas) = queue.pop(&mut |_, _| Ok(())) {
                    popped.send(deltas.key().unwrap().to_string()).unwrap();
                }
            });
            // Many rounds, because the pop may or may not be waiting already.
            for version in 0..100 {
                let changes = ["a", "b", "c"].map(|key| Change::Add(versioned(key, version)));
                assert!(apply(queue, changes).is_empty());
                let keys: Vec<_> = (0..3)
                    .map(|_| pops.recv_timeout(TIMEOUT).unwrap())
                    .collect();
                assert_eq!(keys, ["a", "b", "c"]);
            }
            queue.close();
        });
    }
}

#[test]
fn apply_has_the_same_effect_as_separate_calls() {
    for ((together, _), (one_by_one, _)) in each_kind().into_iter().zip(each_kind()) {
        let changes = || {
            [
                Change::Add(versioned("a", 1)),
                Change::Update(versioned("b", 2)),
                Change::Update(versioned("a", 3)),
                Change::Delete(Deleted::Final(versioned("b", 4))),
                Change::Delete(Deleted::FinalStateUnknown {
                    key: "c".into(),
                    last_known: None,
                }),
                Change::Bookmark(Some(version("9"))),
            ]
        };
        let (together, one_by_one) = (together.queue(), one_by_one.queue());
        assert!(apply(together, changes()).is_empty());
        for change in changes() {
            match change {
                Change::Add(object) => one_by_one.add(object),
                Change::Update(object) => one_by_one.update(object),
                Change::Delete(gone) => one_by_one.delete(gone),
                Change::Bookmark(version) => one_by_one.bookmark(version),
            }
            .unwrap();
        }
        one_by_one.close();
        together.close();
        loop {
            let processed = [together, one_by_one].map(|queue| queue.processed().current());
            assert_eq!(processed[0], processed[1]);
            let [popped, expected] =
                [together, one_by_one].map(|queue| queue.pop(&mut |_, _| Ok(())));
            assert_eq!(format!("{popped:?}"), format!("{expected:?}"));
            if popped.is_err() {
                break;
            }
        }
        assert_eq!(together.processed().current(), ResourceVersion::new("9"));
    }
}

/// Applies changes together, as a reflector does. Returns the errors.
fn apply<T>(queue: &dyn Queue<T>, changes: impl IntoIterator<Item = Change<T>>) -> Vec<String> {
    let staging = queue.staging().unwrap();
    let (mut entered, mut errors) = (Vec::new(), Vec::new());
    for change in changes {
        match staging.door().delta(change) {
            Ok(change) => entered.push(change),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let applied = staging.apply_entries(&mut entered);
    assert!(entered.is_empty());
    errors.extend(applied.rejected.iter().map(ToString::to_string));
    errors
}

#[test]
fn d2_rejected_deletion_alone_does_not_populate() {
    let queue = DeltaFifo::new(accessor());
    assert!(queue.delete(gone("", 1)).is_err());
    assert!(!queue.has_synced());
    assert!(queue.add(thing("", 1)).is_err());
    assert!(queue.has_synced());
}

#[test]
fn transform_runs_on_what_is_queued() {
    let transform = || {
        Transform::new(|thing: Arc<Thing>| match thing.1 {
            9 => Err("not this one"),
            value => Ok(Arc::new((thing.0, value * 10))),
        })
    };
    let queue = DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().transform(transform()));
    queue.add(thing("a", 1)).unwrap();
    assert!(queue.delete(gone("a", 9)).is_err());
    // The queue drops the deletion of an unknown object before the transform (D3).
    queue.delete(gone("unknown", 9)).unwrap();
    assert!(queue.update(thing("b", 9)).is_err());
    queue.delete(gone("a", 2)).unwrap();
    let deltas = &queue.list()[0];
    assert_eq!(deltas[..], [added("a", 10), deleted("a", 20)]);
    assert_eq!(queue.len(), 1);
}

/// Known objects that panic on one key.
struct PanickingLookup;

impl KnownObjects<Thing> for PanickingLookup {
    fn list_keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<Thing>>, StoreError> {
        assert_ne!(key, "panic");
        Ok(None)
    }
}

#[test]
fn changes_after_a_failed_lookup_are_kept() {
    let known = Arc::new(PanickingLookup);
    let queue = DeltaFifo::with_options(
        Accessor::new(|thing: &Thing| match thing.0 {
            "" => Err(KeyError::new("no key")),
            key => Ok(key.into()),
        }),
        DeltaFifoOptions::new().known_objects(known),
    );
    let changes = [
        Change::Add(thing("a", 1)),
        Change::Delete(gone("panic", 2)),
        Change::Add(thing("b", 3)),
        Change::Update(thing("", 4)),
        Change::Add(thing("c", 5)),
    ];
    assert_eq!(apply(&queue, changes).len(), 2);
    assert_eq!(queue.list_keys(), ["a", "b", "c"]);
}

#[test]
fn d3_all_keys_of_a_batch_count_as_known() {
    let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new().known_objects(Arc::clone(&store) as _),
    );
    store.add(thing("a", 1)).unwrap();
    queue.delete(gone("a", 2)).unwrap();
    for key in ["b", "c", "d"] {
        queue.add(thing(key, 1)).unwrap();
    }
    let process_batch = &mut |batch: &[Deltas<Thing>], _: Origin| {
        assert_eq!(batch.len(), 4);
        // `a` is already being deleted. Delete `a` again, and delete `b`, which the store does not
        // have. The list lacks `c`, which the store does not have either.
        queue.delete(gone("a", 3))?;
        queue.delete(gone("b", 2))?;
        queue.replace(vec![thing("d", 2)], Some(version("9")))?;
        Err("the deletion fails".into())
    };
    let popped = queue.pop_batch(process_batch, &mut |_, _| Ok(()));
    assert!(popped.is_err());
    let waiting: Vec<_> = queue.list().iter().map(|deltas| deltas.to_vec()).collect();
    assert_eq!(
        waiting,
        [
            vec![deleted("b", 2)],
            vec![sync("d", 2)],
            vec![tombstone("c", Some(thing("c", 1)))],
            vec![deleted("a", 3)],
        ]
    );
}

#[test]
fn d8_batch_ends_with_the_initial_list() {
    let queue = DeltaFifo::new(accessor());
    let list = ["a", "b", "c"].map(|key| thing(key, 1)).into();
    queue.replace(list, Some(version("1"))).unwrap();
    queue.add(thing("d", 1)).unwrap();
    queue.add(thing("e", 1)).unwrap();
    let mut batches = Vec::new();
    for _ in 0..2 {
        let process_batch = &mut |batch: &[Deltas<Thing>], origin: Origin| {
            let keys: Vec<_> = batch
                .iter()
                .map(|deltas| deltas.key().unwrap().to_string())
                .collect();
            batches.push((keys.concat(), origin == Origin::InitialList));
            Ok(())
        };
        queue.pop_batch(process_batch, &mut |_, _| Ok(())).unwrap();
    }
    let expected = [("abc", true), ("de", false)];
    assert_eq!(
        batches,
        expected.map(|(keys, initial)| (keys.to_owned(), initial))
    );
}
