use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Api, Fetched, Patch, Scale};
use crate::client::{Request, response_checks};
use crate::error::Error;
use crate::object::{GroupVersionKind, Object, WholeObject};
use crate::stop::Stop;

/// A subresource of the objects of an [`Api`], read and written by the name of the object. Made by [`Api::status`],
/// [`Api::scale`] and [`Api::subresource`].
///
/// `T` is the type of what the server answers. Objects without the subresource answer
/// [`is_not_found`](Error::is_not_found).
#[must_use]
pub struct Subresource<T> {
    api: Api<T>,
}

impl<T> Api<T> {
    /// The status of the objects: what is observed, written apart from what is wanted. client-go's `UpdateStatus`,
    /// and `Patch` of the subresource `status`.
    ///
    /// The answers are whole objects, of which only the status (and of built-in kinds some of the metadata) is
    /// written here; the rest is written through the [`Api`], which in turn leaves the status as it is.
    ///
    /// ```
    /// use k8s_informer::testing::{ApiResource, ApiServer};
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::object::GroupVersionResource;
    /// use serde_json::json;
    ///
    /// let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    /// let server = ApiServer::builder().resource(widgets).start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let resource = GroupVersionResource::new("example.com", "v1", "widgets");
    /// let (widgets, stop) = (client.dynamic_api(&resource, Some("default")), Stop::new());
    /// let widget = json!({
    ///     "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3},
    /// });
    /// widgets.create(&widget, &stop)?;
    ///
    /// let patch = Patch::merge(json!({"spec": {"size": 4}, "status": {"ready": true}}));
    /// let widget = widgets.status().patch("a", &patch, &stop)?;
    /// assert_eq!(widget.read("/status/ready")?, Some(true));
    /// assert_eq!(widget.read("/spec/size")?, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn status(&self) -> Subresource<T> {
        Subresource {
            api: self.view(self.kind.clone(), Some("status".into())),
        }
    }

    /// How many replicas the objects have and are to have: of Deployments, StatefulSets, ReplicaSets,
    /// ReplicationControllers, and custom resources that declare it. client-go's `GetScale`, `UpdateScale` and
    /// `scale.ScalesGetter`.
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
    pub fn scale(&self) -> Subresource<Scale> {
        let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
        let api = self.view(Some(kind), Some("scale".into()));
        Subresource {
            api: Api {
                accept: "application/json",
                ..api
            },
        }
    }

    /// Any other subresource: the `token` of a ServiceAccount, the `approval` of a CertificateSigningRequest. Objects
    /// that are written say their apiVersion and kind.
    ///
    /// ```no_run
    /// use k8s_informer::{Client, DynamicObject, Stop};
    /// use k8s_openapi::api::core::v1::ServiceAccount;
    ///
    /// let (client, stop) = (Client::try_default()?, Stop::new());
    /// let request = serde_json::json!({
    ///     "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600},
    /// });
    /// let accounts = client.api::<ServiceAccount>(Some("default"));
    /// let answer = accounts.subresource::<DynamicObject>("token").create("default", &request, &stop)?;
    /// let token = answer.read::<String>("/status/token")?;
    /// assert!(token.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn subresource<S>(&self, name: impl Into<Cow<'static, str>>) -> Subresource<S> {
        let api = self.view(None, Some(name.into()));
        Subresource {
            api: Api {
                accept: "application/json",
                ..api
            },
        }
    }

    /// The path of a subresource of an object, or (`""`) of the object itself: for a [`Request`] of your own,
    /// where there is no method for it. Each part of it is checked and encoded, so that no name leads
    /// anywhere else.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let pods = client.api::<Pod>(Some("default"));
    /// assert_eq!(pods.path("web-0", "log")?, "/api/v1/namespaces/default/pods/web-0/log");
    /// assert!(pods.path("../web-0", "log").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The name, the subresource or the namespace can't be a part of a path, or the namespace is missing.
    pub fn path(&self, name: &str, subresource: &str) -> Result<String, Error> {
        let subresource = (!subresource.is_empty()).then(|| subresource.to_owned().into());
        let api = self.view::<T>(None, subresource);
        api.about("name the path of", name, || api.path_of(name))
    }
}

impl<T> Subresource<T> {
    /// The same, but nothing that it writes is stored, as [`Api::dry_run`].
    pub fn dry_run(&self) -> Self {
        Self {
            api: self.api.dry_run(),
        }
    }
}

impl<T: DeserializeOwned + Send> Subresource<T> {
    /// Creates what is only ever created as a subresource of an object, from anything that serializes to it, with
    /// apiVersion and kind: the `token` of a ServiceAccount (a TokenRequest), the `binding` of a Pod. Returns what the
    /// server makes of it. client-go's `CreateToken`, `Bind`, and `Create` of the dynamic client with subresources.
    ///
    /// [`Api::subresource`] has an example.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Error::is_not_found) if the object is not there, or has no such subresource;
    /// [`is_invalid`](Error::is_invalid) if the server finds something wrong with the body.
    pub fn create<B: Serialize + ?Sized>(
        &self,
        name: &str,
        body: &B,
        stop: &Stop,
    ) -> Result<T, Error> {
        self.api.about("create", name, || {
            let request = Request::post(self.api.path_of(name)?).json(body)?;
            let request = self.api.options.add_to(request);
            let response = self.api.client.request(&request, stop)?;
            let context = response.body.context.clone();
            response_checks::check_json(&response.headers)
                .map_err(|error| error.context(context.to_string()))?;
            response.json()
        })
    }
}

impl<T: Object + DeserializeOwned> Subresource<T> {
    /// Reads the subresource of an object, which needs rights to that alone.
    ///
    /// # Errors
    ///
    /// As [`Api::get`].
    pub fn get(&self, name: &str, stop: &Stop) -> Result<Fetched<T>, Error> {
        self.api.get(name, stop)
    }

    /// Changes the subresource. A patch of a status is one of the whole object, of which the rest is ignored.
    ///
    /// # Errors
    ///
    /// As [`Api::patch`]; applying to a subresource creates no object.
    pub fn patch<B: Serialize>(
        &self,
        name: &str,
        patch: &Patch<B>,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        self.api.patch(name, patch, stop)
    }

    /// Replaces the subresource, if the object has not changed since it was read.
    ///
    /// # Errors
    ///
    /// As [`Api::replace`].
    pub fn replace(&self, object: &Fetched<T>, stop: &Stop) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        self.api.replace(object, stop)
    }

    /// Reads the subresource, changes it, and puts it back; again on a conflict, as [`Api::modify`].
    ///
    /// # Errors
    ///
    /// As [`Api::modify`].
    pub fn modify(
        &self,
        name: &str,
        change: impl FnMut(&mut T),
        stop: &Stop,
    ) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        self.api.modify(name, change, stop)
    }
}

impl Subresource<Scale> {
    /// Sets the number of replicas, whatever it was. What `kubectl scale` does.
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
        let patch = Patch::merge(json!({"spec": {"replicas": replicas}}));
        self.patch(name, &patch, stop)
    }
}

impl<T> Clone for Subresource<T> {
    fn clone(&self) -> Self {
        Self {
            api: self.api.clone(),
        }
    }
}

impl<T> fmt::Debug for Subresource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subresource")
            .field("name", &self.api.subresource)
            .field("of", &self.api)
            .finish()
    }
}
