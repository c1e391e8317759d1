use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Api, Fetched, Patch};
use crate::error::Error;
use crate::object::{FullObjectMeta, GroupVersionKind, Object, WholeObject};
use crate::stop::Stop;

const SCALE: &str = "scale";

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

impl<T> Api<T> {
    /// How many replicas the objects have and are to have: of Deployments, StatefulSets, ReplicaSets,
    /// ReplicationControllers, and custom resources that declare it.
    pub fn scale(&self) -> ScaleApi {
        let kind = Some(GroupVersionKind::new("autoscaling", "v1", "Scale"));
        let Self {
            client,
            resource,
            scope,
            ..
        } = self;
        let api = Api::new(
            client.clone(),
            resource.clone(),
            kind,
            *scope,
            self.namespace(),
            "application/json",
        );
        ScaleApi {
            api: Api {
                options: self.options.clone(),
                ..api
            },
        }
    }
}

/// The scales of the objects of an [`Api`]: how many replicas they have and are to have. Made by
/// [`Api::scale`]. client-go's `GetScale`, `UpdateScale` and `scale.ScalesGetter`.
///
/// Kinds without it answer [`is_not_found`](Error::is_not_found).
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_openapi::api::apps::v1::Deployment;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (deployments, stop) = (client.api::<Deployment>(Some("default")), Stop::new());
/// let labels = json!({"app": "web"});
/// let web = json!({
///     "metadata": {"name": "web"},
///     "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}},
/// });
/// deployments.create(&web, &stop)?;
///
/// assert_eq!(deployments.scale().set_replicas("web", 3, &stop)?.spec.replicas, 3);
/// let scale = deployments.scale().modify("web", |scale| scale.spec.replicas += 1, &stop)?;
/// assert_eq!((scale.spec.replicas, scale.status.selector.as_str()), (4, "app=web"));
/// assert_eq!(deployments.get("web", &stop)?.spec.replicas, Some(4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ScaleApi {
    api: Api<Scale>,
}

impl ScaleApi {
    /// The same, but nothing that it writes is stored, as [`Api::dry_run`].
    pub fn dry_run(&self) -> Self {
        Self {
            api: self.api.dry_run(),
        }
    }

    /// Reads the scale of an object.
    ///
    /// # Errors
    ///
    /// As [`Api::get`].
    pub fn get(&self, name: &str, stop: &Stop) -> Result<Fetched<Scale>, Error> {
        self.api.get_at(SCALE, name, stop)
    }

    /// Says how many replicas there are to be, whatever there were. What `kubectl scale` does.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Error::is_not_found) if the object is not there or is of a kind that has no scale.
    pub fn set_replicas(
        &self,
        name: &str,
        replicas: u32,
        stop: &Stop,
    ) -> Result<Fetched<Scale>, Error> {
        self.patch(
            name,
            &Patch::merge(json!({"spec": {"replicas": replicas}})),
            stop,
        )
    }

    /// Changes the scale: the patch is one of the [`Scale`].
    ///
    /// # Errors
    ///
    /// As [`Api::patch`].
    pub fn patch<B: Serialize>(
        &self,
        name: &str,
        patch: &Patch<B>,
        stop: &Stop,
    ) -> Result<Fetched<Scale>, Error> {
        self.api.patch_at(SCALE, name, patch, stop)
    }

    /// Puts a scale in the place of the one that is there, if nobody has changed the object since it was
    /// read.
    ///
    /// # Errors
    ///
    /// As [`Api::replace`].
    pub fn replace(&self, scale: &Fetched<Scale>, stop: &Stop) -> Result<Fetched<Scale>, Error> {
        self.api.replace_at(SCALE, scale, stop)
    }

    /// Reads the scale, changes it, and puts it back; again on a conflict, as [`Api::modify`].
    ///
    /// # Errors
    ///
    /// As [`Api::modify`].
    pub fn modify(
        &self,
        name: &str,
        change: impl FnMut(&mut Scale),
        stop: &Stop,
    ) -> Result<Fetched<Scale>, Error> {
        self.api.modify_at(SCALE, name, change, stop)
    }
}
