use std::sync::Arc;

use super::{Key, Object};

/// A deleted object: its final state, or a tombstone.
///
/// To identify the object, call [`name`](Self::name), [`namespace`](Self::namespace) or
/// [`key`](Self::key), which work for both variants.
///
/// ```
/// use k8s_informer::{Deleted, DynamicObject};
///
/// let missed = Deleted::<DynamicObject>::FinalStateUnknown { key: "default/web-0".into(), last_known: None };
/// assert_eq!((missed.namespace(), missed.name()), ("default", "web-0"));
/// assert!(missed.is_final_state_unknown() && missed.object().is_none());
/// ```
#[derive(Debug, PartialEq)]
#[doc(alias = "DeletedFinalStateUnknown")]
// Exhaustive: the final state of an object is known or not.
pub enum Deleted<T> {
    /// The watch delivered the deletion, with the final state of the object.
    Final(Arc<T>),
    /// A tombstone: the final state is not available. Usually, the watch missed the deletion and a
    /// relist detected it. Sometimes, the object of the deletion event could not be read. It
    /// corresponds to client-go's `DeletedFinalStateUnknown`.
    FinalStateUnknown {
        /// The key of the object.
        key: Key,
        /// The last cached state, which is probably stale. `None` if there was no cached state.
        last_known: Option<Arc<T>>,
    },
}

impl<T> Deleted<T> {
    /// Returns the object, if there is one. The object of a tombstone is stale.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Final(object) => Some(object),
            Self::FinalStateUnknown { last_known, .. } => last_known.as_ref(),
        }
    }

    /// Returns the object, if there is one.
    pub(crate) fn into_object(self) -> Option<Arc<T>> {
        match self {
            Self::Final(object) => Some(object),
            Self::FinalStateUnknown { last_known, .. } => last_known,
        }
    }

    /// Whether this is a tombstone.
    pub fn is_final_state_unknown(&self) -> bool {
        matches!(self, Self::FinalStateUnknown { .. })
    }
}

impl<T: Object> Deleted<T> {
    /// Returns the key: the key in a tombstone, or else the key of the object.
    ///
    /// It corresponds to client-go's `DeletionHandlingMetaNamespaceKeyFunc`.
    pub fn key(&self) -> Key {
        match self {
            Self::Final(object) => super::meta_namespace_key(&**object),
            Self::FinalStateUnknown { key, .. } => Key::clone(key),
        }
    }

    /// Returns the name. The name of a tombstone is the part of its key after the first slash.
    pub fn name(&self) -> &str {
        match self {
            Self::Final(object) => object.name(),
            Self::FinalStateUnknown { key, .. } => key.name(),
        }
    }

    /// Returns the namespace, which is empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Final(object) => object.namespace(),
            Self::FinalStateUnknown { key, .. } => key.namespace(),
        }
    }
}

impl<T> Clone for Deleted<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Final(object) => Self::Final(Arc::clone(object)),
            Self::FinalStateUnknown { key, last_known } => Self::FinalStateUnknown {
                key: Key::clone(key),
                last_known: last_known.clone(),
            },
        }
    }
}
