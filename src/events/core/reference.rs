/// A reference to the object that an event is about. Kubernetes' `ObjectReference`.
///
/// Every method that takes an object also takes a reference. Use one for an object that your
/// program does not have, for a part of an object, or for
/// [`PartialObjectMetadata`](crate::object::PartialObjectMetadata), which has no kind. Absent
/// fields are empty.
///
/// ```
/// use k8s_informer::events::ObjectReference;
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
    /// The resource version. It has no influence on which events are equal.
    pub resource_version: String,
    /// The part of the object, for example `spec.containers{app}`.
    pub field_path: String,
}
