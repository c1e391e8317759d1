use serde::{Deserialize, Serialize};

use crate::json::null_is_default;
use crate::object::{FullObjectMeta, WholeObject};
use crate::{impl_full_metadata, impl_object};

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

impl_object!(@object Scale);
impl_full_metadata!(Scale);

impl WholeObject for Scale {}
