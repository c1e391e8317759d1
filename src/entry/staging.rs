use super::{Delta, Door, Entry, Gaps};
use crate::resource_version::ResourceVersion;
use crate::store::StoreError;

/// The part of a queue or store that takes entries from a reflector, instead of objects.
///
/// With it, no list is held in memory twice, unchanged objects are not decoded again, and the cached
/// copy of an unreadable object stays when a list replaces the others. The reflector calls these methods
/// from its thread, without a lock.
pub trait Staging<T>: Send + Sync {
    /// Returns the door through which objects become entries.
    fn door(&self) -> &Door<T>;

    /// Returns the newest known state of the object with this key, or an older one. The caller
    /// compares its digest.
    fn known(&self, key: &str) -> Option<Entry<T>>;

    /// Whether there is an object with this key, or may be one.
    fn has(&self, key: &str) -> bool {
        self.known(key).is_some()
    }

    /// Whether the last list and everything before it have been processed, even if some failed.
    fn is_settled(&self) -> bool {
        true
    }

    /// Returns the number of objects for which an index function failed.
    fn unindexed(&self) -> usize {
        0
    }

    /// Applies changes in order and removes them from `changes`.
    fn apply_entries(&self, changes: &mut Vec<Delta<T>>) -> Applied;

    /// Records the version of a change that was not applied because it cannot be read or stored.
    fn skipped(&self, _: Option<ResourceVersion>) {}

    /// Replaces the whole content, like
    /// [`ReflectorStore::replace`](crate::store::ReflectorStore::replace). Stored objects that are in the
    /// gaps stay as they are.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector lists again.
    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<Applied, StoreError>;
}

/// What a store could not do with changes that it received. The others have been applied.
#[derive(Default)]
pub struct Applied {
    /// The errors of the changes that were rejected.
    pub rejected: Vec<StoreError>,
    /// The errors of index functions that failed for a new state of an object. The object is stored.
    pub unindexed: Vec<StoreError>,
}
