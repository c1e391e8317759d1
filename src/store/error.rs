use std::fmt;
use std::sync::Arc;

use crate::object::{Key, KeyError};

/// Why a store or a queue did not take what it was given. Nothing has changed then, unless the operation says otherwise.
#[derive(Clone, Debug)]
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
    /// A store of your own failed.
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
            Self::Transform { key: Some(key), message } => write!(f, "transforming {key}: {message}"),
            Self::Transform { key: None, message } => write!(f, "transforming: {message}"),
            Self::Index { index, key, message } => write!(f, "index function {index:?} on {key}: {message}"),
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
