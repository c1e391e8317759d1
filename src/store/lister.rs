use std::fmt;
use std::sync::Arc;

use super::index::label_index;
use super::{IndexError, Indexer, NAMESPACE_INDEX};
use crate::base::derive::{clone_fields, debug_fields, unwind_safe};
use crate::object::{Key, Object};
use crate::resource_version::ResourceVersion;
use crate::selector::Selector;

/// Reads the objects of an informer by name, namespace or index. client-go's generated listers, and
/// the reads of its `Indexer`.
///
/// [`SharedIndexInformer::lister`] returns one. Only the informer writes to its cache. Clones read
/// the same indexer, from any number of threads.
///
/// A lister returns the current content of the cache, in no particular order. The cache lags behind
/// the server by the delay of the watch, and it is incomplete until the informer has synced.
/// Objects are shared with the cache. No call sends a request to the server, and none blocks for
/// longer than a short lock. [`ThreadSafeStore`](crate::store::ThreadSafeStore) documents these
/// locks, and what a list contains during writes.
///
/// The time of a lookup by name or index depends only on the number of objects found.
/// [`select`](Self::select) checks every object, unless you add an index by a
/// label of the selector, [to an informer](crate::SharedIndexInformer::add_label_index) or [to a
/// store](super::Indexers::with_label).
///
/// [`SharedIndexInformer::lister`]: crate::SharedIndexInformer::lister
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer, Lister};
/// use std::sync::Arc;
///
/// let indexer = Arc::new(Indexer::<DynamicObject>::for_objects());
/// indexer.add(Arc::new(serde_json::from_str(r#"{"metadata": {"namespace": "default", "name": "web"}}"#)?))?;
/// let pods = Lister::new(indexer);
/// assert!(pods.get("default", "web").is_some());
/// assert_eq!(pods.get_by_key("default/web"), pods.get("default", "web"));
/// assert_eq!(pods.namespace("default").list().len(), 1);
/// assert!(pods.select(&"app=web".parse()?).is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "GenericLister")]
pub struct Lister<T> {
    indexer: Arc<Indexer<T>>,
}

impl<T: Object> Lister<T> {
    /// Creates a lister of an indexer whose keys are `namespace/name`, or `name` for cluster-scoped
    /// objects.
    pub fn new(indexer: Arc<Indexer<T>>) -> Self {
        Self { indexer }
    }

    /// Returns one object. Pass an empty namespace for a cluster-scoped object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        if namespace.is_empty() {
            return self.get_by_key(name);
        }
        self.get_by_key(&format!("{namespace}/{name}"))
    }

    /// Returns one object by its key, `namespace/name` or `name`. A controller's
    /// [queue](crate::workqueue#writing-a-controller) returns keys in this form.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.indexer.get_by_key(key)
    }

    /// Returns all objects.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.indexer.list()
    }

    /// Returns the objects that match a selector. client-go's `ListAll`.
    ///
    /// If the selector has an `=` or `in` for a label with an index, it checks only the objects with
    /// these values. With several such indexes, it uses the one with the fewest objects. Otherwise, it
    /// checks every object.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        self.select_in("", selector)
    }

    fn select_in(&self, namespace: &str, selector: &Selector) -> Vec<Arc<T>> {
        let wanted = selector.wanted();
        let mut choices: Vec<_> = wanted
            .map(|(label, values)| (label_index(label), values))
            .collect();
        if !namespace.is_empty() {
            choices.push((NAMESPACE_INDEX.to_owned(), vec![namespace]));
        }
        let fewest = self.indexer.keyed().by_fewest(&choices);
        let mut objects = fewest.unwrap_or_else(|| self.list());
        objects.retain(|object| {
            (namespace.is_empty() || object.namespace() == namespace) && selector.matches(&**object)
        });
        objects
    }

    /// Returns a lister of one namespace, or of all namespaces if `namespace` is empty.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> NamespaceLister<'a, T> {
        NamespaceLister {
            lister: self,
            namespace,
        }
    }

    /// Returns the objects with this index value.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.indexer.by_index(name, value)
    }

    /// Returns the objects with this index value, but only if no object is unindexed: see
    /// [`Indexer::by_complete_index`].
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`, and [`IndexError::Unindexed`] if the
    /// result may lack an object.
    pub fn by_complete_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.indexer.by_complete_index(name, value)
    }

    /// Returns the sorted keys of the objects with this index value.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
        self.indexer.index_keys(name, value)
    }

    /// Returns all current values of an index in no particular order. client-go's
    /// `ListIndexFuncValues`.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    #[doc(alias = "ListIndexFuncValues")]
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError> {
        self.indexer.index_values(name)
    }

    /// Returns the sorted names of the indexes. client-go's `GetIndexers`.
    #[doc(alias = "GetIndexers")]
    pub fn index_names(&self) -> Vec<Arc<str>> {
        self.indexer.index_names()
    }

    /// Returns the sorted keys of the objects for which the function of this index failed.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn unindexed(&self, name: &str) -> Result<Vec<Key>, IndexError> {
        self.indexer.unindexed(name)
    }

    /// Returns all keys in no particular order.
    pub fn list_keys(&self) -> Vec<Key> {
        self.indexer.list_keys()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.indexer.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.indexer.is_empty()
    }

    /// Returns the resource version of the last write, which may be older than that of an earlier
    /// write. To find out how far the cache of an informer is, call
    /// [`store_resource_version`](crate::SharedIndexInformer::store_resource_version).
    #[doc(alias = "LastStoreSyncResourceVersion")]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.indexer.resource_version()
    }
}

clone_fields!(Lister<T>: indexer);

unwind_safe!(Lister<T>);

debug_fields!(Lister<T>: indexer);

/// Reads the objects of one namespace. client-go's `NamespaceLister`.
#[doc(alias = "GenericNamespaceLister")]
pub struct NamespaceLister<'a, T> {
    lister: &'a Lister<T>,
    namespace: &'a str,
}

impl<T: Object> NamespaceLister<'_, T> {
    /// Returns one object. If the namespace is empty, it returns `None`, as in client-go.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.lister
            .indexer
            .get_by_key(&format!("{}/{name}", self.namespace))
    }

    /// Returns all objects of the namespace. It uses the index `namespace`. If the indexer does
    /// not have that index, or if the index lacks an object, it checks every object.
    pub fn list(&self) -> Vec<Arc<T>> {
        if self.namespace.is_empty() {
            return self.lister.list();
        }
        let store = self.lister.indexer.keyed();
        match store.by_complete_index(NAMESPACE_INDEX, self.namespace) {
            Ok(objects) => objects,
            Err(_) => {
                let mut objects = self.lister.list();
                objects.retain(|object| object.namespace() == self.namespace);
                objects
            }
        }
    }

    /// Returns the objects of the namespace that match a selector, with indexes like
    /// [`Lister::select`]. client-go's `ListAllByNamespace`.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        self.lister.select_in(self.namespace, selector)
    }
}

impl<T> fmt::Debug for NamespaceLister<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
