use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{DynamicObject, GroupVersionKind, Object, Resource, Scope, WholeObject};

/// An object of type `T` that stays JSON until you decode it.
///
/// It wraps a [`DynamicObject`] and dereferences to it. See there for the checks on creation, and
/// for [`read`](DynamicObject::read), [`json`](DynamicObject::json) and
/// [`labels`](DynamicObject::labels). `Compact<Pod>` is a [`Resource`], and you can use it wherever
/// you can use `Pod`. A cache of compact objects uses little more memory than their JSON.
///
/// # Which type to cache
///
/// - If handlers and listers always read the same few fields, use a custom struct with only those
///   fields ([`impl_object!`](crate::impl_object)). It is the cheapest choice.
/// - If they read all fields, but rarely or of few objects, use `Compact`. For a kind without a
///   Rust type, use [`DynamicObject`]. Drop unused fields with
///   [`ReflectorOptions::skip`](crate::reflector::ReflectorOptions::skip), so that the JSON is kept
///   without them.
/// - If they read all fields of each object at each event, use the type itself, which is decoded
///   once.
///
/// # Examples
///
/// ```
/// use k8s_informer::object::Compact;
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let pod = json!({"metadata": {"name": "web-0", "labels": {"app": "web"}}, "spec": {"nodeName": "worker-1"}});
/// server.create("/api/v1/namespaces/default/pods", pod)?;
///
/// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
/// let pods = factory.informer::<Compact<Pod>>();
/// pods.add_index("node", |pod| pod.read("/spec/nodeName").into_iter().flatten().collect())?;
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
///
/// let pod = &pods.lister().by_index("node", "worker-1")?[0];
/// assert_eq!((pod.name(), pod.label("app")), ("web-0", Some("web")));
/// // This decodes one value ...
/// assert_eq!(pod.read("/spec/nodeName")?, Some("worker-1"));
/// // ... and this decodes the whole object.
/// let whole: Pod = pod.decode()?;
/// assert_eq!(whole.spec.and_then(|spec| spec.node_name).as_deref(), Some("worker-1"));
/// # factory.shut_down(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Deserialize, Serialize)]
#[serde(transparent, bound = "")]
pub struct Compact<T> {
    object: DynamicObject,
    #[serde(skip)]
    decodes_to: PhantomData<fn() -> T>,
}

impl<T> Compact<T> {
    /// Creates an object from any value that serializes to a JSON object, like
    /// [`DynamicObject::new`].
    ///
    /// ```
    /// use k8s_informer::Object;
    /// use k8s_informer::object::Compact;
    /// use k8s_informer::store::Transform;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// // This transform decodes each object and changes it.
    /// let transform = Transform::new(|pod: std::sync::Arc<Compact<Pod>>| {
    ///     let mut whole = pod.decode()?;
    ///     whole.status = None;
    ///     Ok::<_, serde_json::Error>(std::sync::Arc::new(Compact::new(&whole)?))
    /// });
    /// let pod = Compact::new(&serde_json::json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}}))?;
    /// let pod = transform.apply(std::sync::Arc::new(pod))?;
    /// assert_eq!((pod.name(), pod.read::<String>("/status/phase")?), ("a", None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`DynamicObject::new`].
    pub fn new(object: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        DynamicObject::new(object).map(Self::from)
    }

    /// Decodes the whole object.
    ///
    /// An object with more than 32 nested levels is decoded on a separate thread with a larger
    /// stack.
    ///
    /// ```
    /// use k8s_informer::object::Compact;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let pod: Compact<Pod> = serde_json::from_str(
    ///     r#"{"metadata": {"name": "a"}, "spec": {"containers": [], "priority": 3}}"#,
    /// )?;
    /// assert_eq!(pod.decode()?.spec.and_then(|spec| spec.priority), Some(3));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not match the type. This is checked here and not when
    /// the object is created. The message is that of [`DynamicObject::decode`].
    pub fn decode(&self) -> Result<T, serde_json::Error>
    where
        T: DeserializeOwned + Send,
    {
        self.object.decode()
    }
}

impl<T> Deref for Compact<T> {
    type Target = DynamicObject;

    fn deref(&self) -> &DynamicObject {
        &self.object
    }
}

/// Converts without checking that the object is a `T`. [`decode`](Compact::decode) checks this.
impl<T> From<DynamicObject> for Compact<T> {
    fn from(object: DynamicObject) -> Self {
        Self {
            object,
            decodes_to: PhantomData,
        }
    }
}

impl<T: 'static> Object for Compact<T> {
    fn name(&self) -> &str {
        self.object.name()
    }

    fn namespace(&self) -> &str {
        self.object.namespace()
    }

    fn uid(&self) -> &str {
        self.object.uid()
    }

    fn resource_version(&self) -> &str {
        self.object.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.object.label(key)
    }

    fn set_type_meta(&mut self, api_version: &str, kind: &str) {
        self.object.set_type_meta(api_version, kind);
    }
}

impl<T: Resource> Resource for Compact<T> {
    fn group_version_kind() -> GroupVersionKind {
        T::group_version_kind()
    }

    fn plural() -> Cow<'static, str> {
        T::plural()
    }

    fn scope() -> Scope {
        T::scope()
    }
}

/// To replace an object, decode it, change it and create a compact object from the result.
impl<T: WholeObject> WholeObject for Compact<T> {}

impl<T> Clone for Compact<T> {
    fn clone(&self) -> Self {
        self.object.clone().into()
    }
}

impl<T> PartialEq for Compact<T> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<T> Eq for Compact<T> {}

impl<T> fmt::Debug for Compact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}
