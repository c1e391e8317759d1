use std::fmt;
use std::sync::Arc;

use super::Change;
use crate::error::debug_as_display;
use crate::object::{Key, KeyError};

/// Why a store or a queue did not take what it was given. Nothing has changed then, unless the operation says
/// otherwise.
///
/// The object is not in the error: who wants to try again with it keeps an `Arc` of it.
#[derive(Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// The object has no key.
    Key(KeyError),
    /// The transform failed, or it panicked.
    Transform {
        /// The object's key, if it had one.
        key: Option<Key>,
        /// What it said.
        message: Arc<str>,
    },
    /// An index function failed, or it panicked.
    Index {
        /// The name of the index.
        index: Arc<str>,
        /// The key of the object.
        key: Key,
        /// What it said.
        message: Arc<str>,
    },
    /// A heap's comparison panicked.
    Compare {
        /// The key of the object that was to be put in its place.
        key: Key,
        /// What it said.
        message: Arc<str>,
    },
    /// Nothing is taken any more: it has been closed.
    Closed,
    /// There is nothing to delete.
    NotFound {
        /// The key that nothing was found under.
        key: Key,
    },
    /// The resourceVersion is not a whole number: it can't be compared with another one.
    ResourceVersion {
        /// The key of the object.
        key: Key,
        /// What stands there instead; `None` if the object has none.
        resource_version: Option<Arc<str>>,
    },
    /// A store or a policy of your own failed.
    Other(Arc<str>),
}

impl StoreError {
    /// For stores of your own.
    pub fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into().into())
    }
}

impl From<KeyError> for StoreError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(error) => write!(f, "object without a key: {error}"),
            Self::Transform {
                key: Some(key),
                message,
            } => write!(f, "transforming {key}: {message}"),
            Self::Transform { key: None, message } => write!(f, "transforming: {message}"),
            Self::Index {
                index,
                key,
                message,
            } => write!(f, "index function {index:?} on {key}: {message}"),
            Self::Compare { key, message } => write!(f, "comparing {key}: {message}"),
            Self::Closed => f.write_str("closed"),
            Self::NotFound { key } => write!(f, "there is no {key}"),
            Self::ResourceVersion {
                key,
                resource_version: Some(version),
            } => {
                write!(
                    f,
                    "the resourceVersion {version:?} of {key} is not a whole number"
                )
            }
            Self::ResourceVersion {
                key,
                resource_version: None,
            } => {
                write!(f, "{key} has no resourceVersion")
            }
            Self::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            _ => None,
        }
    }
}

/// A change that [`apply`](super::ReflectorStore::apply) has not applied.
#[derive(Debug)]
pub struct Rejected<T> {
    /// The change. `None` if a transform failed on an added or changed object, which it has consumed. A deletion
    /// always comes back.
    pub change: Option<Change<T>>,
    /// Why it was rejected.
    pub error: StoreError,
}

impl<T> Rejected<T> {
    /// A change that is still there.
    pub(crate) fn new(change: Change<T>, error: impl Into<StoreError>) -> Self {
        Self {
            change: Some(change),
            error: error.into(),
        }
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Rejected<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Why an index could not be read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// There is no index of this name.
    NoIndex {
        /// The name that was asked for.
        name: Arc<str>,
    },
    /// The index function failed, or it panicked, on the object that was asked about.
    Function {
        /// The name of the index.
        name: Arc<str>,
        /// What it said.
        message: Arc<str>,
    },
    /// A mutation cache was asked that has no indexer.
    NoIndexer,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIndex { name } => write!(f, "there is no index {name:?}"),
            Self::Function { name, message } => write!(f, "index function {name:?}: {message}"),
            Self::NoIndexer => f.write_str("no indexer was given to the mutation cache"),
        }
    }
}

impl std::error::Error for IndexError {}

/// Why indices could not be added: none of them was.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddIndexersError {
    /// There are indices of these names already.
    Conflict {
        /// The names in question, sorted.
        names: Vec<Arc<str>>,
    },
    /// An index function failed, or it panicked, on an object that is stored.
    Function {
        /// The name of the index.
        name: Arc<str>,
        /// The key of the object.
        key: Key,
        /// What it said.
        message: Arc<str>,
    },
}

impl fmt::Display for AddIndexersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { names } => write!(f, "there are indices {names:?} already"),
            Self::Function { name, key, message } => {
                write!(f, "index function {name:?} on {key}: {message}")
            }
        }
    }
}

impl std::error::Error for AddIndexersError {}

/// Some changes of a transaction could not be made; the others have been. client-go's `TransactionError`.
///
/// ```
/// use k8s_informer::Indexer;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::store::{Change, Indexers, StoreError};
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|word: &String| match word.as_str() {
///     "" => Err(KeyError::new("an empty word")),
///     word => Ok(word.into()),
/// });
/// let store = Indexer::new(accessor, Indexers::new());
/// let words = ["a", "", "b"].map(|word| Change::Add(Arc::new(word.to_owned())));
/// let error = store.transaction(words.to_vec()).unwrap_err();
/// assert_eq!((error.successful, error.total, store.len()), (vec![0, 2], 3, 2));
/// assert!(matches!(error.errors[..], [StoreError::Key(_)]));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct TransactionError {
    /// The positions of the changes that were made.
    pub successful: Vec<usize>,
    /// How many there were.
    pub total: usize,
    /// Why the others were not, in their order.
    pub errors: Vec<StoreError>,
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} changes failed",
            self.total - self.successful.len(),
            self.total
        )?;
        match self.errors.first() {
            Some(error) => write!(f, ", the first with: {error}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TransactionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.errors.first().map(|error| error as _)
    }
}

debug_as_display!(StoreError, IndexError, AddIndexersError, TransactionError);
