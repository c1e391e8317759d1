use serde::{Deserialize, Serialize};

use super::GroupVersionKind;
use super::meta::impl_object_for_metadata;
use super::{Object, StringMap};
use crate::json::{null_is_default, null_items_are_default};
use crate::{impl_full_metadata, impl_object};

/// The metadata of an object of any kind, without the rest of the object.
///
/// It corresponds to Go's `metav1.PartialObjectMetadata`. Request it with
/// [`ListerWatcherSource::metadata_lister_watcher`](crate::reflector::ListerWatcherSource::metadata_lister_watcher).
/// The server then sends only metadata: for example, the labels and owners of ten thousand Secrets
/// without any of their data. If a server sends whole objects nevertheless, decoding drops the
/// other fields.
///
/// ```
/// use k8s_informer::Object;
/// use k8s_informer::object::PartialObjectMetadata;
///
/// let secret: PartialObjectMetadata = serde_json::from_str(
///     r#"{"kind": "Secret", "metadata": {"name": "a", "annotations": {"x": "y"}}, "data": {"key": "c2VjcmV0"}}"#,
/// )?;
/// assert_eq!((secret.name(), &secret.metadata.annotations["x"]), ("a", "y"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PartialObjectMetadata {
    /// The metadata of the object.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: FullObjectMeta,
}

/// All metadata except `managedFields`, for custom structs that need more than
/// [`ObjectMeta`](crate::ObjectMeta).
///
/// `managedFields` are often the largest part of an object, and only the server needs them.
/// Timestamps remain RFC 3339 strings, as the server sends them.
///
/// ```
/// use k8s_informer::object::FullObjectMeta;
///
/// let meta: FullObjectMeta = serde_json::from_str(
///     r#"{"name": "a", "finalizers": ["x/y"], "ownerReferences": [{"kind": "Node", "name": "n", "uid": "7"}]}"#,
/// )?;
/// assert_eq!((meta.finalizers[0].as_str(), meta.owner_references[0].kind.as_str()), ("x/y", "Node"));
/// assert!(!meta.is_being_deleted());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct FullObjectMeta {
    /// The name, unique among the objects of the same resource and namespace.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// The prefix from which the server generates a name if no name is given.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub generate_name: String,
    /// The namespace, empty for a cluster-scoped object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
    /// The unique ID. It changes when an object is deleted and created again under the same name.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uid: String,
    /// The resource version, which changes with every change of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub resource_version: String,
    /// A number that changes with every change of the desired state, but not with changes of the
    /// status. It is 0 for kinds without generations.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// The time of creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// The time after which the object is to be removed. It is set once a deletion has been
    /// requested and finalizers or a grace period delay it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// The number of seconds that the object has to terminate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// The labels, which selectors match.
    #[serde(skip_serializing_if = "StringMap::is_empty")]
    pub labels: StringMap,
    /// Arbitrary other metadata.
    #[serde(skip_serializing_if = "StringMap::is_empty")]
    pub annotations: StringMap,
    /// The owners of the object. Once all of them are deleted, the object is deleted as well.
    #[serde(
        deserialize_with = "null_items_are_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub owner_references: Vec<OwnerReference>,
    /// The names of the cleanups that must finish before the object is removed.
    #[serde(
        deserialize_with = "null_items_are_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub finalizers: Vec<String>,
}

impl FullObjectMeta {
    /// Whether the deletion of the object has been requested. The object then only waits for its
    /// removal.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns the owner that manages the object, if there is one.
    ///
    /// It corresponds to Go's `metav1.GetControllerOf`.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

/// An owner of an object. It is cluster-scoped or in the same namespace.
///
/// It corresponds to Go's `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct OwnerReference {
    /// The group and version of the owner, for example `apps/v1`.
    #[serde(deserialize_with = "null_is_default")]
    pub api_version: String,
    /// The kind of the owner.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// The name of the owner.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The UID of the owner. Another object with the same name is not an owner.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// Whether this owner manages the object.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits until this object is gone.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub block_owner_deletion: bool,
}

impl OwnerReference {
    /// Creates a reference to an owner that does not manage the object.
    ///
    /// ```
    /// use k8s_informer::object::{GroupVersionKind, OwnerReference};
    ///
    /// let mut owner = OwnerReference::new(&GroupVersionKind::of("apps/v1", "Deployment"), "web", "u7");
    /// owner.controller = true;
    /// assert_eq!((&*owner.api_version, &*owner.name), ("apps/v1", "web"));
    /// ```
    pub fn new(kind: &GroupVersionKind, name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            name: name.into(),
            uid: uid.into(),
            ..Self::default()
        }
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl_object_for_metadata!(FullObjectMeta);
impl_object!(@object PartialObjectMetadata);
impl_full_metadata!(PartialObjectMetadata);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_metadata_except_managed_fields_is_kept() {
        let metadata = json!({
            "name": "a", "generateName": "a-", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-11-20T11:49:33Z", "deletionTimestamp": "2026-11-20T11:50:33Z",
            "deletionGracePeriodSeconds": 0, "labels": {"l": "1"}, "annotations": {"a": "2"}, "finalizers": ["f"],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true,
                "blockOwnerDeletion": true,
            }],
        });
        let mut wire = json!({"kind": "PartialObjectMetadata", "metadata": metadata});
        wire["metadata"]["managedFields"] = json!([{"manager": "m"}]);
        let object: PartialObjectMetadata = serde_json::from_value(wire).unwrap();
        assert_eq!(serde_json::to_value(&object.metadata).unwrap(), metadata);
        assert!(object.metadata.is_being_deleted());
        assert_eq!(object.metadata.controller().unwrap().name, "r");
        assert_eq!(
            (object.label("l"), object.uid(), object.resource_version()),
            (Some("1"), "u", "7")
        );
    }

    #[test]
    fn null_metadata_fields_decode_as_absent() {
        let object: PartialObjectMetadata = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "labels": null, "annotations": null, "finalizers": null, "generation": null,
                "ownerReferences": [{"name": "o", "controller": null}], "deletionTimestamp": null,
            },
        }))
        .unwrap();
        assert_eq!(object.metadata.controller(), None);
        assert_eq!(object.name(), "a");
    }
}
