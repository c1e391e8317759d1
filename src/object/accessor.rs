use std::sync::Arc;

use super::Object;
use super::deleted::Deleted;
use super::key::{Key, KeyError, meta_namespace_key, namespaced_key};
use crate::base::derive::{clone_fields, debug_fields};
use crate::base::panic::catch;
use crate::log;

type KeyFn<T> = dyn Fn(&T) -> Result<Key, KeyError> + Send + Sync;
type CheckFn = dyn Fn(&Key) -> Result<(), KeyError> + Send + Sync;
type ResourceVersionFn<T> = dyn for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync;

/// Reads the key and the resource version of the objects in a queue or store.
///
/// Queues and stores require nothing else of their objects. For Kubernetes objects, use
/// [`Accessor::object`]. To queue or store any other type, pass your own functions to
/// [`Accessor::new`]. The counterparts in client-go are `KeyFunc` and `meta.Accessor`.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
///
/// let accessor = Accessor::new(|word: &String| {
///     if word.is_empty() { Err(KeyError::new("an empty word")) } else { Ok(word.as_str().into()) }
/// });
/// assert_eq!(&*accessor.key(&"a".to_owned())?, "a");
/// assert!(accessor.key(&String::new()).is_err());
/// # Ok::<(), KeyError>(())
/// ```
#[doc(alias = "KeyFunc")]
pub struct Accessor<T> {
    key: Arc<KeyFn<T>>,
    resource_version: Arc<ResourceVersionFn<T>>,
    /// Whether the key is made of the namespace and name.
    by_name: bool,
    /// Refuses keys that the key function refuses as well.
    check: Option<Arc<CheckFn>>,
}

impl<T> Accessor<T> {
    /// Creates an accessor with a key function, for objects without a resource version.
    pub fn new(key: impl Fn(&T) -> Result<Key, KeyError> + Send + Sync + 'static) -> Self {
        Self {
            key: Arc::new(key),
            resource_version: Arc::new(|_| None),
            by_name: false,
            check: None,
        }
    }

    /// Sets the function that reads the resource version. It returns `None` for an object without
    /// metadata.
    #[must_use]
    pub fn with_resource_version(
        self,
        resource_version: impl for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        Self {
            resource_version: Arc::new(resource_version),
            ..self
        }
    }

    /// Adds a check of the keys. An object whose key fails the check has no key.
    pub(crate) fn with_check(
        self,
        check: impl Fn(&Key) -> Result<(), KeyError> + Send + Sync + 'static,
    ) -> Self
    where
        T: 'static,
    {
        let (key, check) = (self.key, Arc::new(check));
        let own = Arc::clone(&check);
        let checked = move |object: &T| key(object).and_then(|key| own(&key).map(|()| key));
        Self {
            key: Arc::new(checked),
            check: Some(check),
            ..self
        }
    }

    /// Returns the key of an object.
    ///
    /// # Errors
    ///
    /// Returns the error of the key function. A panic in the function becomes an error.
    pub fn key(&self, object: &T) -> Result<Key, KeyError> {
        catch(|| (self.key)(object))
            .unwrap_or_else(|message| Err(KeyError::new(format!("the key function {message}"))))
    }

    /// Returns the key of a deleted object: the key in a tombstone, or else the key of the object.
    ///
    /// It corresponds to client-go's `DeletionHandlingMetaNamespaceKeyFunc`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`key`](Self::key). A tombstone always has a key.
    pub fn key_of_deleted(&self, deleted: &Deleted<T>) -> Result<Key, KeyError> {
        match deleted {
            Deleted::Final(object) => self.key(object),
            Deleted::FinalStateUnknown { key, .. } => Ok(Key::clone(key)),
        }
    }

    /// Returns the key of the object with this namespace and name. `None` if the key function needs
    /// the object itself.
    pub(crate) fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key> {
        let key = self.by_name.then(|| namespaced_key(namespace, name))?;
        let is_own = self.check.as_ref().is_none_or(|check| check(&key).is_ok());
        is_own.then_some(key)
    }

    /// Returns the resource version of an object. `None` if the object has no metadata or the
    /// function panics.
    pub fn resource_version<'a>(&self, object: &'a T) -> Option<&'a str> {
        catch(|| (self.resource_version)(object)).unwrap_or_else(|message| {
            log::error!("the resource version function of an accessor {message}");
            None
        })
    }
}

impl<T: Object> Accessor<T> {
    /// Returns the accessor of Kubernetes objects: [`meta_namespace_key`] and
    /// `metadata.resourceVersion`.
    pub fn object() -> Self {
        let accessor = Self::new(|object: &T| Ok(meta_namespace_key(object)))
            .with_resource_version(|object| Some(object.resource_version()));
        Self {
            by_name: true,
            ..accessor
        }
    }
}

clone_fields!(Accessor<T>: key, resource_version, by_name, check);

debug_fields!(Accessor<T>:);
