use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DynamicObject, Object};

/// A type that keeps every field of the objects that it is decoded from, so that they can be put back:
/// [`Api::replace`](crate::client::api::Api::replace) asks for it.
///
/// To replace an object is to say all of it anew: a field that a type has never read would be erased. So the
/// types of [`impl_object!`](crate::impl_object) and
/// [`PartialObjectMetadata`](crate::object::PartialObjectMetadata) are none; they are [patched](crate::client::api::Patch).
///
/// [`DynamicObject`] keeps everything there is, and a [`Compact`](crate::object::Compact) what its type keeps. The
/// types of k8s-openapi keep the fields of the Kubernetes version that the program picked: **where the server
/// is newer, fields that it has since learnt are lost when such an object is replaced**, as they are with
/// typed clients of Go. Use a [`Patch`](crate::client::api::Patch) or [`DynamicObject`] for kinds that may grow under you.
///
/// Implement it for a struct of your own only if decoding and encoding an object gives that object again, in
/// all its fields, those of the metadata included, for each version of it that a server may have:
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
///     /// Whatever it has besides.
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
    message = "`{Self}` may not keep every field of an object, and would erase what it never read",
    note = "patch the object, or read and replace it as a `DynamicObject`"
)]
pub trait WholeObject: Object + DeserializeOwned + Serialize {}

impl WholeObject for DynamicObject {}

/// `DeepMerge` is what all that was generated from Kubernetes' own schema has, and hardly a struct by hand.
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
