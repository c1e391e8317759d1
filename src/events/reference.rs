use super::ObjectReference;
use crate::object::{DynamicObject, GroupVersionKind, Object, Resource};

impl ObjectReference {
    /// Creates a reference to an object of this kind.
    pub fn new(kind: &GroupVersionKind, object: &(impl Object + ?Sized)) -> Self {
        Self {
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version: object.resource_version().to_owned(),
            field_path: String::new(),
        }
    }
}

/// An object that an event can be about: a [`Resource`], a [`DynamicObject`] or an
/// [`ObjectReference`].
///
/// Implement it for any other type. client-go's `reference.GetReference`.
///
/// ```
/// use k8s_informer::DynamicObject;
/// use k8s_informer::events::Referable;
///
/// let node: DynamicObject = serde_json::from_str(
///     r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1", "uid": "u7"}}"#)?;
/// let reference = node.reference();
/// assert_eq!((&*reference.api_version, &*reference.kind, &*reference.uid), ("v1", "Node", "u7"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[doc(alias = "GetReference")]
pub trait Referable {
    /// Returns a reference to this object.
    fn reference(&self) -> ObjectReference;
}

#[diagnostic::do_not_recommend]
impl<T: Resource> Referable for T {
    fn reference(&self) -> ObjectReference {
        ObjectReference::new(&T::group_version_kind(), self)
    }
}

impl Referable for DynamicObject {
    fn reference(&self) -> ObjectReference {
        ObjectReference::new(&self.group_version_kind(), self)
    }
}

impl Referable for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }
}
