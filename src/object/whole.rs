use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DynamicObject, Object};

/// A type that keeps every field of the objects that it is decoded from.
///
/// [`Api::replace`](crate::client::api::Api::replace) requires it. A replace sends the whole
/// object, so it would erase fields that the type did not decode. For this reason, the types of
/// [`impl_object!`](crate::impl_object) and
/// [`PartialObjectMetadata`](crate::object::PartialObjectMetadata) do not implement this trait. Use
/// a [patch](crate::client::api::Patch) for them.
///
/// [`DynamicObject`] keeps all fields. A [`Compact`](crate::object::Compact) implements this trait
/// if its type does.
///
/// The types of k8s-openapi keep the fields of the Kubernetes version that your program selects.
/// **If the server is newer, replacing an object loses the fields that were added since**, as with
/// Go's typed clients. For kinds that may gain fields, use a [`Patch`](crate::client::api::Patch)
/// or [`DynamicObject`].
///
/// Implement this trait for a custom struct only if decoding and encoding returns the same object.
/// This must hold for all fields, including those of the metadata, and for each version of the
/// object that a server may have:
///
/// ```
/// use k8s_informer::{Object, impl_object};
/// use k8s_informer::object::WholeObject;
/// use serde::{Deserialize, Serialize};
/// use serde_json::{Map, Value};
///
/// #[derive(Deserialize, Serialize)]
/// struct Widget {
///     metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
///     spec: WidgetSpec,
///     /// All other fields.
///     #[serde(flatten)]
///     rest: Map<String, Value>,
/// }
/// #[derive(Deserialize, Serialize)]
/// struct WidgetSpec {
///     size: u32,
///     #[serde(flatten)]
///     rest: Map<String, Value>,
/// }
/// # impl Object for Widget {
/// #     fn name(&self) -> &str { self.metadata.name.as_deref().unwrap_or_default() }
/// #     fn namespace(&self) -> &str { self.metadata.namespace.as_deref().unwrap_or_default() }
/// #     fn uid(&self) -> &str { self.metadata.uid.as_deref().unwrap_or_default() }
/// #     fn resource_version(&self) -> &str { self.metadata.resource_version.as_deref().unwrap_or_default() }
/// #     fn label(&self, _: &str) -> Option<&str> { None }
/// # }
/// impl WholeObject for Widget {}
///
/// let wire = serde_json::json!({
///     "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3, "new": true},
/// });
/// let widget: Widget = serde_json::from_value(wire.clone())?;
/// assert_eq!(serde_json::to_value(widget)?, wire);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` may not keep every field of an object, so replacing the object could erase fields",
    note = "patch the object, or read and replace it as a `DynamicObject`"
)]
pub trait WholeObject: Object + DeserializeOwned + Serialize {}

impl WholeObject for DynamicObject {}

/// Covers the types that implement `DeepMerge`: those generated from the Kubernetes schema do, and
/// structs written by hand rarely do.
#[cfg(feature = "k8s-openapi")]
#[diagnostic::do_not_recommend]
impl<T> WholeObject for T where
    T: k8s_openapi::Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>
        + k8s_openapi::DeepMerge
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}
