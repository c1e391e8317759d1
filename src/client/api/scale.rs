use serde::{Deserialize, Serialize};

use crate::object::{FullObjectMeta, Object, WholeObject};

/// How many replicas of something there are to be, and are: `autoscaling/v1.Scale`, whatever the kind of what
/// is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Scale {
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    /// Of the object that is scaled: its name, namespace, UID and resourceVersion.
    pub metadata: FullObjectMeta,
    /// What is wanted.
    pub spec: ScaleSpec,
    /// What is observed.
    pub status: ScaleStatus,
}

/// What is wanted of a [`Scale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ScaleSpec {
    /// How many replicas there are to be.
    pub replicas: u32,
}

/// What is observed of a [`Scale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ScaleStatus {
    /// How many replicas there are.
    pub replicas: u32,
    /// The label selector of their pods, where it is known.
    #[serde(skip_serializing_if = "String::is_empty")]
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

/// A server takes the replicas from it, and from the metadata which object it is and in which version.
impl WholeObject for Scale {}
