//! Objects and their changes on the way from a reflector to a cache: an object gets its key at the
//! [`Door`] of a queue or store, and is an [`Entry`] from then on.

mod change;
mod delta;
#[expect(unnameable_types, reason = "only the reflector calls a `Staging`")]
mod door;
#[expect(unnameable_types, reason = "only the reflector calls a `Staging`")]
mod gaps;
#[expect(unnameable_types, reason = "only the reflector calls it")]
mod staging;

use std::fmt;
use std::sync::Arc;

pub use self::change::Change;
pub use self::delta::{Delta, ReplacedAll};
pub(crate) use self::door::Door;
pub(crate) use self::gaps::Gaps;
pub(crate) use self::staging::{Applied, Staging};
use crate::base::derive::clone_fields;
use crate::base::digest::Digest;
use crate::object::Key;
use crate::resource_version::ResourceVersion;

/// An object as a queue or cache has it: transformed, with its key and version.
///
/// ```
/// use k8s_informer::queue::Entry;
/// use std::sync::Arc;
///
/// let entry = Entry::new("default/web-0".into(), Arc::new("a pod"));
/// assert_eq!((&*entry.key, *entry.object, entry.version), ("default/web-0", "a pod", None));
/// ```
#[derive(PartialEq)]
#[non_exhaustive]
pub struct Entry<T> {
    /// The key of the object before the transform. In a [`RealFifo`](crate::queue::RealFifo), it is
    /// the key after the transform, as in client-go, unless the transformed object has none.
    pub key: Key,
    /// The resource version of the object before the transform. In a resync, it is that of the cached
    /// object. `None` if it is empty or the object has no metadata, and for an entry that
    /// [`new`](Self::new) created.
    pub version: Option<ResourceVersion>,
    /// The transformed object.
    pub object: Arc<T>,
    /// The digest of the object before the transform.
    pub(crate) digest: Digest,
}

impl<T> Entry<T> {
    /// Creates an entry without a version.
    pub fn new(key: Key, object: Arc<T>) -> Self {
        Self {
            key,
            version: None,
            object,
            digest: Digest::NONE,
        }
    }
}

clone_fields!(Entry<T>: key, version, object, digest);

impl<T: fmt::Debug> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entry = f.debug_struct("Entry");
        entry
            .field("key", &self.key)
            .field("version", &self.version);
        entry.field("object", &self.object).finish_non_exhaustive()
    }
}
