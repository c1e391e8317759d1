//! From an informer's queue to its cache: client-go's `processDeltas`.

use std::sync::Arc;

use super::handler::Notification;
use crate::object::{Accessor, Object};
use crate::queue::{Delta, DeltaFifo, Deltas, Queue};
use crate::store::{Indexer, StoreError};

/// The queue of an informer, which knows what is in its cache.
pub(super) fn informer_queue<T: Object>(indexer: &Arc<Indexer<T>>) -> Arc<dyn Queue<T>> {
    let known_objects: Arc<Indexer<T>> = Arc::clone(indexer);
    Arc::new(DeltaFifo::builder(Accessor::object()).known_objects(known_objects).emit_replaced(true).build())
}

/// Applies the changes of one object to the store, oldest first, and tells each one (P1–P3). Whether an
/// object was added or updated is for the store to say, not for the kind of change. `notify` is also told
/// whether nothing but a resync happened (I16).
pub(super) fn process_deltas<T: Object>(
    store: &Indexer<T>,
    deltas: &Deltas<T>,
    is_in_initial_list: bool,
    mut notify: impl FnMut(Notification<T>, bool),
) -> Result<(), StoreError> {
    for delta in deltas.iter() {
        match delta {
            Delta::Deleted(deleted) => {
                store.delete(deleted)?;
                notify(Notification::Delete(deleted.clone()), false);
            }
            Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) | Delta::Sync(object) => {
                let (object, new) = (Arc::clone(object), Arc::clone(object));
                match store.add(object)? {
                    Some(old) => {
                        let sync = old.resource_version() == new.resource_version();
                        notify(Notification::Update { old, new }, sync);
                    }
                    None => notify(Notification::Add { object: new, is_in_initial_list }, false),
                }
            }
        }
    }
    Ok(())
}
