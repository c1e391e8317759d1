//! From an informer's queue to its cache: client-go's `processDeltas`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::handler::Notification;
use crate::object::{Accessor, Deleted, Key, Object};
use crate::queue::{Delta, DeltaFifo, Deltas, Queue};
use crate::store::{Indexer, StoreError};

/// The queue of an informer, which knows what is in its cache.
pub(super) fn informer_queue<T: Object>(indexer: &Arc<Indexer<T>>) -> Arc<dyn Queue<T>> {
    let known_objects: Arc<Indexer<T>> = Arc::clone(indexer);
    Arc::new(DeltaFifo::builder(Accessor::object()).known_objects(known_objects).emit_replaced(true).build())
}

/// Applies the changes of one object to the store, oldest first, and tells each one (P1–P3); or a whole list
/// (P6, P7), a resync of everything (P5), a bookmark (P4). Whether an object was added or updated is for the
/// store to say, not for the kind of change. `notify` is also told whether nothing but a resync happened
/// (I16).
pub(super) fn process_deltas<T: Object>(
    store: &Indexer<T>,
    deltas: &Deltas<T>,
    is_in_initial_list: bool,
    mut notify: impl FnMut(Notification<T>, bool),
) -> Result<(), StoreError> {
    let updated = |old: Arc<T>, new: Arc<T>| {
        let sync = old.resource_version() == new.resource_version();
        (Notification::Update { old, new }, sync)
    };
    for delta in deltas.iter() {
        match delta {
            Delta::Deleted(gone) => {
                match deltas.key() {
                    Some(key) => store.delete_keyed(key, gone)?,
                    None => store.delete(gone)?,
                }
                notify(Notification::Delete(gone.clone()), false);
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
                notify(notification, sync);
            }
            Delta::ReplacedAll(list) => {
                let mut keyed = Vec::with_capacity(list.objects.len());
                for object in &list.objects {
                    keyed.push((store.accessor().key(object)?, Arc::clone(object)));
                }
                let old: HashMap<Key, Arc<T>> = store.entries().into_iter().collect();
                store.replace_keyed(keyed.clone(), &list.resource_version)?;
                let listed: HashSet<&Key> = keyed.iter().map(|(key, _)| key).collect();
                for (key, object) in old.iter().filter(|(key, _)| !listed.contains(key)) {
                    let (key, last_known) = (Key::clone(key), Some(Arc::clone(object)));
                    notify(Notification::Delete(Deleted::FinalStateUnknown { key, last_known }), false);
                }
                for (key, new) in &keyed {
                    let new = Arc::clone(new);
                    let (notification, sync) = match old.get(key) {
                        Some(old) => updated(Arc::clone(old), new),
                        None => (Notification::Add { object: new, is_in_initial_list }, false),
                    };
                    notify(notification, sync);
                }
            }
            Delta::SyncAll => {
                for object in store.list() {
                    let (notification, sync) = updated(Arc::clone(&object), object);
                    notify(notification, sync);
                }
            }
            Delta::Bookmark(resource_version) => store.bookmark(resource_version),
        }
    }
    Ok(())
}
