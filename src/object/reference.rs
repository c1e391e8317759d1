use super::{DynamicObject, GroupVersionKind, Object, Resource};

/// A reference to the object that an event is about. Kubernetes' `ObjectReference`.
///
/// Every method that takes an object also takes a reference. Use one for an object that your
/// program does not have, for a part of an object, or for
/// [`PartialObjectMetadata`](crate::object::PartialObjectMetadata), which has no kind. Absent
/// fields are empty.
///
/// ```
/// use k8s_informer::object::ObjectReference;
/// use k8s_informer::object::{GroupVersionKind, PartialObjectMetadata};
///
/// let pod: PartialObjectMetadata = serde_json::from_str(
///     r#"{"metadata": {"name": "web-0", "namespace": "shop", "uid": "u1"}}"#)?;
/// let mut container = ObjectReference::new(&GroupVersionKind::of("v1", "Pod"), &pod);
/// container.field_path = "spec.containers{app}".to_owned();
/// assert_eq!((&*container.kind, &*container.name, &*container.uid), ("Pod", "web-0", "u1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ObjectReference {
    /// The apiVersion, for example `apps/v1`.
    pub api_version: String,
    /// The kind, for example `Pod`.
    pub kind: String,
    /// The namespace, empty for a cluster-scoped object. It is also the namespace of the event; the
    /// events of cluster-scoped objects are in the namespace `default`.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID. `kubectl describe` shows only events with the UID of the object.
    pub uid: String,
    /// The resource version. Events about different versions are different events.
    pub resource_version: String,
    /// The part of the object, for example `spec.containers{app}`.
    pub field_path: String,
}

impl ObjectReference {
    /// Creates a reference to the object with this name. The namespace is empty for a cluster-scoped
    /// object.
    ///
    /// ```
    /// use k8s_informer::object::{GroupVersionKind, ObjectReference};
    ///
    /// let web = ObjectReference::named(&GroupVersionKind::of("v1", "Pod"), "shop", "web-0");
    /// assert_eq!((&*web.api_version, &*web.namespace, &*web.uid), ("v1", "shop", ""));
    /// ```
    pub fn named(
        kind: &GroupVersionKind,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            namespace: namespace.into(),
            name: name.into(),
            ..Self::default()
        }
    }

    /// Creates a reference to an object of this kind.
    pub fn new(kind: &GroupVersionKind, object: &(impl Object + ?Sized)) -> Self {
        Self {
            uid: object.uid().to_owned(),
            resource_version: object.resource_version().to_owned(),
            ..Self::named(kind, object.namespace(), object.name())
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
/// use k8s_informer::object::Referable;
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
