use std::ops::{Deref, DerefMut};

/// An object just as the server answered: nothing of it was skipped or stripped on the way. Made by [`Api`]
/// alone, which takes it back to [replace][`Api::replace`] the object.
///
/// It is used as the object that it holds. Overwriting that with an object from somewhere else
/// (`*fetched = other`) is for those who know that the other one is as whole.
///
/// [`Api`]: crate::client::api::Api
/// [`Api::replace`]: crate::client::api::Api::replace
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Object, Stop};
/// use k8s_informer::client::api::Fetched;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
/// let mut map: Fetched<ConfigMap> = maps.create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
/// map.data.get_or_insert_default().insert("colour".into(), "red".into());
/// let replaced: ConfigMap = maps.replace(&map, &stop)?.into_inner();
/// assert_ne!(replaced.resource_version(), map.resource_version());
/// assert_eq!(replaced.data, map.data);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched<T> {
    object: T,
}

impl<T> Fetched<T> {
    pub(super) fn new(object: T) -> Self {
        Self { object }
    }

    /// Takes the object out, for good.
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
