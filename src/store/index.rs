use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{AddIndexersError, FunctionError, StoreError};
use crate::base::derive::{clone_fields, debug_fields};
use crate::object::{Key, KeyError, Object};
use crate::selector::is_qualified_name;

/// The name of the index by namespace, which listers use.
pub(crate) const NAMESPACE_INDEX: &str = "namespace";

/// Returns the name of the index by a label.
pub(super) fn label_index(label: &str) -> String {
    format!("k8s-informer/label/{label}")
}

type Error = Box<dyn std::error::Error + Send + Sync>;
type Function<T> = dyn Fn(&T) -> Result<Vec<String>, Error> + Send + Sync;

/// A function that computes the index values of an object: none, one or several. client-go's
/// `IndexFunc`.
///
/// It runs without any lock, whenever an object is written. A panic counts as a failure.
///
/// If the function fails in an [`Indexer`](super::Indexer) or [`ThreadSafeStore`](super::ThreadSafeStore)
/// that you write to, the write fails and changes nothing. If it fails in an informer, or in an indexer
/// that a [`Reflector`](crate::reflector::Reflector) fills, the object is *unindexed*: it is in the
/// cache and delivered to handlers, but no value of this index finds it. The error is reported once
/// for each state of the object, and
/// [`ReflectorStatus::unindexed`](crate::reflector::ReflectorStatus::unindexed) counts the objects. The
/// function runs again for each new state, and for each object of a relist, but not for a resync.
///
/// ```
/// use k8s_informer::store::{IndexFunc, Indexers, ThreadSafeStore};
/// use std::sync::Arc;
///
/// let letters = IndexFunc::new(|word: &String| word.chars().map(String::from).collect());
/// let number = IndexFunc::fallible(|word: &String| word.parse::<u8>().map(|n| vec![n.to_string()]));
/// let store = ThreadSafeStore::new(Indexers::new().with("letters", letters).with("number", number));
/// assert!(store.add("a".into(), Arc::new("ab".to_owned())).is_err(), "ab is not a number");
/// store.add("b".into(), Arc::new("12".to_owned()))?;
/// assert_eq!(store.index_values("letters")?.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IndexFunc<T> {
    function: Arc<Function<T>>,
}

impl<T> IndexFunc<T> {
    /// Creates an index function that cannot fail.
    pub fn new(function: impl Fn(&T) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self {
            function: Arc::new(move |object| Ok(function(object))),
        }
    }

    /// Creates an index function that may fail.
    pub fn fallible<E: Into<Error>>(
        function: impl Fn(&T) -> Result<Vec<String>, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            function: Arc::new(move |object| function(object).map_err(Into::into)),
        }
    }

    /// Runs the function on an object. The values keep the order of the function.
    ///
    /// # Errors
    ///
    /// Returns the error of the function, or its panic.
    pub(crate) fn values(&self, object: &T) -> Result<Vec<String>, FunctionError> {
        FunctionError::catch(|| (self.function)(object))
    }

    /// Returns the only value of an object as a key. client-go's `IndexFuncToKeyFuncAdapter`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the function fails, or if it does not return exactly one value.
    pub fn key(&self, object: &T) -> Result<Key, KeyError> {
        let values = self.values(object);
        let values = values.map_err(|error| KeyError::new(error.to_string()))?;
        match values.as_slice() {
            [value] => Ok(value.as_str().into()),
            [] => Err(KeyError::new("the index function returned no value")),
            more => Err(KeyError::new(format!(
                "the index function returned {} values",
                more.len()
            ))),
        }
    }
}

clone_fields!(IndexFunc<T>: function);

debug_fields!(IndexFunc<T>:);

/// Index functions by name. client-go's `Indexers`.
///
/// ```
/// use k8s_informer::store::{IndexFunc, Indexers, ThreadSafeStore};
///
/// let length = IndexFunc::new(|word: &String| vec![word.len().to_string()]);
/// let store = ThreadSafeStore::new(Indexers::new().with("length", length));
/// assert_eq!(store.index_names(), ["length".into()]);
/// ```
pub struct Indexers<T> {
    functions: BTreeMap<Arc<str>, IndexFunc<T>>,
}

impl<T> Indexers<T> {
    /// Creates an empty set of index functions.
    pub fn new() -> Self {
        Self {
            functions: BTreeMap::new(),
        }
    }

    /// Adds an index function. It replaces the function with the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<Arc<str>>, function: IndexFunc<T>) -> Self {
        self.functions.insert(name.into(), function);
        self
    }

    /// Adds the index `namespace`, which listers use. client-go's informers of namespaced kinds
    /// also have it.
    #[must_use]
    pub fn with_namespace(self) -> Self
    where
        T: Object,
    {
        let namespace = IndexFunc::new(|object: &T| vec![object.namespace().to_owned()]);
        self.with(NAMESPACE_INDEX, namespace)
    }

    /// Adds the index by a label, which [`Lister::select`](super::Lister::select) uses. For the cache of
    /// an informer, call [`add_label_index`](crate::SharedIndexInformer::add_label_index).
    ///
    /// ```
    /// use k8s_informer::store::{Indexer, Indexers};
    /// use k8s_informer::{DynamicObject, Lister};
    /// use std::sync::Arc;
    ///
    /// let pods = Arc::new(Indexer::<DynamicObject>::for_objects());
    /// pods.add_indexers(Indexers::new().with_label("app")?)?;
    /// pods.add(Arc::new(serde_json::from_str(r#"{"metadata": {"name": "web", "labels": {"app": "web"}}}"#)?))?;
    /// assert_eq!(Lister::new(pods).select(&"app=web".parse()?).len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AddIndexersError::InvalidLabel`] if no label can have this name.
    pub fn with_label(self, label: &str) -> Result<Self, AddIndexersError>
    where
        T: Object,
    {
        if !is_qualified_name(label) {
            let label = label.into();
            return Err(AddIndexersError::InvalidLabel { label });
        }
        let (name, label) = (label_index(label), label.to_owned());
        let value = move |object: &T| object.label(&label).map(str::to_owned);
        let values = IndexFunc::new(move |object| value(object).into_iter().collect());
        Ok(self.with(name, values))
    }

    /// Returns the sorted names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(|name| &**name)
    }

    pub(super) fn into_functions(self) -> BTreeMap<Arc<str>, IndexFunc<T>> {
        self.functions
    }
}

impl<T> Default for Indexers<T> {
    fn default() -> Self {
        Self::new()
    }
}

clone_fields!(Indexers<T>: functions);

impl<T> fmt::Debug for Indexers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// An index function that is registered with a store. `id` identifies its index in the slots.
pub(super) struct Registered<T> {
    pub(super) id: u32,
    pub(super) name: Arc<str>,
    pub(super) function: IndexFunc<T>,
    /// Whether readers see the index. While existing objects are still being indexed, only writers
    /// use it.
    pub(super) ready: bool,
}

clone_fields!(Registered<T>: id, name, function, ready);

/// All index values of one object as (index id, value): sorted, without duplicates.
pub(super) type Values = Vec<(u32, String)>;

/// The outcome of the index functions for one object.
#[derive(Clone, Default)]
pub(crate) struct Computed {
    pub(super) values: Values,
    /// The functions that failed. The object has no values in their indexes.
    pub(super) failed: Vec<FailedIndex>,
}

/// An index function that failed for an object.
#[derive(Clone)]
pub(crate) struct FailedIndex {
    pub(super) id: u32,
    /// See [`Registered::ready`].
    ready: bool,
    name: Arc<str>,
    error: FunctionError,
}

impl FailedIndex {
    pub(super) fn error(&self, key: &Key) -> StoreError {
        StoreError::Index {
            index: Arc::clone(&self.name),
            key: Key::clone(key),
            error: self.error.clone(),
        }
    }

    pub(super) fn add_error(&self, key: &Key) -> AddIndexersError {
        AddIndexersError::Function {
            name: Arc::clone(&self.name),
            key: Key::clone(key),
            error: self.error.clone(),
        }
    }
}

/// Runs the index functions on an object. A store calls them only here, without a lock.
pub(super) fn compute<T>(functions: &[Registered<T>], object: &T) -> Computed {
    let mut computed = Computed {
        values: Vec::with_capacity(functions.len()),
        failed: Vec::new(),
    };
    for registered in functions {
        match registered.function.values(object) {
            Ok(values) => {
                let values = values.into_iter().map(|value| (registered.id, value));
                computed.values.extend(values);
            }
            Err(error) => computed.failed.push(FailedIndex {
                id: registered.id,
                ready: registered.ready,
                name: Arc::clone(&registered.name),
                error,
            }),
        }
    }
    computed.values.sort_unstable();
    computed.values.dedup();
    computed
}

/// Returns the values for a write that fails if an index function fails. An index that is still being
/// added does not count.
pub(super) fn accept(key: &Key, computed: Computed) -> Result<Computed, StoreError> {
    match computed.failed.iter().find(|failed| failed.ready) {
        Some(failed) => Err(failed.error(key)),
        None => Ok(computed),
    }
}
