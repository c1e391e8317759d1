//! Reads, writes, lists and watches objects without a cache.
//!
//! [`Api`] is the entry: one resource, in one namespace or in all. Its page has an example.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`Api`] | all verbs for one resource | typed, dynamic and metadata clients |
//! | [`Patch`] | apply, merge, JSON and strategic patches | `types.PatchType` |
//! | [`Fetched`] | an object with everything the server sent, to be changed and written back | |
//! | [`ObjectList`], [`Pages`] | one list; a list in pages | `tools/pager` |
//! | [`WatchEvents`] | a watch | `watch.Interface` |
//! | [`DeleteOptions`], [`LogOptions`] | options | `metav1.DeleteOptions`, `PodLogOptions` |
//! | [`Scale`], [`Subresource`] | `scale`, `status` | `autoscaling/v1.Scale` |
//! | [`retry_on_conflict`] | reads and writes again after a conflict | `retry.RetryOnConflict` |

mod delete;
mod fetched;
mod list;
mod options;
mod patch;
mod pods;
mod retry;
mod scale;
mod subresource;
mod watch;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value;

pub use delete::{DeleteOptions, PropagationPolicy};
pub use fetched::Fetched;
pub use list::{ObjectList, Pages};
pub use options::FieldValidation;
pub use patch::Patch;
pub use pods::LogOptions;
pub use retry::retry_on_conflict;
pub use scale::{Scale, ScaleSpec, ScaleStatus};
pub use subresource::Subresource;
pub use watch::{WatchEvent, WatchEvents};

use self::options::WriteOptions;
use super::resource::{PARTIAL, describe};
use super::{Client, Request, response_checks};
use crate::error::{Error, ErrorKind};
use crate::object::{
    GroupVersionKind, GroupVersionResource, Object, PartialObjectMetadata, Resource, Scope,
    WholeObject, path_segment,
};
use crate::stop::Stop;

/// The objects of one resource, to be read, written, listed and watched: in a namespace, or of a resource
/// that has none. client-go's typed, dynamic and metadata clients.
///
/// [`Client::api`] makes it for types that know their [`Resource`] (k8s-openapi's, your own),
/// [`Client::dynamic_api`] for any resource at run time, [`Client::metadata_api`] for metadata alone. It is
/// cheap to clone. Of a resource that lives in namespaces, one without a namespace [lists](Self::list) and
/// [watches](Self::watch) those of all of them, and can do nothing else.
///
/// Every call blocks until the whole answer is there, no longer than the client's
/// [`response_timeout`](crate::Config::response_timeout) for its head, and as long again for its body; a
/// [`Stop`] ends it at once. A body, a list's or a page's too, has at most as many bytes as the client's
/// [`body_limit`](crate::Config::body_limit) says. [Watches](Self::watch) and [logs](Self::logs) are streams:
/// their documentation says what limits them. None that writes is sent again after
/// an error that [is one of the connection](Error::is_connection), or of [time](Error::is_timeout): nobody
/// knows whether it was done. Messages say verb, resource, name and namespace, and nothing of what was sent.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer::client::api::{DeleteOptions, Patch};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
///
/// maps.create(&json!({"metadata": {"name": "settings"}, "data": {"colour": "red"}}), &stop)?;
/// let error = maps.create(&json!({"metadata": {"name": "settings"}}), &stop).unwrap_err();
/// assert!(error.is_already_exists());
///
/// // Say what is to be different ...
/// let map = maps.patch("settings", &Patch::merge(json!({"data": {"size": "3"}})), &stop)?;
/// assert_eq!(map.data.as_ref().unwrap()["colour"], "red");
/// // ... or what you want to be there, as the owner of just that ...
/// let wanted = json!({"metadata": {"name": "settings"}, "data": {"shape": "round"}});
/// maps.patch("settings", &Patch::apply("my-controller", wanted), &stop)?;
/// // ... or read, change and put back, again if somebody else was faster.
/// let map = maps.modify("settings", |map| map.data.as_mut().unwrap().retain(|key, _| key != "colour"), &stop)?;
/// assert_eq!(map.data.as_ref().unwrap().len(), 2);
///
/// // Deletes this very state of this very object, and nothing else.
/// maps.delete("settings", &DeleteOptions::unchanged(&*map), &stop)?;
/// assert!(maps.get("settings", &stop).unwrap_err().is_not_found());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Api<T> {
    client: Client,
    resource: GroupVersionResource,
    /// Known for types that know it: what a body has to say.
    kind: Option<GroupVersionKind>,
    /// Known for types that know it: whether there are namespaces.
    scope: Option<Scope>,
    namespace: Option<String>,
    /// Whether it is not the objects themselves, but this subresource of each.
    subresource: Option<Cow<'static, str>>,
    accept: &'static str,
    options: WriteOptions,
    objects: PhantomData<fn() -> T>,
}

impl Api<PartialObjectMetadata> {
    pub(super) fn metadata(
        client: Client,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Self {
        Self::new(client, resource.clone(), None, None, namespace, PARTIAL)
    }
}

impl<T: Resource> Api<T> {
    pub(super) fn typed(client: Client, namespace: Option<&str>) -> Self {
        let (kind, scope) = (Some(T::group_version_kind()), Some(T::SCOPE));
        Self::new(
            client,
            T::group_version_resource(),
            kind,
            scope,
            namespace,
            "application/json",
        )
    }
}

impl<T> Api<T> {
    pub(super) fn dynamic(
        client: Client,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Self {
        Self::new(
            client,
            resource.clone(),
            None,
            None,
            namespace,
            "application/json",
        )
    }

    fn new(
        client: Client,
        resource: GroupVersionResource,
        kind: Option<GroupVersionKind>,
        scope: Option<Scope>,
        namespace: Option<&str>,
        accept: &'static str,
    ) -> Self {
        let namespace = namespace
            .filter(|namespace| !namespace.is_empty())
            .map(str::to_owned);
        Self {
            client,
            resource,
            kind,
            scope,
            namespace,
            subresource: None,
            accept,
            options: WriteOptions::default(),
            objects: PhantomData,
        }
    }

    /// The resource whose objects they are.
    pub fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    /// The namespace, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The same for objects that are another view of these: of another kind, at a subresource or not.
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
            objects: PhantomData,
        }
    }

    /// Adds verb, resource, name and namespace to an error.
    fn about<R>(
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

    /// The path of the collection.
    fn collection(&self) -> Result<String, Error> {
        if (self.scope, self.namespace()) == (Some(Scope::Namespaced), None) {
            return Err(refused("this kind lives in namespaces, and none is given"));
        }
        self.check_namespace()?;
        self.resource.path(self.namespace())
    }

    /// Checks that there is a namespace only where there can be one.
    fn check_namespace(&self) -> Result<(), Error> {
        match (self.scope, self.namespace()) {
            (Some(Scope::Cluster), Some(_)) => Err(refused(
                "this kind does not live in namespaces, and one is given",
            )),
            _ => Ok(()),
        }
    }

    /// The path of an object, or of its subresource.
    fn path_of(&self, name: &str) -> Result<String, Error> {
        let path = format!("{}/{}", self.collection()?, path_segment("name", name)?);
        match self.subresource.as_deref() {
            None => Ok(path),
            Some("") => Err(refused("no subresource is named")),
            Some(subresource) => {
                let subresource = path_segment("subresource", subresource)?;
                Ok(format!("{path}/{subresource}"))
            }
        }
    }

    /// An object to be written, as JSON, with the kind that it may have left out.
    fn body<B: Serialize + ?Sized>(&self, body: &B) -> Result<Value, Error> {
        let mut body =
            serde_json::to_value(body).map_err(|_| refused("the body can't be written as JSON"))?;
        let Value::Object(fields) = &mut body else {
            return Err(refused("the body is no object"));
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
    /// Reads an object. client-go's `Get`.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Error::is_not_found) if it is not there; [`is_decode`](Error::is_decode) if the
    /// answer is not a `T`, or another object.
    pub fn get(&self, name: &str, stop: &Stop) -> Result<Fetched<T>, Error> {
        self.about("get", name, || {
            self.fetch(Request::get(self.path_of(name)?), Some(name), stop)
        })
    }

    /// Reads an object in a state that is this resourceVersion or newer, from the server's cache if it has
    /// come so far: that costs the server less than [`get`](Self::get), which is always the most recent
    /// state. "0" is any state that is at hand. client-go's `Get` with `GetOptions.ResourceVersion`.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Object, Stop};
    /// # use k8s_openapi::api::core::v1::Namespace;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (namespaces, stop) = (client.api::<Namespace>(None), Stop::new());
    /// assert_eq!(namespaces.get_not_older_than("default", "0", &stop)?.name(), "default");
    /// let error = namespaces.get_not_older_than("default", "1000000", &stop).unwrap_err();
    /// assert!(error.is_too_large_resource_version());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); [`is_too_large_resource_version`](Error::is_too_large_resource_version) if the
    /// server has not come so far: it waits for some seconds, and asks to be asked again, which
    /// [is done](crate::Client::request) ten times.
    pub fn get_not_older_than(
        &self,
        name: &str,
        resource_version: &str,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        self.about("get", name, || {
            let request =
                Request::get(self.path_of(name)?).query("resourceVersion", resource_version);
            self.fetch(request, Some(name), stop)
        })
    }

    /// Creates an object from anything that is one as JSON: a `T`, or whatever else has its fields. Its
    /// apiVersion and kind may be left out where a type knows them. client-go's `Create`.
    ///
    /// # Errors
    ///
    /// [`is_already_exists`](Error::is_already_exists) if there is one of that name,
    /// [`is_invalid`](Error::is_invalid) if the server finds something wrong with it,
    /// [`is_namespace_terminating`](Error::is_namespace_terminating) if nothing new comes into the namespace.
    pub fn create<B: Serialize + ?Sized>(
        &self,
        object: &B,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        let body = self.body(object);
        // A copy, as what is wrong with the body is told with the verb, too.
        let name = body
            .as_ref()
            .ok()
            .and_then(|body| body.pointer("/metadata/name")?.as_str());
        let name = name.unwrap_or_default().to_owned();
        self.about("create", &name, || {
            let request = self
                .options
                .add_to(Request::post(self.collection()?).json(&body?)?);
            // One whose name the server makes is whichever it is.
            self.fetch(request, Some(&*name).filter(|name| !name.is_empty()), stop)
        })
    }

    /// Changes an object by saying what is to be different, or what is to be there. client-go's `Patch` and
    /// `Apply`.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Error::is_not_found) if it is not there and the patch is not one that creates it;
    /// [`is_conflict`](Error::is_conflict) if the patch names another resourceVersion, or applies what
    /// another manager owns; [`is_invalid`](Error::is_invalid) if it can't be applied, or what comes of
    /// it is wrong.
    pub fn patch<B: Serialize>(
        &self,
        name: &str,
        patch: &Patch<B>,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        self.about(patch.verb(), name, || {
            let request = Request::patch(self.path_of(name)?);
            let request = patch.request(request, &self.options, |body| self.body(body))?;
            self.fetch(request, Some(name), stop)
        })
    }

    /// Puts an object in the place of that of its name: what was fetched before, with changes. client-go's
    /// `Update`.
    ///
    /// The object's resourceVersion goes along, so that nobody's change in between is lost: that is a
    /// conflict. Read again and try again, as [`modify`](Self::modify) does.
    ///
    /// It takes only what this client has [fetched](Fetched) as a whole: an object from an informer's cache
    /// may have lost fields on its way there ([`FieldPaths`](crate::reflector::FieldPaths)), and a type that is no
    /// [`WholeObject`] never had them.
    ///
    /// # Errors
    ///
    /// [`is_conflict`](Error::is_conflict) if it has changed, [`is_not_found`](Error::is_not_found) if it is
    /// gone, [`is_invalid`](Error::is_invalid) if the server finds something wrong with it.
    ///
    /// # What does not compile
    ///
    /// A type of your own, or metadata alone, would erase the rest of the object:
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
    /// An informer's object may have been stripped:
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
    /// While this does:
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
        self.about("replace", name, || {
            let request = Request::put(self.path_of(name)?).json(&**object)?;
            self.fetch(self.options.add_to(request), Some(name), stop)
        })
    }

    /// Reads an object, changes it, and puts it back; all of it again if somebody else was faster, as often
    /// and as fast as [`retry_on_conflict`] does. So `change` may be called several times, each time with a
    /// newer object.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// # let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// # maps.create(&serde_json::json!({"metadata": {"name": "settings"}}), &stop)?;
    /// let map = maps.modify("settings", |map| map.immutable = Some(true), &stop)?;
    /// assert_eq!(map.immutable, Some(true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get) and [`replace`](Self::replace).
    pub fn modify(
        &self,
        name: &str,
        mut change: impl FnMut(&mut T),
        stop: &Stop,
    ) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        retry_on_conflict(stop, || {
            let mut object = self.get(name, stop)?;
            change(&mut object);
            self.replace(&object, stop)
        })
    }

    /// Makes a request whose answer is the object of this name, if it is known.
    fn fetch(
        &self,
        request: Request,
        name: Option<&str>,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        let response = self.client.request(&request.accept(self.accept), stop)?;
        let context = response.body.context.clone();
        let with_context = |error: Error| error.context(context.to_string());
        response_checks::check_json(&response.headers).map_err(with_context)?;
        let object = self
            .decoder()
            .response(&response.bytes()?)
            .map_err(with_context)?;
        // It may be put back: under its own name.
        let is_it = match name {
            Some(name) => object.name() == name,
            None => !object.name().is_empty(),
        };
        let namespace = self.namespace().unwrap_or_default();
        if is_it && (object.namespace().is_empty() || object.namespace() == namespace) {
            Ok(Fetched::new(object))
        } else {
            Err(with_context(Error::decode(
                "it is not the object that was asked for",
            )))
        }
    }
}

impl<T> Clone for Api<T> {
    fn clone(&self) -> Self {
        self.view(self.kind.clone(), self.subresource.clone())
    }
}

impl<T> fmt::Debug for Api<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("client", &self.client)
            .field("resource", &self.resource)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// What is not even asked for.
fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Other(message.into()))
}
