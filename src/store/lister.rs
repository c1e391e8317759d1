use std::fmt;
use std::sync::Arc;

use super::{IndexError, Indexer, NAMESPACE_INDEX};
use crate::object::Object;
use crate::selector::Selector;

/// Reads an informer's objects: by name, by namespace, by index. client-go's generated listers.
///
/// It is what a program reads from an informer: [`SharedIndexInformer::lister`] gives one. Clones read the
/// same indexer, from as many threads as you like.
///
/// What it gives is what is cached now, in no order: behind the server by as much as the watch is late, and
/// incomplete until the informer has synced. The objects are the cache's own, shared. No call goes to the
/// server, and none waits for longer than a short lock; [`ThreadSafeStore`](crate::store::ThreadSafeStore) says
/// which, and what a list is while others write.
///
/// A lookup by name or index costs what it finds; [`select`](Self::select) looks at every object, so make an
/// index of what you select by often.
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
    /// Reads this indexer, whose keys must be `namespace/name`, or `name`.
    pub fn new(indexer: Arc<Indexer<T>>) -> Self {
        Self { indexer }
    }

    /// One object; the namespace is empty for a cluster-scoped one.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        if namespace.is_empty() {
            return self.get_by_key(name);
        }
        self.get_by_key(&format!("{namespace}/{name}"))
    }

    /// One object by its key, `namespace/name` or `name`, as it comes out of a controller's
    /// [queue](crate::workqueue#writing-a-controller).
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.indexer.get_by_key(key)
    }

    /// All objects.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.indexer.list()
    }

    /// The objects that a selector selects, by looking at each. client-go's `ListAll`.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        selected(self.list(), selector)
    }

    /// The objects of one namespace; of all if it is empty.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> NamespaceLister<'a, T> {
        NamespaceLister {
            lister: self,
            namespace,
        }
    }

    /// The objects that an index has under a value.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`].
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.indexer.by_index(name, value)
    }

    /// The indexer that it reads.
    pub fn indexer(&self) -> &Arc<Indexer<T>> {
        &self.indexer
    }
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self {
            indexer: Arc::clone(&self.indexer),
        }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lister").field(&self.indexer).finish()
    }
}

/// Reads the objects of one namespace. client-go's `NamespaceLister`.
#[doc(alias = "GenericNamespaceLister")]
pub struct NamespaceLister<'a, T> {
    lister: &'a Lister<T>,
    namespace: &'a str,
}

impl<T: Object> NamespaceLister<'_, T> {
    /// One object; none if the namespace is empty, as in client-go.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.lister
            .indexer
            .get_by_key(&format!("{}/{name}", self.namespace))
    }

    /// All objects of the namespace: from the [`NAMESPACE_INDEX`], or, if the indexer hasn't got it, by
    /// looking at each.
    pub fn list(&self) -> Vec<Arc<T>> {
        if self.namespace.is_empty() {
            return self.lister.list();
        }
        match self.lister.by_index(NAMESPACE_INDEX, self.namespace) {
            Ok(objects) => objects,
            Err(_) => {
                let mut objects = self.lister.list();
                objects.retain(|object| object.namespace() == self.namespace);
                objects
            }
        }
    }

    /// The objects of the namespace that a selector selects. client-go's `ListAllByNamespace`.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        selected(self.list(), selector)
    }
}

fn selected<T: Object>(mut objects: Vec<Arc<T>>, selector: &Selector) -> Vec<Arc<T>> {
    if !selector.is_empty() {
        objects.retain(|object| selector.matches(&**object));
    }
    objects
}

impl<T> fmt::Debug for NamespaceLister<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
