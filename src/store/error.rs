use std::fmt;
use std::sync::Arc;

use crate::error::debug_as_display;
use crate::object::{Key, KeyError};

/// The error of a store or queue that rejected an object or an operation. Nothing has changed then,
/// unless the operation documents otherwise.
///
/// The error does not contain the object. To retry with the object, keep an `Arc` of it.
#[derive(Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// The object has no key.
    Key(KeyError),
    /// The transform failed or panicked.
    Transform {
        /// The key of the object, if it has one.
        key: Option<Key>,
        /// The message of the error or panic.
        message: Arc<str>,
    },
    /// An index function failed or panicked.
    Index {
        /// The name of the index.
        index: Arc<str>,
        /// The key of the object.
        key: Key,
        /// The message of the error or panic.
        message: Arc<str>,
    },
    /// A custom store, an expiration policy or another of your functions failed.
    Other(Arc<str>),
}

impl StoreError {
    /// Creates an error for a custom store.
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
            Self::Key(error) => write!(f, "no usable key: {error}"),
            Self::Transform {
                key: Some(key),
                message,
            } => write!(f, "transforming {key}{} {message}", separator(message)),
            Self::Transform { key: None, message } => {
                write!(f, "transforming an object{} {message}", separator(message))
            }
            Self::Index {
                index,
                key,
                message,
            } => {
                let separator = separator(message);
                write!(f, "index function {index:?} on {key}{separator} {message}")
            }
            Self::Other(message) => f.write_str(message),
        }
    }
}

/// Returns the text between a subject and `message`. The message of a panic begins with its verb:
/// "panicked".
fn separator(message: &str) -> &'static str {
    match message.starts_with("panicked") {
        true => "",
        false => ":",
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

/// The error of a read from an index.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// There is no index with this name.
    NoIndex {
        /// The requested name.
        name: Arc<str>,
    },
    /// The index function failed for a stored object, so the result might lack this object.
    Unindexed {
        /// The name of the index.
        name: Arc<str>,
        /// The key of the object, or of one of them.
        key: Key,
    },
    /// The index function failed or panicked on the object passed to the call.
    Function {
        /// The name of the index.
        name: Arc<str>,
        /// The message of the error or panic.
        message: Arc<str>,
    },
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIndex { name } => write!(f, "index {name:?} does not exist"),
            Self::Unindexed { name, key } => write!(
                f,
                "index {name:?} lacks {key}, because its function failed for this object; see the log"
            ),
            Self::Function { name, message } => {
                write!(f, "index function {name:?}{} {message}", separator(message))
            }
        }
    }
}

impl std::error::Error for IndexError {}

/// The error of adding indexes. None of them has been added.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddIndexersError {
    /// Indices with these names already exist.
    Conflict {
        /// The conflicting names, sorted.
        names: Vec<Arc<str>>,
    },
    /// An index function failed or panicked on a stored object.
    Function {
        /// The name of the index.
        name: Arc<str>,
        /// The key of the object.
        key: Key,
        /// The message of the error or panic.
        message: Arc<str>,
    },
    /// No label can have this name.
    InvalidLabel {
        /// The invalid name.
        label: Arc<str>,
    },
}

impl fmt::Display for AddIndexersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { names } => write!(f, "indices {names:?} already exist"),
            Self::Function { name, key, message } => {
                let separator = separator(message);
                write!(f, "index function {name:?} on {key}{separator} {message}")
            }
            Self::InvalidLabel { label } => write!(
                f,
                "{label:?} is not the name of a label; use a name such as \"app.kubernetes.io/name\""
            ),
        }
    }
}

impl std::error::Error for AddIndexersError {}

/// The error of a transaction in which some changes failed. The others have been applied.
/// client-go's `TransactionError`.
///
/// ```
/// use k8s_informer::Indexer;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::store::{Change, Indexers, StoreError};
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|word: &String| match word.as_str() {
///     "" => Err(KeyError::new("the word is empty")),
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
    /// The positions of the applied changes.
    pub successful: Vec<usize>,
    /// The number of changes in the transaction.
    pub total: usize,
    /// The errors of the failed changes, in the order of the changes.
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
            Some(error) => write!(f, "; first error: {error}"),
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
