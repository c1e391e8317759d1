//! Object traits, object types, keys and the names of kinds and resources.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`Object`] | an object with metadata; informers require it | `metav1.Object` |
//! | [`FullMetadata`] | an object with all of its metadata; controllers require it | `metav1.Object` |
//! | [`Resource`] | an object whose API path is known at compile time | |
//! | [`impl_object!`](crate::impl_object), [`ObjectMeta`] | a custom struct with only the fields that you need | |
//! | [`DynamicObject`] | an object of any kind, chosen at run time; stays JSON until you read it | `unstructured.Unstructured` |
//! | [`PartialObjectMetadata`] | metadata only | `metav1.PartialObjectMetadata` |
//! | [`Compact`] | a typed object that stays JSON until you decode it | |
//! | [`Deleted`] | a deleted object, or its tombstone | `DeletedFinalStateUnknown` |
//! | [`GroupVersionKind`], [`GroupVersionResource`] | the names of kinds and resources | `schema.GroupVersionKind` … |
//! | [`Key`], [`ObjectName`] | `namespace/name` | `string`, `ObjectName` |
//! | [`Accessor`] | reads the key and version of a type that is not an [`Object`] | `KeyFunc` |
//!
//! With the feature `k8s-openapi`, the types of that crate are objects.
//!
//! ```
//! use k8s_informer::object::{ObjectName, meta_namespace_key};
//! use k8s_informer::{DynamicObject, Object};
//!
//! let pod: DynamicObject = serde_json::from_str(
//!     r#"{"kind": "Pod", "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web"}}}"#)?;
//! assert_eq!((pod.kind(), pod.name(), pod.label("app")), ("Pod", "web-0", Some("web")));
//! assert_eq!(&*meta_namespace_key(&pod), "default/web-0");
//! assert_eq!(ObjectName::new("default", "web-0").to_string(), "default/web-0");
//! # Ok::<(), serde_json::Error>(())
//! ```

mod accessor;
mod compact;
mod deleted;
mod dynamic;
mod full_metadata;
mod key;
mod meta;
#[cfg(feature = "k8s-openapi")]
pub(crate) mod openapi;
mod outline;
mod partial;
mod pointer;
mod reference;
mod resource;
mod string_map;
mod whole;

pub use crate::resource_version::ResourceVersion;
pub use accessor::Accessor;
pub use compact::Compact;
pub use deleted::Deleted;
pub use dynamic::DynamicObject;
pub use full_metadata::FullMetadata;
pub(crate) use key::namespaced_key;
pub use key::{Key, KeyError, ObjectName, meta_namespace_key, split_meta_namespace_key};
pub use meta::ObjectMeta;
pub use partial::{FullObjectMeta, OwnerReference, PartialObjectMetadata};
pub use reference::{ObjectReference, Referable};
#[cfg(feature = "client")]
pub(crate) use resource::path_segment;
pub use resource::{GroupVersionKind, GroupVersionResource, Resource, Scope};
pub use string_map::{StringMap, StringMapIter};
pub use whole::WholeObject;

/// The metadata of an object that a cache needs.
///
/// An absent field is the empty string, as in client-go. For example, a cluster-scoped object has
/// the namespace `""`.
///
/// If your type has a `metadata` field, [`impl_object!`](crate::impl_object) implements this trait.
/// Implement it by hand only for other types. It corresponds to the part of Go's `metav1.Object`
/// that `tools/cache` uses.
///
/// ```
/// use k8s_informer::Object;
/// use k8s_informer::object::meta_namespace_key;
///
/// /// A machine in your inventory.
/// struct Machine {
///     rack: String,
///     name: String,
///     serial: String,
///     revision: String,
/// }
///
/// impl Object for Machine {
///     fn name(&self) -> &str {
///         &self.name
///     }
///     fn namespace(&self) -> &str {
///         &self.rack
///     }
///     fn uid(&self) -> &str {
///         &self.serial
///     }
///     fn resource_version(&self) -> &str {
///         &self.revision
///     }
///     fn label(&self, _key: &str) -> Option<&str> {
///         None
///     }
/// }
///
/// let machine = Machine { rack: "r1".into(), name: "m7".into(), serial: "x".into(), revision: "3".into() };
/// assert_eq!(&*meta_namespace_key(&machine), "r1/m7");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes object: it does not implement `k8s_informer::Object`",
    label = "not an `Object`",
    note = "for a custom struct, use `impl_object!`, and the type `k8s_informer::ObjectMeta` for the field `metadata`",
    note = "for a type of k8s-openapi, enable the feature `k8s-openapi` of k8s-informer and depend on the same version of k8s-openapi",
    note = "for an `Arc<T>` or a reference to one, pass the object in it: `&**object`"
)]
pub trait Object: Send + Sync + 'static {
    /// Returns `metadata.name`.
    fn name(&self) -> &str;

    /// Returns `metadata.namespace`, which is empty for a cluster-scoped object.
    fn namespace(&self) -> &str;

    /// Returns `metadata.uid`.
    fn uid(&self) -> &str;

    /// Returns `metadata.resourceVersion`. In your own code, compare it only for equality.
    fn resource_version(&self) -> &str;

    /// Returns the value of the label `key` in `metadata.labels`.
    fn label(&self, key: &str) -> Option<&str>;

    /// Sets `apiVersion` and `kind`, which are derived from the list that contains this object: the
    /// items of a `PodList` have the kind `Pod`.
    ///
    /// API servers omit both fields from the items of a list of built-in objects. If a list has a
    /// kind, this method is called for each item before any other code sees the item. Either
    /// argument may be empty.
    ///
    /// The default implementation does nothing, which is right for types that keep neither field. A
    /// type that keeps them, such as [`DynamicObject`], must not overwrite the fields of the item
    /// itself.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, Object};
    ///
    /// let mut item: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "web-0"}}"#)?;
    /// item.set_type_meta("v1", "Pod");
    /// item.set_type_meta("v1", "Node");
    /// assert_eq!((item.api_version(), item.kind()), ("v1", "Pod"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    fn set_type_meta(&mut self, api_version: &str, kind: &str) {
        let _ = (api_version, kind);
    }
}
