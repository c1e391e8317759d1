use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lister_watcher::JSON;
use super::{Api, Fetched, Patch};
use crate::client::Request;
use crate::client::request::Purpose;
use crate::error::Error;
use crate::object::{Object, WholeObject};
use crate::stop::Stop;

/// A subresource of the objects of an [`Api`].
///
/// It is created by [`Api::status`] and [`Api::subresource`]. Its methods take the
/// name of the object. `T` is the type of the responses. If an object does not have the
/// subresource, requests return an [`is_not_found`](Error::is_not_found) error.
#[derive(Clone, Debug)]
#[must_use]
pub struct Subresource<T> {
    api: Api<T>,
}

impl<T> Api<T> {
    /// Returns the `status` subresource: the observed state, which is written separately from the
    /// spec. The client-go counterparts are `UpdateStatus`, and `Patch` with the subresource
    /// `status`.
    ///
    /// The responses are complete objects. A write changes only the status and, for built-in kinds,
    /// parts of the metadata. To write the rest, use the [`Api`], which does not change the status.
    ///
    /// ```
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::{ApiResource, ApiServer};
    /// use serde_json::json;
    ///
    /// let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    /// let server = ApiServer::builder().resource(widgets).start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let resource = GroupVersionResource::new("example.com", "v1", "widgets");
    /// let (widgets, stop) = (client.dynamic_api(&resource, Some("default")), Stop::never());
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

    /// Returns any other subresource, such as the `scale` of a Deployment or the `token` of a
    /// ServiceAccount.
    ///
    /// Objects that you write through it must contain `apiVersion` and `kind`.
    ///
    /// ```
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::{Client, Config, DynamicObject, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (deployments, stop) = (client.api::<Deployment>(Some("default")), Stop::never());
    /// let labels = json!({"app": "web"});
    /// let web = json!({
    ///     "metadata": {"name": "web"},
    ///     "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}},
    /// });
    /// deployments.create(&web, &stop)?;
    ///
    /// let patch = Patch::merge(json!({"spec": {"replicas": 3}}));
    /// deployments.subresource::<DynamicObject>("scale").patch("web", &patch, &stop)?;
    /// assert_eq!(deployments.get("web", &stop)?.spec.replicas, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// ```no_run
    /// use k8s_informer::{Client, DynamicObject, Stop};
    /// use k8s_openapi::api::core::v1::ServiceAccount;
    ///
    /// let (client, stop) = (Client::try_default()?, Stop::never());
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
                accept: JSON,
                ..api
            },
        }
    }

    /// Returns the path of a subresource of an object. If `subresource` is empty, returns the path
    /// of the object itself.
    ///
    /// Use this path to build a [`Request`] for an endpoint that has no method here. Each part of
    /// the path is checked and encoded, so no name can lead to another path.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config};
    /// # use k8s_informer_testing::ApiServer;
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
    /// Returns an error if the name, the subresource or the namespace cannot be part of a path, or
    /// if the namespace is missing.
    pub fn path(&self, name: &str, subresource: &str) -> Result<String, Error> {
        let subresource = (!subresource.is_empty()).then(|| subresource.to_owned().into());
        let api = self.view::<T>(None, subresource);
        api.with_context("build the path of", name, || api.path_of(name))
    }
}

impl<T> Subresource<T> {
    /// Returns a `Subresource` whose writes are not stored. See [`Api::dry_run`].
    pub fn dry_run(&self) -> Self {
        Self {
            api: self.api.dry_run(),
        }
    }
}

impl<T: DeserializeOwned + Send> Subresource<T> {
    /// Creates a subresource of an object, and returns the response of the server.
    ///
    /// Use it for subresources that can only be created: the `token` of a ServiceAccount (a
    /// TokenRequest), or the `binding` of a Pod. The body is any value that serializes to the
    /// subresource, with `apiVersion` and `kind`. The client-go counterparts are `CreateToken`,
    /// `Bind`, and `Create` of the dynamic client with subresources.
    ///
    /// [`Api::subresource`] has an example.
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if the object does not exist or has
    /// no such subresource, and an [`is_invalid`](Error::is_invalid) error if the server rejects
    /// the body.
    pub fn create<B: Serialize + ?Sized>(
        &self,
        name: &str,
        body: &B,
        stop: &Stop,
    ) -> Result<T, Error> {
        self.api.with_context("create", name, || {
            let request = Request::post(self.api.path_of(name)?).json(body)?;
            let request = self.api.options.add_to(request).purpose(Purpose::Json);
            let send = || self.api.request(&request, stop)?.json();
            // Other subresources, such as `token`, do not change the object.
            match self.api.subresource.as_deref() {
                Some("binding" | "eviction") => self.api.write_unseen(name, send),
                _ => send(),
            }
        })
    }
}

impl<T: Object + DeserializeOwned> Subresource<T> {
    /// Reads the subresource of an object. The user needs only the permission to read this
    /// subresource, not the object.
    ///
    /// # Errors
    ///
    /// The errors of [`Api::get`].
    pub fn get(&self, name: &str, stop: &Stop) -> Result<Fetched<T>, Error> {
        self.api.get(name, stop)
    }

    /// Patches the subresource. A status patch is a patch of the complete object, of which the
    /// server ignores all parts but the status.
    ///
    /// # Errors
    ///
    /// The errors of [`Api::patch`]. An apply does not create the object.
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
    /// The errors of [`Api::replace`].
    pub fn replace(&self, object: &Fetched<T>, stop: &Stop) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        self.api.replace(object, stop)
    }

    /// Reads the subresource, changes it, and writes it back. After a conflict it starts again,
    /// like [`Api::modify`].
    ///
    /// # Errors
    ///
    /// The errors of [`Api::modify`].
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
