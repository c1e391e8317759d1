//! From an informer's queue to its cache: client-go's `processDeltas`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::handler::Notification;
use crate::object::{Deleted, Key, Object};
use crate::queue::{Delta, Deltas};
use crate::store::{Indexer, StoreError};

/// Applies the changes of one object to the store, oldest first, and tells each one (P1–P3); or a whole list
/// (P6, P7), a resync of everything (P5), a bookmark (P4). Whether an object was added or updated is for the
/// store to say, not for the kind of change. `notify` is also told whether nothing but a resync happened
/// (I16), and says whether to go on: not after a stop, however much there is (C3).
pub(super) fn process_deltas<T: Object>(
    store: &Indexer<T>,
    deltas: &Deltas<T>,
    is_in_initial_list: bool,
    mut notify: impl FnMut(Notification<T>, bool) -> bool,
) -> Result<(), StoreError> {
    let updated = |old: Arc<T>, new: Arc<T>| {
        let sync = old.resource_version() == new.resource_version();
        (Notification::Update { old, new }, sync)
    };
    let mut go_on = true;
    for delta in deltas.iter() {
        if !go_on {
            break;
        }
        match delta {
            Delta::Deleted(gone) => {
                match deltas.key() {
                    Some(key) => store.delete_keyed(key, gone)?,
                    None => store.delete(gone)?,
                }
                go_on = notify(Notification::Delete(gone.clone()), false);
            }
            Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) | Delta::Sync(object) => {
                let (object, new) = (Arc::clone(object), Arc::clone(object));
                let old = match deltas.key() {
                    Some(key) => store.add_keyed(Key::clone(key), object)?,
                    None => store.add(object)?,
                };
                let (notification, sync) = match old {
                    Some(old) => updated(old, new),
                    None => (Notification::Add { object: new, is_in_initial_list }, false),
                };
                go_on = notify(notification, sync);
            }
            Delta::ReplacedAll(list) => {
                let mut keyed = Vec::with_capacity(list.objects.len());
                for object in &list.objects {
                    keyed.push((store.accessor().key(object)?, Arc::clone(object)));
                }
                let old: HashMap<Key, Arc<T>> = store.entries().into_iter().collect();
                let mut kept = keyed.clone();
                store.keep_in_gaps(&mut kept, &list.gaps);
                store.replace_keyed(kept, &list.resource_version)?;
                let listed: HashSet<&Key> = keyed.iter().map(|(key, _)| key).collect();
                let is_gone = |key: &Key| !listed.contains(key) && !list.gaps.cover(key);
                for (key, object) in old.iter().filter(|(key, _)| is_gone(key)) {
                    let (key, last_known) = (Key::clone(key), Some(Arc::clone(object)));
                    if !notify(Notification::Delete(Deleted::FinalStateUnknown { key, last_known }), false) {
                        return Ok(());
                    }
                }
                for (key, new) in &keyed {
                    let new = Arc::clone(new);
                    let (notification, sync) = match old.get(key) {
                        Some(old) => updated(Arc::clone(old), new),
                        None => (Notification::Add { object: new, is_in_initial_list }, false),
                    };
                    if !notify(notification, sync) {
                        return Ok(());
                    }
                }
            }
            Delta::SyncAll => {
                for object in store.list() {
                    let (notification, sync) = updated(Arc::clone(&object), object);
                    if !notify(notification, sync) {
                        return Ok(());
                    }
                }
            }
            Delta::Bookmark(resource_version) => store.bookmark(resource_version),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Accessor, DynamicObject};
    use crate::queue::{DeltaFifo, Queue, RealFifo};
    use crate::store::{ReflectorStore, Transform};

    fn object(name: &str, version: &str) -> Arc<DynamicObject> {
        let json = serde_json::json!({"metadata": {"name": name, "resourceVersion": version}});
        Arc::new(serde_json::from_value(json).unwrap())
    }

    /// Processes all that is queued; what was told, as `+a@1`, `a@1>2` (with `=` for a sync), `-a`.
    fn told(queue: &dyn Queue<DynamicObject>, store: &Indexer<DynamicObject>) -> Vec<String> {
        let mut told = Vec::new();
        queue.close();
        let mut process = |deltas: &Deltas<DynamicObject>, initial| {
            process_deltas(store, deltas, initial, |notification, sync| {
                told.push(match notification {
                    Notification::Add { object, .. } => {
                        format!("+{}@{}", object.name(), object.resource_version())
                    }
                    Notification::Update { old, new } => {
                        let sync = if sync { "=" } else { "" };
                        format!("{}@{}>{}{sync}", new.name(), old.resource_version(), new.resource_version())
                    }
                    Notification::Delete(gone) => format!("-{}", gone.key()),
                });
                true
            })?;
            Ok(())
        };
        while queue.pop(&mut process).is_ok() {}
        told
    }

    #[test]
    fn k4_the_cache_files_an_object_under_the_key_it_was_queued_by() {
        let store = Arc::new(Indexer::for_objects());
        let rename = Transform::new(|_| Ok::<_, String>(object("same", "1")));
        let queue = DeltaFifo::builder(Accessor::object()).known_objects(store.clone()).transform(rename);
        let queue = queue.build();
        queue.replace(vec![object("a", "1"), object("b", "1")], "1").unwrap();
        queue.delete(Deleted::Final(object("a", "2"))).unwrap();
        told(&queue, &store);
        assert_eq!(store.list_keys(), ["b".into()]);
    }

    #[test]
    fn a_key_is_made_once_for_queue_and_store() {
        let store = Indexer::for_objects();
        let queue = DeltaFifo::new(Accessor::object());
        queue.add(object("a", "1")).unwrap();
        let queued = queue.list_keys().remove(0);
        told(&queue, &store);
        assert!(Arc::ptr_eq(&queued, &store.list_keys()[0]));
    }

    #[test]
    fn p6_p7_a_whole_list_reaches_the_store_before_anything_is_told() {
        let store = Indexer::for_objects();
        for name in ["gone", "same", "new version"] {
            store.add(object(name, "1")).unwrap();
        }
        let queue = RealFifo::atomic(Accessor::object());
        let list = vec![object("added", "5"), object("new version", "4"), object("same", "1")];
        queue.replace(list, "7").unwrap();
        let expected = ["-gone", "+added@5", "new version@1>4", "same@1>1="];
        let deltas = queue.list().remove(0);
        process_deltas(&store, &deltas, false, |_, _| {
            assert_eq!(store.len(), 3);
            true
        })
        .unwrap();
        assert_eq!(store.last_store_sync_resource_version(), "7");

        let store = Indexer::for_objects();
        store.replace(["gone", "same", "new version"].map(|name| object(name, "1")).into(), "1").unwrap();
        assert_eq!(told(&queue, &store), expected);
    }

    #[test]
    fn p4_p5_bookmarks_are_told_to_the_store_and_a_resync_of_everything_to_the_handlers() {
        let store = Indexer::for_objects();
        store.add(object("a", "1")).unwrap();
        let queue = RealFifo::atomic(Accessor::object());
        queue.bookmark("9").unwrap();
        queue.resync().unwrap();
        assert_eq!(told(&queue, &store), ["a@1>1="]);
        assert_eq!(store.last_store_sync_resource_version(), "9");
    }

    #[test]
    fn c3_after_a_stop_the_rest_of_what_was_popped_is_left() {
        let store = Indexer::for_objects();
        let of_one = DeltaFifo::new(Accessor::object());
        for version in ["1", "2", "3"] {
            of_one.update(object("a", version)).unwrap();
        }
        let of_many = RealFifo::atomic(Accessor::object());
        of_many.replace(vec![object("a", "3"), object("b", "3"), object("c", "3")], "7").unwrap();
        for queue in [&of_one as &dyn Queue<DynamicObject>, &of_many] {
            let mut told = 0;
            queue
                .pop(&mut |deltas, initial| {
                    Ok(process_deltas(&store, deltas, initial, |_, _| {
                        told += 1;
                        told < 2
                    })?)
                })
                .unwrap();
            assert_eq!(told, 2);
        }
    }
}
