pub use super::door::Door;
pub use super::gaps::Gaps;
use super::{Delta, Entry};
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

    /// Applies changes in order and removes them from `changes`. Returns the errors of those that
    /// were rejected.
    fn apply_entries(&self, changes: &mut Vec<Delta<T>>) -> Vec<StoreError>;

    /// Records the version of a change that was not applied because it cannot be read or stored.
    fn skipped(&self, _: &str) {}

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
        resource_version: &str,
    ) -> Result<(), StoreError>;
}
