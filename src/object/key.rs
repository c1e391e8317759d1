use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use super::Object;
use crate::error::debug_as_display;

/// The key of an object in queues, stores and indexes: `namespace/name`, or `name` without a
/// namespace. A queue or store with its own key function may have any text.
///
/// A key is built once per event and then shared: clones are cheap. It dereferences to its text, and a
/// map with keys can be searched by a `&str`.
///
/// ```
/// use k8s_informer::object::Key;
/// use std::collections::HashMap;
///
/// let key = Key::from("default/web-0");
/// assert_eq!((key.namespace(), key.name()), ("default", "web-0"));
/// assert_eq!(Key::from("worker-1").namespace(), "");
/// assert!(key == "default/web-0" && key.ends_with("web-0"));
/// assert_eq!(HashMap::from([(key, 1)])["default/web-0"], 1);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Returns the namespace: the text before the first slash. Empty if there is no slash, as for a
    /// cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.split().0
    }

    /// Returns the name: the text after the first slash, or all of it.
    pub fn name(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or(("", &self.0))
    }
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self(key.into())
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self(key.into())
    }
}

impl From<Arc<str>> for Key {
    fn from(key: Arc<str>) -> Self {
        Self(key)
    }
}

impl PartialEq<str> for Key {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Returns the key of an object: `namespace/name`, or `name` without a namespace.
///
/// It corresponds to client-go's `MetaNamespaceKeyFunc`.
///
/// ```
/// use k8s_informer::DynamicObject;
/// use k8s_informer::object::meta_namespace_key;
///
/// let pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "web-0", "namespace": "default"}}"#)?;
/// let node: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "worker-1"}}"#)?;
/// assert_eq!((&*meta_namespace_key(&pod), &*meta_namespace_key(&node)), ("default/web-0", "worker-1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[doc(alias = "MetaNamespaceKeyFunc")]
pub fn meta_namespace_key<T: Object + ?Sized>(object: &T) -> Key {
    namespaced_key(object.namespace(), object.name())
}

pub(crate) fn namespaced_key(namespace: &str, name: &str) -> Key {
    match (namespace, name) {
        ("", name) => name.into(),
        (namespace, name) => [namespace, "/", name].concat().into(),
    }
}

/// Splits a key into its namespace and name. The namespace is empty if the key has none.
///
/// It corresponds to client-go's `SplitMetaNamespaceKey`.
///
/// ```
/// use k8s_informer::object::split_meta_namespace_key;
///
/// assert_eq!(split_meta_namespace_key("default/web-0")?, ("default", "web-0"));
/// assert_eq!(split_meta_namespace_key("node-1")?, ("", "node-1"));
/// assert!(split_meta_namespace_key("a/b/c").is_err());
/// # Ok::<(), k8s_informer::object::KeyError>(())
/// ```
///
/// # Errors
///
/// Returns [`KeyError`] if the key has more than two parts.
#[doc(alias = "SplitMetaNamespaceKey")]
pub fn split_meta_namespace_key(key: &str) -> Result<(&str, &str), KeyError> {
    match key.split_once('/') {
        None => Ok(("", key)),
        Some((namespace, name)) if !name.contains('/') => Ok((namespace, name)),
        Some(_) => Err(KeyError::new(format!(
            "unexpected key format: {key:?} has more than one slash"
        ))),
    }
}

/// The namespace and name of an object: a key in structured form.
///
/// It corresponds to client-go's `ObjectName`.
///
/// ```
/// use k8s_informer::object::ObjectName;
///
/// let name: ObjectName = "default/web-0".parse()?;
/// assert_eq!((name.namespace.as_str(), name.name.as_str()), ("default", "web-0"));
/// assert_eq!(name.to_string(), "default/web-0");
/// # Ok::<(), k8s_informer::object::KeyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The namespace of the object, empty if it is cluster-scoped.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl ObjectName {
    /// Creates a name. `namespace` is empty for a cluster-scoped object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the key of the object with this name, as [`meta_namespace_key`] does.
    ///
    /// ```
    /// use k8s_informer::object::ObjectName;
    ///
    /// assert_eq!(&*ObjectName::new("default", "web-0").to_key(), "default/web-0");
    /// assert_eq!(&*ObjectName::new("", "worker-1").to_key(), "worker-1");
    /// ```
    pub fn to_key(&self) -> Key {
        namespaced_key(&self.namespace, &self.name)
    }

    /// Returns the name of an object.
    pub fn of<T: Object + ?Sized>(object: &T) -> Self {
        Self::new(object.namespace(), object.name())
    }
}

/// Writes the key. Parsing it returns the same name.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl FromStr for ObjectName {
    type Err = KeyError;

    fn from_str(key: &str) -> Result<Self, KeyError> {
        split_meta_namespace_key(key).map(|(namespace, name)| Self::new(namespace, name))
    }
}

/// The error for an object without a key, or for a key that cannot be split.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyError {
    message: Arc<str>,
}

impl KeyError {
    /// Creates an error for a custom key function.
    ///
    /// `message` describes what is missing. The error contains this message and never the object.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into().into(),
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}

debug_as_display!(KeyError);
