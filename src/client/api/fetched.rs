use std::ops::{Deref, DerefMut};

/// A complete object, exactly as the server sent it.
///
/// Only [`Api`] creates values of this type, so no field was skipped or removed. [`Api::replace`]
/// requires a `Fetched`. A `Fetched` dereferences to the object that it contains.
///
/// You can overwrite this object with one from another source (`*fetched = other`). Do so only if
/// the other object is complete as well; otherwise `replace` erases its missing fields.
///
/// [`Api`]: crate::client::api::Api
/// [`Api::replace`]: crate::client::api::Api::replace
///
/// ```
/// use k8s_informer::client::api::Fetched;
/// use k8s_informer::{Client, Config, Object, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
/// let mut map: Fetched<ConfigMap> = maps.create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
/// map.data.get_or_insert_default().insert("colour".into(), "red".into());
/// let replaced: ConfigMap = maps.replace(&map, &stop)?.into_inner();
/// assert_ne!(replaced.resource_version(), map.resource_version());
/// assert_eq!(replaced.data, map.data);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fetched<T> {
    pub(super) object: T,
    pub(super) is_created: bool,
}

impl<T> Fetched<T> {
    /// For locks that read the object earlier.
    #[doc(hidden)]
    pub fn new(object: T) -> Self {
        Self {
            object,
            is_created: false,
        }
    }

    /// Whether the request has created the object: the status of the response was 201. This
    /// distinguishes the two results of a server-side apply.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer::client::api::Patch;
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// # let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let patch = Patch::apply("my-controller", serde_json::json!({"metadata": {"name": "a"}}));
    /// assert!(maps.patch("a", &patch, &stop)?.is_created());
    /// assert!(!maps.patch("a", &patch, &stop)?.is_created());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_created(&self) -> bool {
        self.is_created
    }

    /// Returns the object without the wrapper. [`Api::replace`](crate::client::api::Api::replace)
    /// does not accept it.
    pub fn into_inner(self) -> T {
        self.object
    }
}

impl<T> Deref for Fetched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T> DerefMut for Fetched<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: PartialEq> PartialEq for Fetched<T> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}
