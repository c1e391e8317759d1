use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::base::panic::{Panicked, catch};
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
        /// What went wrong.
        error: FunctionError,
    },
    /// An index function failed or panicked.
    Index {
        /// The name of the index.
        index: Arc<str>,
        /// The key of the object.
        key: Key,
        /// What went wrong.
        error: FunctionError,
    },
    /// A custom store, an expiration policy or another of your functions failed.
    Other(Arc<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Creates an error for a custom store, from an error or a text.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into().into())
    }

    /// Creates the error of a function whose call panicked. `subject` is what panicked.
    pub(crate) fn panicked(subject: impl Into<String>, panicked: Panicked) -> Self {
        let subject = subject.into();
        Self::other(PanickedCall { subject, panicked })
    }
}

/// A panic, and what panicked.
#[derive(Debug)]
struct PanickedCall {
    subject: String,
    panicked: Panicked,
}

impl fmt::Display for PanickedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.panicked)
    }
}

impl Error for PanickedCall {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.panicked)
    }
}

/// The error of a transform or index function: what it returned, or its panic.
///
/// ```
/// use k8s_informer::store::{FunctionError, Transform};
/// use std::sync::Arc;
///
/// let parse = Transform::new(|word: Arc<String>| word.parse::<u8>().map(|_| word));
/// let error = parse.apply(Arc::new("x".to_owned())).unwrap_err();
/// let FunctionError::Failed(error) = error else { panic!() };
/// assert!(error.is::<std::num::ParseIntError>());
/// ```
#[derive(Clone)]
pub enum FunctionError {
    /// The function returned this error.
    Failed(Arc<dyn Error + Send + Sync>),
    /// The function panicked.
    Panicked(Panicked),
}

impl FunctionError {
    /// Calls a function.
    pub(super) fn catch<R>(
        function: impl FnOnce() -> Result<R, Box<dyn Error + Send + Sync>>,
    ) -> Result<R, Self> {
        match catch(function) {
            Ok(Ok(returned)) => Ok(returned),
            Ok(Err(error)) => Err(Self::Failed(error.into())),
            Err(panicked) => Err(Self::Panicked(panicked)),
        }
    }

    /// Writes the error after its subject.
    fn fmt_after_subject(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, ": {error}"),
            Self::Panicked(panicked) => write!(f, " {panicked}"),
        }
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Panicked(panicked) => panicked.fmt(f),
        }
    }
}

impl Error for FunctionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Panicked(_) => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(error) => write!(f, "no usable key: {error}"),
            Self::Transform { key, error } => {
                match key {
                    Some(key) => write!(f, "transforming {key}")?,
                    None => f.write_str("transforming an object")?,
                }
                error.fmt_after_subject(f)
            }
            Self::Index { index, key, error } => {
                write!(f, "index function {index:?} on {key}")?;
                error.fmt_after_subject(f)
            }
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            Self::Transform { error, .. } | Self::Index { error, .. } => Some(error),
            // Its text is the text of this error.
            Self::Other(error) => error.source(),
        }
    }
}

impl From<KeyError> for StoreError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

/// The error of a read from an index.
#[derive(Clone)]
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
        /// What went wrong.
        error: FunctionError,
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
            Self::Function { name, error } => {
                write!(f, "index function {name:?}")?;
                error.fmt_after_subject(f)
            }
        }
    }
}

impl Error for IndexError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Function { error, .. } => Some(error),
            Self::NoIndex { .. } | Self::Unindexed { .. } => None,
        }
    }
}

/// The error of adding indexes. None of them has been added.
#[derive(Clone)]
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
        /// What went wrong.
        error: FunctionError,
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
            Self::Function { name, key, error } => {
                write!(f, "index function {name:?} on {key}")?;
                error.fmt_after_subject(f)
            }
            Self::InvalidLabel { label } => write!(
                f,
                "{label:?} is not the name of a label; use a name such as \"app.kubernetes.io/name\""
            ),
        }
    }
}

impl Error for AddIndexersError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Function { error, .. } => Some(error),
            Self::Conflict { .. } | Self::InvalidLabel { .. } => None,
        }
    }
}

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

impl Error for TransactionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.errors.first().map(|error| error as _)
    }
}

debug_as_display!(
    FunctionError,
    StoreError,
    IndexError,
    AddIndexersError,
    TransactionError
);
