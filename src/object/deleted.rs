use std::sync::Arc;

use super::{Key, Object};

/// What is known of an object that is gone: its last state, or a tombstone.
///
/// A handler that only needs to know *which* object it was can call [`name`](Self::name),
/// [`namespace`](Self::namespace) and [`key`](Self::key) on either.
///
/// ```
/// use k8s_informer::{Deleted, DynamicObject};
///
/// let missed = Deleted::<DynamicObject>::FinalStateUnknown { key: "default/web-0".into(), last_known: None };
/// assert_eq!((missed.namespace(), missed.name()), ("default", "web-0"));
/// assert!(missed.is_final_state_unknown() && missed.object().is_none());
/// ```
#[derive(Debug)]
#[doc(alias = "DeletedFinalStateUnknown")]
pub enum Deleted<T> {
    /// The watch delivered the deletion, with the object as it was last.
    Final(Arc<T>),
    /// The deletion was missed and noticed by a relist. client-go's `DeletedFinalStateUnknown` (K3).
    FinalStateUnknown {
        /// The key of the object.
        key: Key,
        /// The last state that was cached, probably stale; `None` if there was none.
        last_known: Option<Arc<T>>,
    },
}

impl<T> Deleted<T> {
    /// The object, if there is one: stale in a tombstone.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Final(object) => Some(object),
            Self::FinalStateUnknown { last_known, .. } => last_known.as_ref(),
        }
    }

    /// Whether it is a tombstone.
    pub fn is_final_state_unknown(&self) -> bool {
        matches!(self, Self::FinalStateUnknown { .. })
    }
}

impl<T: Object> Deleted<T> {
    /// The key: a tombstone's own, else the object's. client-go's `DeletionHandlingMetaNamespaceKeyFunc`.
    pub fn key(&self) -> Key {
        match self {
            Self::Final(object) => super::meta_namespace_key(&**object),
            Self::FinalStateUnknown { key, .. } => Arc::clone(key),
        }
    }

    /// The name: of a tombstone what follows the first slash of its key (H3).
    pub fn name(&self) -> &str {
        match self {
            Self::Final(object) => object.name(),
            Self::FinalStateUnknown { key, .. } => {
                key.split_once('/').map_or(key, |(_, name)| name)
            }
        }
    }

    /// The namespace, empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Final(object) => object.namespace(),
            Self::FinalStateUnknown { key, .. } => {
                key.split_once('/').map_or("", |(namespace, _)| namespace)
            }
        }
    }
}

impl<T> Clone for Deleted<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Final(object) => Self::Final(Arc::clone(object)),
            Self::FinalStateUnknown { key, last_known } => Self::FinalStateUnknown {
                key: Arc::clone(key),
                last_known: last_known.clone(),
            },
        }
    }
}

impl<T: PartialEq> PartialEq for Deleted<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Final(a), Self::Final(b)) => a == b,
            (
                Self::FinalStateUnknown {
                    key: a,
                    last_known: x,
                },
                Self::FinalStateUnknown {
                    key: b,
                    last_known: y,
                },
            ) => a == b && x == y,
            _ => false,
        }
    }
}
