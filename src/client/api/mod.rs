//! Reads, writes, lists and watches objects without a cache.
//!
//! [`Api`] is the entry point: it accesses one resource, in one namespace or in all. Its page has
//! an example.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`Api`] | all verbs for one resource | typed, dynamic and metadata clients |
//! | [`Patch`] | apply, merge, JSON and strategic patches | `types.PatchType` |
//! | [`Fetched`] | a complete object from the server, to change and write back | |
//! | [`ObjectList`], [`Pages`] | one list; a list in pages | `tools/pager` |
//! | [`WatchEvents`] | a watch | `watch.Interface` |
//! | [`Api::wait_for`], [`Api::wait_for_condition`] and others | wait for a state of one object | `kubectl wait` |
//! | [`DeleteOptions`] | options | `metav1.DeleteOptions` |
//! | [`Subresource`] | `scale`, `status` and others | `GetScale`, `UpdateStatus` |
//! | [`retry_on_conflict`] | reads and writes again after a conflict | `retry.RetryOnConflict` |

mod delete;
mod fetched;
mod list;
mod lister_watcher;
mod observer;
mod options;
mod patch;
mod pods;
mod retry;
mod subresource;
mod wait;
mod watch;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

pub use delete::{DeleteOptions, PropagationPolicy};
pub use fetched::Fetched;
pub use list::{ObjectList, Pages};
pub use observer::{WriteObserver, WriteOutcome};
pub use options::FieldValidation;
pub use patch::Patch;
pub use retry::retry_on_conflict;
pub use subresource::Subresource;
pub(super) use wait::Update;
pub use watch::{WatchEvent, WatchEvents};

use self::lister_watcher::{JSON, PARTIAL, describe};
use self::options::WriteOptions;
use super::request::{NOT_SERIALIZABLE, Purpose};
use super::{Client, Request, Response};
use crate::base::derive::debug_fields;
use crate::error::Error;
use crate::object::{
    DynamicObject, GroupVersionKind, GroupVersionResource, Object, ObjectName,
    PartialObjectMetadata, Resource, Scope, WholeObject, path_segment,
};
use crate::stop::Stop;

/// Accesses the objects of one resource: reads, writes, lists and watches them.
///
/// An `Api` covers one namespace, all namespaces, or a cluster-scoped resource. Cloning it is
/// cheap. The client-go counterparts are the typed, dynamic and metadata clients. Create an `Api`
/// with one of these methods:
///
/// - [`Client::api`] for types that implement [`Resource`]: those of k8s-openapi and your structs.
/// - [`Client::dynamic_api`] for any resource that is known only at run time.
/// - [`Client::metadata_api`] for only the metadata.
///
/// For a namespaced resource, an `Api` without a namespace [lists](Self::list) and
/// [watches](Self::watch) the objects of all namespaces. All other operations fail.
///
/// Every call blocks until the complete response has arrived. The client's
/// [`response_timeout`](crate::Config::response_timeout) limits the wait for the head and,
/// separately, the time to read the body. A [`Stop`] ends the call immediately. The client's
/// [`body_limit`](crate::Config::body_limit) limits the size of the body, including that of a list
/// or a page. [Watches](Self::watch) are streams with their own limits; see their documentation.
///
/// A response with 429, or with 5xx and a retry delay, is requested again, up to
/// [10 times](crate::client::Request::DEFAULT_RETRIES). A write is not resent after a
/// [connection error](Error::is_connection) or a [timeout](Error::is_timeout), because the server may
/// have executed it. Error messages contain
/// the verb, the resource, the name and the namespace, but nothing that was sent.
///
/// ```
/// use k8s_informer::client::api::{DeleteOptions, Patch};
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
///
/// maps.create(&json!({"metadata": {"name": "settings"}, "data": {"colour": "red"}}), &stop)?;
/// let error = maps.create(&json!({"metadata": {"name": "settings"}}), &stop).unwrap_err();
/// assert!(error.is_already_exists());
///
/// // Merge: name the fields to change ...
/// let map = maps.patch("settings", &Patch::merge(json!({"data": {"size": "3"}})), &stop)?;
/// assert_eq!(map.data.as_ref().unwrap()["colour"], "red");
/// // ... or apply: name the fields to own ...
/// let wanted = json!({"metadata": {"name": "settings"}, "data": {"shape": "round"}});
/// maps.patch("settings", &Patch::apply("my-controller", wanted), &stop)?;
/// // ... or read, change and write back, and repeat this after a conflict.
/// let map = maps.modify("settings", |map| map.data.as_mut().unwrap().retain(|key, _| key != "colour"), &stop)?;
/// assert_eq!(map.data.as_ref().unwrap().len(), 2);
///
/// // Deletes exactly this object, only if it is unchanged.
/// maps.delete("settings", &DeleteOptions::unchanged(&*map), &stop)?;
/// assert!(maps.get("settings", &stop).unwrap_err().is_not_found());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Api<T> {
    client: Client,
    resource: GroupVersionResource,
    /// The kind of the objects. It is added to bodies without a kind, and the objects in responses
    /// must have it. `None` if any kind is accepted.
    kind: Option<GroupVersionKind>,
    /// Whether the kind is namespaced. `None` if unknown, as for dynamic and metadata clients.
    scope: Option<Scope>,
    namespace: Option<String>,
    /// The subresource that requests refer to. `None` for the objects themselves.
    subresource: Option<Cow<'static, str>>,
    accept: &'static str,
    options: WriteOptions,
    observer: Option<Arc<dyn WriteObserver>>,
    objects: PhantomData<fn() -> T>,
}

impl Client {
    /// Returns an [`Api`] for the objects of type `T` in a namespace.
    ///
    /// Pass `None` for cluster-scoped kinds, or to list and watch the objects of all namespaces.
    pub fn api<T: Resource>(&self, namespace: Option<&str>) -> Api<T> {
        Api::typed(self.clone(), namespace)
    }

    /// Returns an [`Api`] for a resource that is known only at run time.
    ///
    /// Pass `None` as the namespace for cluster-scoped resources, or to list and watch the objects
    /// of all namespaces. To find a resource by its name, use [`discover`](Self::discover).
    pub fn dynamic_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        self.dynamic_api_as(resource, namespace)
    }

    /// Like [`dynamic_api`](Self::dynamic_api), but decodes the objects into a type of your choice:
    /// for example a custom struct with only the fields that you need.
    ///
    /// The path depends only on `resource`, and objects of any kind are accepted. If `T` implements
    /// [`Resource`], that implementation is ignored.
    ///
    /// ```
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer::{Client, Config, ObjectMeta, Stop, impl_object};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Named {
    ///     metadata: ObjectMeta,
    ///     kind: String,
    /// }
    /// impl_object!(Named, "v1", "Namespace", "namespaces", Cluster);
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    /// let default = client.dynamic_api_as::<Named>(&namespaces, None).get("default", &Stop::never())?;
    /// assert_eq!((&*default.kind, &*default.metadata.name), ("Namespace", "default"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dynamic_api_as<T: Object>(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<T> {
        Api::new(self.clone(), resource.clone(), namespace, JSON)
    }

    /// Returns an [`Api`] that reads only the metadata of objects.
    ///
    /// Pass `None` as the namespace for cluster-scoped resources, or to list and watch the objects
    /// of all namespaces. The objects can be patched and deleted, but not replaced.
    pub fn metadata_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<PartialObjectMetadata> {
        Api::new(self.clone(), resource.clone(), namespace, PARTIAL)
    }
}

impl<T: Resource> Api<T> {
    pub(super) fn typed(client: Client, namespace: Option<&str>) -> Self {
        Self {
            kind: Some(T::group_version_kind()),
            scope: Some(T::scope()),
            ..Self::new(client, T::group_version_resource(), namespace, JSON)
        }
    }
}

impl<T> Api<T> {
    /// An API for objects of any kind and scope.
    pub(super) fn new(
        client: Client,
        resource: GroupVersionResource,
        namespace: Option<&str>,
        accept: &'static str,
    ) -> Self {
        let namespace = namespace
            .filter(|namespace| !namespace.is_empty())
            .map(str::to_owned);
        Self {
            client,
            resource,
            kind: None,
            scope: None,
            namespace,
            subresource: None,
            accept,
            options: WriteOptions::default(),
            observer: None,
            objects: PhantomData,
        }
    }

    /// Returns the resource.
    pub fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    /// Returns the namespace, if one is set.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns an `Api` whose writes and deletions are not stored.
    ///
    /// The server executes all other steps of a request, and responds as if it had stored the
    /// result. The client-go counterpart is `DryRun: []string{metav1.DryRunAll}`.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Object, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let map = maps.dry_run().create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
    /// assert_eq!(map.name(), "a");
    /// assert!(maps.get("a", &stop).unwrap_err().is_not_found());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dry_run(&self) -> Self {
        self.with(|options| options.dry_run = true)
    }

    /// Returns an `Api` that writes as this field manager.
    ///
    /// The server records the name in `managedFields`. By default it takes the name from the
    /// [user agent](crate::Config::user_agent), which a client sets once for all requests.
    /// [`Patch::apply`](crate::client::api::Patch::apply) uses the manager of the patch instead.
    /// The client-go counterpart is `FieldManager`.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// maps.field_manager("my-tool").create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
    /// assert_eq!(server.requests()[0].param("fieldManager"), Some("my-tool"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn field_manager(&self, name: impl AsRef<str>) -> Self {
        self.with(|options| options.field_manager = Some(name.as_ref().into()))
    }

    /// Returns an `Api` that creates, replaces and patches with this [`FieldValidation`]. The
    /// client-go counterpart is `FieldValidation`.
    ///
    /// ```
    /// # use k8s_informer::client::api::FieldValidation;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let misspelt = serde_json::json!({"metadata": {"name": "a"}, "date": {"x": "1"}});
    /// let error = maps.field_validation(FieldValidation::Strict).create(&misspelt, &stop).unwrap_err();
    /// assert!(error.is_bad_request() && error.to_string().contains("unknown field \"date\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn field_validation(&self, validation: FieldValidation) -> Self {
        self.with(|options| options.field_validation = Some(validation))
    }

    fn with(&self, change: impl FnOnce(&mut WriteOptions)) -> Self {
        let mut api = self.clone();
        change(&mut api.options);
        api
    }

    /// Returns an `Api` that reports its writes to an observer.
    ///
    /// ```
    /// use k8s_informer::client::api::{WriteObserver, WriteOutcome};
    /// use k8s_informer::object::{GroupVersionResource, ObjectName};
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use std::sync::{Arc, Mutex};
    ///
    /// /// The versions that this program has written.
    /// #[derive(Default)]
    /// struct Versions(Mutex<Vec<String>>);
    ///
    /// impl WriteObserver for Versions {
    ///     fn before_write<'a>(&'a self, _: &GroupVersionResource, _: &ObjectName) -> Box<dyn FnOnce(WriteOutcome<'_>) + 'a> {
    ///         Box::new(|outcome| {
    ///             if let WriteOutcome::Written(object) = outcome {
    ///                 self.0.lock().unwrap().push(object.resource_version().to_owned());
    ///             }
    ///         })
    ///     }
    /// }
    ///
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// # let stop = Stop::never();
    /// let versions = Arc::new(Versions::default());
    /// let maps = client.api::<ConfigMap>(Some("default")).observed_by(versions.clone());
    /// let map = maps.create(&serde_json::json!({"metadata": {"name": "settings"}}), &stop)?;
    /// assert_eq!(*versions.0.lock().unwrap(), [map.metadata.resource_version.clone().unwrap()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observed_by(mut self, observer: Arc<dyn WriteObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Returns the observer of a write. Dry runs are not observed.
    fn observer(&self) -> Option<&dyn WriteObserver> {
        self.observer.as_deref().filter(|_| !self.options.dry_run)
    }

    /// Returns an `Api` with the same settings for another kind or subresource.
    fn view<S>(
        &self,
        kind: Option<GroupVersionKind>,
        subresource: Option<Cow<'static, str>>,
    ) -> Api<S> {
        Api {
            client: self.client.clone(),
            resource: self.resource.clone(),
            kind,
            scope: self.scope,
            namespace: self.namespace.clone(),
            subresource,
            accept: self.accept,
            options: self.options.clone(),
            observer: self.observer.clone(),
            objects: PhantomData,
        }
    }

    /// Runs `work`, and adds the verb, resource, name and namespace to its error.
    fn with_context<R>(
        &self,
        verb: &str,
        name: &str,
        work: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        work().map_err(|error| {
            let subresource = self.subresource.as_deref().unwrap_or_default();
            let name = Some(name).filter(|name| !name.is_empty());
            let what = describe(&self.resource, subresource, name, self.namespace());
            error.context(format!("{verb} {what}"))
        })
    }

    /// Returns the path of the collection.
    fn collection(&self) -> Result<String, Error> {
        if (self.scope, self.namespace()) == (Some(Scope::Namespaced), None) {
            return Err(Error::other(
                "this kind is namespaced, but no namespace was given",
            ));
        }
        self.check_namespace()?;
        self.resource.path(self.namespace())
    }

    /// Sends a request. Explains the error if the server does not serve the path.
    fn request(&self, request: &Request, stop: &Stop) -> Result<Response, Error> {
        self.client.request(request, stop).map_err(|error| {
            self.client
                .explain_unserved(error, &self.resource, self.namespace(), false, stop)
        })
    }

    fn target(&self, name: &str) -> ObjectName {
        ObjectName::new(self.namespace().unwrap_or_default(), name)
    }

    /// Rejects a namespace for a cluster-scoped kind.
    fn check_namespace(&self) -> Result<(), Error> {
        match (self.scope, self.namespace()) {
            (Some(Scope::Cluster), Some(_)) => Err(Error::other(
                "this kind is cluster-scoped by its type, but a namespace was given: use no namespace, or \
                 correct the scope of the type",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the path of an object or of its subresource.
    fn path_of(&self, name: &str) -> Result<String, Error> {
        let path = format!("{}/{}", self.collection()?, path_segment("name", name)?);
        match self.subresource.as_deref() {
            None => Ok(path),
            Some("") => Err(Error::other("the name of the subresource is empty")),
            Some(subresource) => {
                let subresource = path_segment("subresource", subresource)?;
                Ok(format!("{path}/{subresource}"))
            }
        }
    }

    /// Serializes an object, and adds `apiVersion` and `kind` if they are missing.
    fn body<B: Serialize + ?Sized>(&self, body: &B) -> Result<Value, Error> {
        let mut body = serde_json::to_value(body).map_err(|_| Error::other(NOT_SERIALIZABLE))?;
        let Value::Object(fields) = &mut body else {
            return Err(Error::other("the body is not a JSON object"));
        };
        if let Some(kind) = &self.kind {
            fields
                .entry("apiVersion")
                .or_insert_with(|| kind.api_version().into());
            fields
                .entry("kind")
                .or_insert_with(|| kind.kind.as_str().into());
        }
        Ok(body)
    }
}

impl<T: Object + serde::de::DeserializeOwned> Api<T> {
    /// Reads an object. The client-go counterpart is `Get`.
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if the object does not exist, and an
    /// [`is_decode`](Error::is_decode) error if the response is not a `T` or is a different object.
    pub fn get(&self, name: &str, stop: &Stop) -> Result<Fetched<T>, Error> {
        self.with_context("get", name, || {
            let request = Request::get(self.path_of(name)?);
            Ok(self.fetch(request, Some(name), stop)?.0)
        })
    }

    /// Creates an object from any value that serializes to it: a `T`, or another value with its
    /// fields.
    ///
    /// You can omit `apiVersion` and `kind` if this `Api` was made by [`Client::api`]. The
    /// client-go counterpart is `Create`.
    ///
    /// # Errors
    ///
    /// Returns an [`is_already_exists`](Error::is_already_exists) error if an object of that name
    /// exists, an [`is_invalid`](Error::is_invalid) error if the server rejects the object, and an
    /// [`is_namespace_terminating`](Error::is_namespace_terminating) error if the namespace is
    /// being deleted.
    pub fn create<B: Serialize + ?Sized>(
        &self,
        object: &B,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        let body = self.body(object);
        // Clone the name, because the closure consumes `body`. An invalid body is not reported here
        // but in the closure, so that `with_context` adds its context to the error.
        let name = body
            .as_ref()
            .ok()
            .and_then(|body| body.pointer("/metadata/name")?.as_str());
        let name = name.unwrap_or_default().to_owned();
        self.with_context("create", &name, || {
            let request = self
                .options
                .add_to(Request::post(self.collection()?).json(&body?)?);
            // With `generateName`, any name is accepted.
            self.write(request, Some(&*name).filter(|name| !name.is_empty()), stop)
        })
    }

    /// Changes an object with a patch, or creates or changes it with a server-side apply. The
    /// client-go counterparts are `Patch` and `Apply`.
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if the object does not exist, unless
    /// the patch is an apply, which creates it. Returns an [`is_conflict`](Error::is_conflict)
    /// error if the patch contains a different resource version, or applies fields that another
    /// manager owns. Returns an [`is_invalid`](Error::is_invalid) error if the patch cannot be
    /// applied or if its result is invalid.
    pub fn patch<B: Serialize>(
        &self,
        name: &str,
        patch: &Patch<B>,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        self.with_context(patch.verb(), name, || {
            let request = Request::patch(self.path_of(name)?);
            let request = patch.request(request, &self.options, |body| self.body(body))?;
            self.write(request, Some(name), stop)
        })
    }

    /// Replaces an object: writes back a [`Fetched`] object that you have changed. The client-go
    /// counterpart is `Update`.
    ///
    /// The request contains the resource version of the object. If the object has changed since it
    /// was fetched, the server returns a conflict, so no other change is lost. Read the object
    /// again and retry, as [`modify`](Self::modify) does.
    ///
    /// `replace` accepts only a [`Fetched`], a complete object from the server. An object from the
    /// cache of an informer may lack fields ([`FieldPaths`](crate::reflector::FieldPaths)), and a
    /// type that is not a [`WholeObject`] does not decode all fields.
    ///
    /// # Errors
    ///
    /// Returns an [`is_conflict`](Error::is_conflict) error if the object has changed, an
    /// [`is_not_found`](Error::is_not_found) error if it does not exist any more, and an
    /// [`is_invalid`](Error::is_invalid) error if the server rejects it.
    ///
    /// # What does not compile
    ///
    /// A custom struct, or only the metadata, would erase the other fields of the object:
    ///
    /// ```compile_fail,E0277
    /// # use k8s_informer::{Client, ObjectMeta, Stop, impl_object};
    /// #[derive(serde::Deserialize, serde::Serialize)]
    /// struct Slim { metadata: ObjectMeta }
    /// impl_object!(Slim, "v1", "ConfigMap", "configmaps", Namespaced);
    /// # fn slim(client: Client, stop: Stop) -> Result<(), k8s_informer::Error> {
    /// let maps = client.api::<Slim>(Some("default"));
    /// let map = maps.get("settings", &stop)?;
    /// maps.replace(&map, &stop)?;
    /// # Ok(()) }
    /// ```
    ///
    /// ```compile_fail,E0277
    /// # use k8s_informer::{Client, Stop};
    /// # use k8s_informer::object::GroupVersionResource;
    /// # fn metadata(client: Client, stop: Stop) -> Result<(), k8s_informer::Error> {
    /// let maps = client.metadata_api(&GroupVersionResource::new("", "v1", "configmaps"), Some("default"));
    /// let map = maps.get("settings", &stop)?;
    /// maps.replace(&map, &stop)?;
    /// # Ok(()) }
    /// ```
    ///
    /// The object of an informer may lack fields:
    ///
    /// ```compile_fail,E0308
    /// # use k8s_informer::{Lister, Stop};
    /// # use k8s_informer::client::api::Api;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # fn cached(lister: Lister<ConfigMap>, maps: Api<ConfigMap>, stop: Stop) -> Result<(), k8s_informer::Error> {
    /// let map = lister.get("default", "settings").unwrap();
    /// maps.replace(&map, &stop)?;
    /// # Ok(()) }
    /// ```
    ///
    /// This compiles:
    ///
    /// ```
    /// # use k8s_informer::{Error, Stop};
    /// # use k8s_informer::client::api::Api;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// fn freeze(maps: Api<ConfigMap>, stop: Stop) -> Result<(), Error> {
    ///     let mut map = maps.get("settings", &stop)?;
    ///     map.immutable = Some(true);
    ///     maps.replace(&map, &stop)?;
    ///     Ok(())
    /// }
    /// ```
    pub fn replace(&self, object: &Fetched<T>, stop: &Stop) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        let name = object.name();
        self.with_context("replace", name, || {
            let request = Request::put(self.path_of(name)?).json(&**object)?;
            self.write(self.options.add_to(request), Some(name), stop)
        })
    }

    /// Reads an object, changes it, and writes it back. After a conflict it starts again.
    ///
    /// `change` can be called several times, each time with a newer object. The number of attempts
    /// and the delay between them are those of [`retry_on_conflict`].
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// # let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// # maps.create(&serde_json::json!({"metadata": {"name": "settings"}}), &stop)?;
    /// let map = maps.modify("settings", |map| map.immutable = Some(true), &stop)?;
    /// assert_eq!(map.immutable, Some(true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`get`](Self::get) and [`replace`](Self::replace).
    pub fn modify(
        &self,
        name: &str,
        mut change: impl FnMut(&mut T),
        stop: &Stop,
    ) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        retry_on_conflict(
            || {
                let mut object = self.get(name, stop)?;
                change(&mut object);
                self.replace(&object, stop)
            },
            stop,
        )
    }

    /// Sends a write and decodes the object in the response.
    fn write(
        &self,
        request: Request,
        name: Option<&str>,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        let Some(observer) = self.observer() else {
            return Ok(self.fetch(request, name, stop)?.0);
        };
        let report = observer.before_write(&self.resource, &self.target(name.unwrap_or_default()));
        match self.fetch(request, name, stop) {
            Ok((object, body)) => {
                report(match observer::is_removed(&body) {
                    true => WriteOutcome::Deleted { uid: object.uid() },
                    false => WriteOutcome::Written(&*object),
                });
                Ok(object)
            }
            Err(error) => {
                if error.is_outcome_unknown() {
                    report(WriteOutcome::Unknown);
                }
                Err(error)
            }
        }
    }

    /// Sends a request and decodes the object in the response. Also returns the body. Rejects an
    /// object with another name or namespace.
    fn fetch(
        &self,
        request: Request,
        name: Option<&str>,
        stop: &Stop,
    ) -> Result<(Fetched<T>, Vec<u8>), Error> {
        let request = request.accept(self.accept).purpose(Purpose::Json);
        let response = self.request(&request, stop)?;
        let context = response.body.context.clone();
        let is_created = response.status() == 201;
        let with_context = |error: Error| error.context(context.to_string());
        let body = response.bytes()?;
        let object = self.decoder().response(&body).map_err(with_context)?;
        // The name in the object must be the requested one, because the caller may write the object
        // back under the name that it contains.
        let is_requested = match name {
            Some(name) => object.name() == name,
            None => !object.name().is_empty(),
        };
        let namespace = self.namespace().unwrap_or_default();
        if is_requested && (object.namespace().is_empty() || object.namespace() == namespace) {
            Ok((Fetched { object, is_created }, body))
        } else {
            Err(with_context(Error::invalid(
                "the object has another name or namespace than requested",
            )))
        }
    }
}

impl<T> Clone for Api<T> {
    fn clone(&self) -> Self {
        self.view(self.kind.clone(), self.subresource.clone())
    }
}

debug_fields!(Api<T>: client, resource, namespace);
