//! What is held: stores and their indices. client-go's `store.go`, `thread_safe_store.go`, `index.go`.

mod error;

use std::sync::Arc;

use crate::object::{Deleted, Key};

pub use error::StoreError;

/// What a reflector writes to: the least that a queue or a store has to be. client-go's `ReflectorStore`.
///
/// Each call is one fact from the server, in the order in which the server told them. None of them may wait for long: the
/// watch waits with it.
pub trait ReflectorStore<T>: Send + Sync {
    /// An object appeared.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector logs it and goes on.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError>;

    /// An object changed.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError>;

    /// An object is gone.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn delete(&self, object: Deleted<T>) -> Result<(), StoreError>;

    /// These are all the objects there are, as of this resourceVersion.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector lists again.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError>;

    /// Tell the consumer about everything once more. A store has nobody to tell.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector ends its watch and lists again.
    fn resync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Everything up to this resourceVersion has been told.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        let _ = resource_version;
        Ok(())
    }
}

/// What a queue asks of the store that its consumer fills: client-go's `KeyListerGetter`.
pub trait KnownObjects<T>: Send + Sync {
    /// The keys of all objects.
    fn list_keys(&self) -> Vec<Key>;

    /// One object, `None` if it is not there.
    ///
    /// # Errors
    ///
    /// If it can't be told; the stores of this crate always can.
    fn get_by_key(&self, key: &str) -> Result<Option<Arc<T>>, StoreError>;
}
