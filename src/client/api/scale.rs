use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::json::null_is_default;
use crate::object::{FullMetadata, FullObjectMeta, Object, WholeObject};

/// The desired and the observed number of replicas of an object: `autoscaling/v1.Scale`. It is the
/// same type for all scalable kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Scale {
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    api_version: String,
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    kind: String,
    /// The name, namespace, UID and resource version of the scaled object.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: FullObjectMeta,
    /// The desired state.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: ScaleSpec,
    /// The observed state.
    #[serde(deserialize_with = "null_is_default")]
    pub status: ScaleStatus,
}

/// The desired state of a [`Scale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ScaleSpec {
    /// The desired number of replicas.
    #[serde(deserialize_with = "null_is_default")]
    pub replicas: u32,
}

/// The observed state of a [`Scale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ScaleStatus {
    /// The observed number of replicas.
    #[serde(deserialize_with = "null_is_default")]
    pub replicas: u32,
    /// The label selector of the replicas' pods. Empty if it is unknown.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub selector: String,
}

impl Object for Scale {
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

impl FullMetadata for Scale {
    fn full_metadata(&self) -> Result<Cow<'_, FullObjectMeta>, serde_json::Error> {
        Ok(Cow::Borrowed(&self.metadata))
    }
}

/// A `Scale` has all fields that a replace needs: the server reads only the number of replicas and,
/// from the metadata, the identity and the resource version of the object.
impl WholeObject for Scale {}
