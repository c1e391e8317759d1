use std::sync::Arc;

use super::ResourceEventHandler;
use crate::base::derive::clone_fields;
use crate::object::{Deleted, Key, Object, meta_namespace_key};

/// A call of a handler, as a value. client-go's `addNotification`, `updateNotification` and
/// `deleteNotification`.
///
/// ```
/// use k8s_informer::{DynamicObject, Notification, Object};
/// use k8s_informer::handler::HandlerFuncs;
/// use std::sync::Arc;
///
/// let object: Arc<DynamicObject> = Arc::new(serde_json::from_str(r#"{"metadata": {"name": "a"}}"#)?);
/// let event = Notification::Added { object, is_in_initial_list: false };
/// assert_eq!((&*event.key(), event.name(), event.namespace()), ("a", "a", ""));
/// let (sender, names) = std::sync::mpsc::channel();
/// let mut handler = HandlerFuncs::<DynamicObject>::new()
///     .on_add(move |object, _| sender.send(object.name().to_owned()).unwrap());
/// event.deliver(&mut handler);
/// assert_eq!(names.recv()?, "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias = "addNotification")]
// Exhaustive: an object appears, changes or goes.
pub enum Notification<T> {
    /// An object appeared.
    Added {
        /// The current state.
        object: Arc<T>,
        /// Whether the object existed when the informer, or the handler, started.
        is_in_initial_list: bool,
    },
    /// An object changed, or a resync repeated its state.
    Modified {
        /// The state that was delivered before.
        old: Arc<T>,
        /// The current state.
        new: Arc<T>,
    },
    /// An object was deleted.
    Deleted {
        /// The last state of the object, or a tombstone.
        gone: Deleted<T>,
        /// The state that was delivered before, if it differs from the state in `gone`. The states
        /// can differ because a DELETED event carries the final state, and because a coalescing
        /// buffer merges undelivered updates into the deletion.
        last_delivered: Option<Arc<T>>,
    },
}

impl<T> Notification<T> {
    /// Creates a deletion. `last_delivered` is kept only if it differs from the object in `gone`.
    pub(crate) fn deleted(gone: Deleted<T>, last_delivered: Option<Arc<T>>) -> Self {
        let is_same = |last: &Arc<T>| {
            gone.object()
                .is_some_and(|object| Arc::ptr_eq(object, last))
        };
        let last_delivered = last_delivered.filter(|last| !is_same(last));
        Self::Deleted {
            gone,
            last_delivered,
        }
    }

    /// Calls the matching method of `handler`.
    pub fn deliver(&self, handler: &mut dyn ResourceEventHandler<T>) {
        match self {
            Self::Added {
                object,
                is_in_initial_list,
            } => handler.on_add(object, *is_in_initial_list),
            Self::Modified { old, new } => handler.on_update(old, new),
            Self::Deleted {
                gone,
                last_delivered: None,
            } => handler.on_delete(gone),
            Self::Deleted {
                gone,
                last_delivered: Some(last),
            } => handler.on_delete_after(last, gone),
        }
    }

    /// Returns the newest state of the object, or `None` for a deletion whose last state is
    /// unknown.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Added { object, .. } | Self::Modified { new: object, .. } => Some(object),
            Self::Deleted { gone, .. } => gone.object(),
        }
    }

    /// Returns the objects.
    pub(crate) fn into_objects(self) -> impl Iterator<Item = Arc<T>> {
        let objects = match self {
            Self::Added { object, .. } => [Some(object), None],
            Self::Modified { old, new } => [Some(old), Some(new)],
            Self::Deleted {
                gone,
                last_delivered,
            } => [gone.into_object(), last_delivered],
        };
        objects.into_iter().flatten()
    }

    /// Whether the notification has an object that the cache does not have any more.
    pub(crate) fn has_replaced_object(&self) -> bool {
        match self {
            Self::Added { .. } => false,
            Self::Modified { old, new } => !Arc::ptr_eq(old, new),
            Self::Deleted { .. } => true,
        }
    }

    /// Whether this is an add of the initial list. The handler is synced when all of these are
    /// processed.
    pub(crate) fn is_in_initial_list(&self) -> bool {
        matches!(
            self,
            Self::Added {
                is_in_initial_list: true,
                ..
            }
        )
    }
}

/// The identity is available for all events, including deletions whose last state is unknown.
impl<T: Object> Notification<T> {
    /// Returns the key of the object, `namespace/name`. A controller adds it to its
    /// [queue](crate::workqueue#writing-a-controller).
    pub fn key(&self) -> Key {
        match self {
            Self::Added { object, .. } | Self::Modified { new: object, .. } => {
                meta_namespace_key(&**object)
            }
            Self::Deleted { gone, .. } => gone.key(),
        }
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        match self {
            Self::Added { object, .. } | Self::Modified { new: object, .. } => object.name(),
            Self::Deleted { gone, .. } => gone.name(),
        }
    }

    /// Returns the namespace of the object, empty for a cluster-scoped one.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Added { object, .. } | Self::Modified { new: object, .. } => object.namespace(),
            Self::Deleted { gone, .. } => gone.namespace(),
        }
    }
}

impl<T> Clone for Notification<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added {
                object,
                is_in_initial_list,
            } => Self::Added {
                object: Arc::clone(object),
                is_in_initial_list: *is_in_initial_list,
            },
            Self::Modified { old, new } => Self::Modified {
                old: Arc::clone(old),
                new: Arc::clone(new),
            },
            Self::Deleted {
                gone,
                last_delivered,
            } => Self::Deleted {
                gone: gone.clone(),
                last_delivered: last_delivered.clone(),
            },
        }
    }
}

/// A notification for a handler, with the object's key in the cache.
pub(crate) struct KeyedNotification<T> {
    pub(crate) key: Key,
    pub(crate) event: Notification<T>,
}

clone_fields!(KeyedNotification<T>: key, event);
