use std::cell::RefCell;

use super::*;
use crate::base::digest::Digest;
use crate::entry::Gaps;
use crate::object::DynamicObject;
use crate::queue::{DeltaFifo, DeltaFifoOptions, Origin, PopError, Queue, RealFifo};
use crate::resource_version::ResourceVersion;
use crate::store::{IndexFunc, Indexers, ReflectorStore, Transform};

fn object(name: &str, version: &str) -> Arc<DynamicObject> {
    let json = serde_json::json!({"metadata": {"name": name, "resourceVersion": version}});
    Arc::new(serde_json::from_value(json).unwrap())
}

/// Formats a notification as `+a@1` (added), `a@1>2` (modified, with `=` for a sync) or `-a`
/// (deleted).
fn text(event: &Notification<DynamicObject>, sync: bool) -> String {
    match event {
        Notification::Added { object, .. } => {
            format!("+{}@{}", object.name(), object.resource_version())
        }
        Notification::Modified { old, new } => {
            let sync = if sync { "=" } else { "" };
            format!(
                "{}@{}>{}{sync}",
                new.name(),
                old.resource_version(),
                new.resource_version()
            )
        }
        Notification::Deleted { gone, .. } => format!("-{}", gone.key()),
    }
}

/// Processes the changes of one item.
fn process<T: Object>(
    part: &CachePart<T>,
    deltas: &Deltas<T>,
    origin: Origin,
    notify: &mut Notify<'_, T>,
) -> Result<(), ProcessError> {
    let batch = || batch_of(std::slice::from_ref(deltas));
    let reports = &mut Reports::default();
    part.process(batch, Order::OneByOne, origin, None, notify, reports)
}

/// Processes several items together.
fn process_together<T: Object>(
    part: &CachePart<T>,
    items: &[Deltas<T>],
    origin: Origin,
    notify: &mut Notify<'_, T>,
) -> Result<(), ProcessError> {
    let (batch, reports) = (|| batch_of(items), &mut Reports::default());
    part.process(batch, Order::Together, origin, None, notify, reports)
}

/// Processes all queued items and returns the notifications.
fn process_all(
    queue: &dyn Queue<DynamicObject>,
    store: &Arc<Indexer<DynamicObject>>,
) -> Vec<String> {
    let (part, mut delivered) = (CachePart::new(Arc::clone(store), None, false), Vec::new());
    queue.close();
    let mut process = |deltas: &Deltas<DynamicObject>, origin| {
        process(&part, deltas, origin, &mut |_, event, sync| {
            delivered.push(text(&event, sync));
        })?;
        Ok(())
    };
    while queue.pop(&mut process).is_ok() {}
    delivered
}

#[test]
fn k4_object_is_stored_under_its_queued_key() {
    let store = Arc::new(Indexer::for_objects());
    let rename = Transform::new(|_| Ok::<_, String>(object("same", "1")));
    let options = DeltaFifoOptions::new()
        .known_objects(store.clone())
        .transform(rename);
    let queue = DeltaFifo::with_options(Accessor::object(), options);
    queue
        .replace(
            vec![object("a", "1"), object("b", "1")],
            ResourceVersion::new("1"),
        )
        .unwrap();
    queue.delete(Deleted::Final(object("a", "2"))).unwrap();
    process_all(&queue, &store);
    assert_eq!(store.list_keys(), ["b"]);
}

#[test]
fn queue_and_store_share_the_key_allocation() {
    let store = Arc::new(Indexer::for_objects());
    let queue = DeltaFifo::new(Accessor::object());
    queue.add(object("a", "1")).unwrap();
    let queued = queue.list_keys().remove(0);
    process_all(&queue, &store);
    let stored = store.list_keys().remove(0);
    assert!(std::ptr::eq(&*queued, &*stored), "the same text in memory");
}

#[test]
fn i17_queued_states_of_one_version_are_compared_by_content() {
    let store = Arc::new(Indexer::for_objects());
    store.add(object("a", "4")).unwrap();
    let options = DeltaFifoOptions::new().known_objects(store.clone());
    let queue = DeltaFifo::with_options(Accessor::object(), options);
    let entry = |content: &str| Entry {
        key: "a".into(),
        version: ResourceVersion::new("5"),
        object: object("a", "5"),
        digest: Digest::of(content.as_bytes()),
    };
    let staging = queue.staging().unwrap();
    // All of them wait under one key.
    for content in ["x", "y", "y"] {
        let change = Delta::Updated(entry(content));
        let applied = staging.apply_entries(&mut vec![change]);
        assert!(applied.rejected.is_empty());
    }
    let listed =
        staging.replace_entries(vec![entry("z")], Gaps::default(), ResourceVersion::new("5"));
    listed.unwrap();
    let expected = ["a@4>5", "a@5>5", "a@5>5=", "a@5>5"];
    assert_eq!(process_all(&queue, &store), expected);
}

#[test]
fn p6_p7_list_is_stored_before_notifications() {
    let store = Arc::new(Indexer::for_objects());
    for name in ["gone", "same", "new version"] {
        store.add(object(name, "1")).unwrap();
    }
    let queue = RealFifo::new(Accessor::object());
    let list = vec![
        object("added", "5"),
        object("new version", "4"),
        object("same", "1"),
    ];
    queue.replace(list, ResourceVersion::new("7")).unwrap();
    let expected = ["-gone", "+added@5", "new version@1>4", "same@1>1="];
    let deltas = queue.list().remove(0);
    let mut seen = |_, _, _| assert_eq!(store.len(), 3);
    let part = CachePart::new(Arc::clone(&store), None, false);
    process(&part, &deltas, Origin::Later, &mut seen).unwrap();
    assert_eq!(store.resource_version(), ResourceVersion::new("7"));

    let store = Arc::new(Indexer::for_objects());
    store
        .replace(
            ["gone", "same", "new version"]
                .map(|name| object(name, "1"))
                .into(),
            ResourceVersion::new("1"),
        )
        .unwrap();
    assert_eq!(process_all(&queue, &store), expected);
}

#[test]
fn p6_duplicate_key_in_list_is_delivered_once() {
    let store = Arc::new(Indexer::for_objects());
    let queue = RealFifo::new(Accessor::object());
    queue
        .replace(
            vec![object("a", "1"), object("a", "2")],
            ResourceVersion::new("7"),
        )
        .unwrap();
    queue
        .replace(
            vec![object("b", "3"), object("a", "4"), object("b", "5")],
            ResourceVersion::new("8"),
        )
        .unwrap();
    assert_eq!(process_all(&queue, &store), ["+a@2", "+b@5", "a@2>4"]);
    let mut stored: Vec<_> = store
        .list()
        .iter()
        .map(|object| object.resource_version().to_owned())
        .collect();
    stored.sort();
    assert_eq!(stored, ["4", "5"]);
}

#[test]
fn p9_object_without_key_does_not_affect_others() {
    let accessor = Accessor::new(|object: &DynamicObject| match object.name() {
        "" => Err(KeyError::new("no name")),
        name => Ok(name.into()),
    });
    let store = Arc::new(Indexer::new(accessor.clone(), Indexers::new()));
    let (queue, part) = (
        RealFifo::new(accessor),
        CachePart::new(Arc::clone(&store), None, false),
    );
    let pop = |objects: &[Arc<DynamicObject>]| {
        queue
            .replace(objects.to_vec(), ResourceVersion::new("7"))
            .unwrap();
        let mut delivered = Vec::new();
        let mut notify = |key: Key, _: Notification<DynamicObject>, _: bool| {
            delivered.push(key.to_string());
        };
        let popped = queue.pop(&mut |deltas, origin| process(&part, deltas, origin, &mut notify));
        delivered.sort();
        (delivered, store.len(), popped.is_ok())
    };
    let delivered = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        pop(&[object("a", "1"), object("b", "1")]),
        (delivered(&["a", "b"]), 2, true)
    );
    // The object without a key may be the new state of "b", so "b" stays.
    assert_eq!(
        pop(&[object("a", "2"), object("", "2"), object("c", "2")]),
        (delivered(&["a", "c"]), 3, false)
    );
    assert_eq!(
        pop(&[object("a", "3")]),
        (delivered(&["a", "b", "c"]), 1, true)
    );
}

#[test]
fn p4_p5_bookmark_reaches_store_full_resync_reaches_handlers() {
    let store = Arc::new(Indexer::for_objects());
    store.add(object("a", "1")).unwrap();
    let queue = RealFifo::new(Accessor::object());
    queue.bookmark(ResourceVersion::new("9")).unwrap();
    queue.resync().unwrap();
    assert_eq!(process_all(&queue, &store), ["a@1>1="]);
    assert_eq!(store.resource_version(), ResourceVersion::new("9"));
}

/// Returns a cache with these objects. From version 2 on, its index function fails on "bad" and
/// panics on "worse".
fn picky(names: &[&str]) -> Arc<Indexer<DynamicObject>> {
    let picky = IndexFunc::fallible(|object: &DynamicObject| match object.name() {
        "bad" if object.resource_version() != "1" => Err("not this one"),
        "worse" if object.resource_version() != "1" => panic!("nor this one"),
        _ => Ok(vec![object.resource_version().to_owned()]),
    });
    let store = Indexer::new(Accessor::object(), Indexers::new().with("version", picky));
    store
        .replace(
            names.iter().map(|name| object(name, "1")).collect(),
            ResourceVersion::new("1"),
        )
        .unwrap();
    Arc::new(store)
}

/// Returns one added delta for each name.
fn batch(names: &[&str]) -> Vec<Deltas<DynamicObject>> {
    let queue = RealFifo::new(Accessor::object());
    names
        .iter()
        .for_each(|name| queue.add(object(name, "2")).unwrap());
    queue.list()
}

/// Processes a batch. Returns the error and the notifications.
fn process_batch(
    store: &Arc<Indexer<DynamicObject>>,
    batch: &[Deltas<DynamicObject>],
) -> (Option<String>, Vec<String>) {
    let mut delivered = Vec::new();
    let part = CachePart::new(Arc::clone(store), None, false);
    let processed = process_together(&part, batch, Origin::InitialList, &mut |_, event, sync| {
        // P11: the whole batch is in the cache before the first notification.
        for delta in batch.iter().flat_map(|deltas| deltas.iter()) {
            if let Delta::Added(entry) = delta {
                let cached = store.get_by_key(&entry.key);
                assert_eq!(cached.as_ref(), Some(&entry.object));
            }
        }
        delivered.push(text(&event, sync));
    });
    (processed.err().map(|error| error.to_string()), delivered)
}

#[test]
fn p10_p11_batch_is_cached_before_delivery_in_order() {
    let store = picky(&["b", "d"]);
    let mut batch = batch(&["c", "b", "a"]);
    let queue = RealFifo::new(Accessor::object());
    queue.delete(Deleted::Final(object("d", "3"))).unwrap();
    // P3: a deletion of an object that is not in the cache is delivered.
    queue.delete(Deleted::Final(object("e", "3"))).unwrap();
    batch.extend(queue.list());
    let (error, delivered) = process_batch(&store, &batch);
    assert_eq!(
        (error, delivered),
        (
            None,
            ["+c@2", "b@1>2", "+a@2", "-d", "-e"]
                .map(str::to_owned)
                .into()
        )
    );
    assert_eq!(store.by_index("version", "2").unwrap().len(), 3);
}

#[test]
fn unindexed_objects_of_a_batch_are_cached_and_delivered() {
    let store = picky(&["bad", "b"]);
    let (error, delivered) = process_batch(&store, &batch(&["a", "bad", "b", "worse", "c"]));
    assert_eq!(error, None);
    assert_eq!(delivered, ["+a@2", "bad@1>2", "b@1>2", "+worse@2", "+c@2"]);
    assert_eq!(store.by_index("version", "2").unwrap().len(), 3);
    assert!(
        store.by_index("version", "1").unwrap().is_empty(),
        "the old state of \"bad\" is not found either"
    );
    let unindexed = store.unindexed("version").unwrap();
    assert_eq!(unindexed, ["bad", "worse"]);
}

#[test]
fn p10_p12_batch_rejects_changes_without_single_object() {
    let queue = RealFifo::new(Accessor::object());
    queue
        .replace(vec![object("listed", "2")], ResourceVersion::new("2"))
        .unwrap();
    queue.bookmark(ResourceVersion::new("9")).unwrap();
    queue.resync().unwrap();
    let store = picky(&["b"]);
    let mut all = queue.list();
    assert_eq!(all.len(), 3);
    all.extend(batch(&["a"]));
    let (error, delivered) = process_batch(&store, &all);
    assert!(error.is_some_and(|error| error.contains("not one of a single object")));
    assert_eq!(delivered, ["+a@2"]);
    assert_eq!(
        store.resource_version(),
        ResourceVersion::new("2"),
        "the version of `a`, not of the bookmark"
    );
}

#[test]
fn c4_batches_deliver_the_same_events_as_single_pops() {
    for batches in [true, false] {
        let store = picky(&[]);
        let queue = RealFifo::new(Accessor::object());
        queue
            .replace(vec![object("a", "1")], ResourceVersion::new("1"))
            .unwrap();
        for (name, version) in [("a", "2"), ("b", "3"), ("bad", "4"), ("a", "5"), ("c", "6")] {
            queue.update(object(name, version)).unwrap();
        }
        queue.delete(Deleted::Final(object("b", "7"))).unwrap();
        queue.close();
        let (part, delivered) = (
            CachePart::new(Arc::clone(&store), None, false),
            RefCell::new(Vec::new()),
        );
        let notify = |_: Key, event: Notification<DynamicObject>, sync: bool| {
            delivered.borrow_mut().push(text(&event, sync));
        };
        let mut one = |deltas: &Deltas<_>, origin| process(&part, deltas, origin, &mut { notify });
        let (mut pops, mut most) = (0, 0);
        loop {
            let mut many = |deltas: &[Deltas<_>], origin| {
                process_together(&part, deltas, origin, &mut { notify })
            };
            let popped = if batches {
                queue
                    .pop_batch(&mut many, &mut one)
                    .map(|popped| popped.len())
            } else {
                queue.pop(&mut one).map(|_| 1).map_err(|error| match error {
                    PopError::Closed => PopError::Closed,
                    PopError::Process { popped, error } => PopError::Process {
                        popped: vec![popped],
                        error,
                    },
                })
            };
            pops += 1;
            match popped {
                Ok(popped) => most = most.max(popped),
                Err(PopError::Closed) => break,
                Err(PopError::Process { popped, .. }) => most = most.max(popped.len()),
            }
        }
        assert_eq!(
            *delivered.borrow(),
            ["+a@1", "a@1>2", "+b@3", "+bad@4", "a@2>5", "+c@6", "-b"]
        );
        assert_eq!(
            (pops < 7, most > 1),
            (batches, batches),
            "{pops} pops, largest batch {most}"
        );
    }
}

fn in_namespace(key: &str, version: &str) -> Arc<DynamicObject> {
    let (namespace, name) = key.split_once('/').unwrap();
    let json = serde_json::json!({"metadata": {
        "namespace": namespace, "name": name, "resourceVersion": version
    }});
    Arc::new(serde_json::from_value(json).unwrap())
}

/// Every way in which objects reach the cache and leave it.
#[test]
fn part_knows_exactly_the_cached_objects_of_its_namespace() {
    let picky = IndexFunc::fallible(|object: &DynamicObject| match object.name() {
        "bad" => Err("not this one"),
        _ => Ok(Vec::new()),
    });
    let store = Indexer::new(Accessor::object(), Indexers::new().with("picky", picky));
    store.add(in_namespace("n/before", "1")).unwrap();
    store.add(in_namespace("other/before", "1")).unwrap();
    let store = Arc::new(store);
    let part = CachePart::new(Arc::clone(&store), Some("n"), false);
    let check = |expected: &[&str]| {
        let mut keys = part.list_keys();
        keys.sort();
        let expected: Vec<Key> = expected.iter().map(|key| (*key).into()).collect();
        assert_eq!(keys, expected);
        let mut known: Vec<_> = part.known().into_iter().map(|known| known.key).collect();
        known.sort();
        assert_eq!(known, expected);
    };
    check(&["n/before"]);
    let queue = RealFifo::new(Accessor::object());
    let mut notify = |_: Key, _: Notification<DynamicObject>, _: bool| {};
    let mut pop = |queue: &RealFifo<DynamicObject>| {
        queue.pop(&mut |deltas, origin| process(&part, deltas, origin, &mut notify))
    };
    let list = ["n/a", "n/b", "n/bad"].map(|key| in_namespace(key, "1"));
    queue
        .replace(list.into(), ResourceVersion::new("7"))
        .unwrap();
    pop(&queue).unwrap();
    check(&["n/a", "n/b", "n/bad"]);
    queue
        .delete(Deleted::Final(in_namespace("n/a", "8")))
        .unwrap();
    queue.add(in_namespace("n/bad", "9")).unwrap();
    queue.add(in_namespace("n/c", "9")).unwrap();
    for _ in 0..3 {
        pop(&queue).unwrap();
    }
    check(&["n/b", "n/bad", "n/c"]);
    queue
        .delete(Deleted::Final(in_namespace("n/b", "10")))
        .unwrap();
    for key in ["n/d", "n/bad", "n/e"] {
        queue.add(in_namespace(key, "11")).unwrap();
    }
    let batch = queue.list();
    process_together(&part, &batch, Origin::Later, &mut |_, _, _| {}).unwrap();
    check(&["n/bad", "n/c", "n/d", "n/e"]);
    assert!(store.get_by_key("other/before").is_some());
}

#[test]
fn index_functions_of_a_list_run_before_its_first_write() {
    let store: Arc<std::sync::OnceLock<std::sync::Weak<Indexer<DynamicObject>>>> = Arc::default();
    let cached = Arc::clone(&store);
    let index = IndexFunc::new(move |_: &DynamicObject| {
        let len = cached.get().unwrap().upgrade().unwrap().len();
        vec![len.to_string()]
    });
    let indexer = Arc::new(Indexer::new(
        Accessor::object(),
        Indexers::new().with("len", index),
    ));
    store.set(Arc::downgrade(&indexer)).unwrap();
    let part = CachePart::new(Arc::clone(&indexer), Some("n"), false);
    let queue = RealFifo::new(Accessor::object());
    let list = (0..2 * STEP + 1).map(|at| in_namespace(&format!("n/{at}"), "1"));
    queue
        .replace(list.collect(), ResourceVersion::new("7"))
        .unwrap();
    let mut notify = |_, _, _| {
        assert_eq!(
            indexer.len(),
            2 * STEP + 1,
            "the cache has the list before the first event"
        );
    };
    queue
        .pop(&mut |deltas, origin| process(&part, deltas, origin, &mut notify))
        .unwrap();
    assert_eq!(indexer.by_index("len", "0").unwrap().len(), 2 * STEP + 1);
}

#[test]
fn part_with_few_objects_left_frees_its_memory() {
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let part = CachePart::new(Arc::clone(&store), Some("n"), false);
    let gone = |key: &Key| Delta::tombstone(Key::clone(key), None);
    let object: Arc<DynamicObject> = Arc::new(serde_json::from_str("{}").unwrap());
    let stored = |key: &Key| Delta::Added(Entry::new(Key::clone(key), Arc::clone(&object)));
    let keys: Vec<Key> = (0..100_000).map(|key| format!("n/{key}").into()).collect();
    part.record(&keys.iter().map(stored).collect::<Vec<_>>());
    part.record(&keys[10..].iter().map(gone).collect::<Vec<_>>());
    let capacity = part.namespace.unwrap().keys.lock().capacity();
    assert!(capacity < 10_000, "{capacity}");
}

/// An object whose accessors panic, as a transform may have made it.
#[derive(Debug)]
struct Touchy(&'static str);

impl Object for Touchy {
    fn name(&self) -> &str {
        self.0
    }

    fn namespace(&self) -> &str {
        ""
    }

    fn uid(&self) -> &str {
        self.resource_version()
    }

    fn resource_version(&self) -> &str {
        assert!(self.0 != "bad", "no version");
        "1"
    }

    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

#[test]
fn accessor_panics_of_transformed_objects_lose_no_notification() {
    let names = ["a", "bad", "c"];
    let objects = || names.map(|name| Arc::new(Touchy(name))).to_vec();
    let store = Arc::new(Indexer::new(Accessor::object(), Indexers::new()));
    let part = CachePart::new(Arc::clone(&store), None, true);
    let one_by_one = DeltaFifo::new(Accessor::object());
    let in_one_list = RealFifo::new(Accessor::object());
    // The first round adds the objects. The others update them.
    for queue in [&one_by_one as &dyn Queue<Touchy>, &one_by_one, &in_one_list] {
        queue.replace(objects(), ResourceVersion::new("7")).unwrap();
        let mut delivered = Vec::new();
        let notify = RefCell::new(|key: Key, _: Notification<Touchy>, _: bool| {
            delivered.push(key.to_string());
        });
        let mut batch = |batch: &[Deltas<Touchy>], origin| {
            process_together(&part, batch, origin, &mut *notify.borrow_mut())
        };
        let mut one = |deltas: &Deltas<Touchy>, origin| {
            process(&part, deltas, origin, &mut *notify.borrow_mut())
        };
        queue.pop_batch(&mut batch, &mut one).unwrap();
        delivered.sort();
        assert_eq!(delivered, names);
    }
}
