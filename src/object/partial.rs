use serde::{Deserialize, Serialize};

use super::meta::null_is_default;
use super::{Object, StringMap};

/// An object of any kind without all but its metadata: `metav1.PartialObjectMetadata`.
///
/// It is what a server sends when it is asked for metadata alone
/// ([`ListerWatcherSource::metadata_lister_watcher`](crate::reflector::ListerWatcherSource::metadata_lister_watcher)):
/// labels and owners of ten thousand Secrets without one byte of what is in them. Where a server sends whole
/// objects all the same, the rest is dropped as they are decoded.
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
    /// All of the object that there is here.
    pub metadata: FullObjectMeta,
}

/// An object's metadata but for `managedFields`, for structs of your own that need more of it than
/// [`ObjectMeta`](crate::ObjectMeta) has.
///
/// `managedFields` are often the largest part of an object, and only the server needs them. Points in time
/// stay the text that they are on the wire (RFC 3339).
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
    /// Unique among the objects of its resource and namespace.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// What the server makes a name from that is not given.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub generate_name: String,
    /// Empty for a cluster-scoped object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
    /// Differs when an object is deleted and created again under the same name.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uid: String,
    /// Changes with every change of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub resource_version: String,
    /// Changes with every change of what is wanted, not with what is reported; 0 for kinds that don't count.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// When it is to be gone: somebody has deleted it, and finalizers or a grace period hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// How long it may take to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// What selectors select by.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "StringMap::is_empty"
    )]
    pub labels: StringMap,
    /// Whatever else is to be remembered.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "StringMap::is_empty"
    )]
    pub annotations: StringMap,
    /// What it goes with when they are all deleted.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub owner_references: Vec<OwnerReference>,
    /// Who has something to do before it is gone.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub finalizers: Vec<String>,
}

impl FullObjectMeta {
    /// Whether somebody has deleted it, and it only waits to be gone.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that looks after the object, if it has one. client-go's `metav1.GetControllerOf`.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

/// An owner of an object: in the same namespace, or without one. `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct OwnerReference {
    /// Its group and version: `apps/v1`.
    #[serde(deserialize_with = "null_is_default")]
    pub api_version: String,
    /// Its kind.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Its UID: another object of the same name does not own.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// Whether it is the one that looks after the object.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Whether its deletion in the foreground waits until the object is gone.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub block_owner_deletion: bool,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Object for FullObjectMeta {
    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }
}

impl Object for PartialObjectMetadata {
    fn name(&self) -> &str {
        self.metadata.name()
    }

    fn namespace(&self) -> &str {
        self.metadata.namespace()
    }

    fn uid(&self) -> &str {
        self.metadata.uid()
    }

    fn resource_version(&self) -> &str {
        self.metadata.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_writes_is_kept_but_for_managed_fields() {
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
    fn null_is_as_good_as_nothing() {
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
