use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Api, Fetched, Patch};
use crate::error::Error;
use crate::object::{Object, WholeObject};
use crate::stop::Stop;

/// The status of the objects of an [`Api`]: what is observed, written apart from what is wanted. Made by
/// [`Api::status`]. client-go's `UpdateStatus`, and `Patch` of the subresource `status`.
///
/// The answers are whole objects, of which only the status (and of built-in kinds some of the metadata) is
/// written here; the rest is written through the [`Api`], which in turn leaves the status as it is. Kinds
/// without it answer [`is_not_found`](Error::is_not_found).
///
/// ```
/// use k8s_informer::testing::{ApiResource, ApiServer};
/// use k8s_informer::{Client, Config, GroupVersionResource, Patch, Stop};
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
/// assert_eq!(widget.pointer("/status/ready"), Some(&json!(true)));
/// assert_eq!(widget.pointer("/spec/size"), Some(&json!(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct StatusApi<T> {
    api: Api<T>,
}

const STATUS: &str = "status";

impl<T> StatusApi<T> {
    pub(super) fn new(api: Api<T>) -> Self {
        Self { api }
    }

    /// The same, but nothing that it writes is stored, as [`Api::dry_run`].
    pub fn dry_run(&self) -> Self {
        Self {
            api: self.api.dry_run(),
        }
    }
}

impl<T: Object + DeserializeOwned> StatusApi<T> {
    /// Reads the object, with the rights to its status alone.
    ///
    /// # Errors
    ///
    /// As [`Api::get`].
    pub fn get(&self, name: &str, stop: &Stop) -> Result<Fetched<T>, Error> {
        self.api.get_at(STATUS, name, stop)
    }

    /// Changes the status: the patch is one of the whole object, of which the rest is ignored.
    ///
    /// # Errors
    ///
    /// As [`Api::patch`]; applying a status creates no object.
    pub fn patch<B: Serialize>(
        &self,
        name: &str,
        patch: &Patch<B>,
        stop: &Stop,
    ) -> Result<Fetched<T>, Error> {
        self.api.patch_at(STATUS, name, patch, stop)
    }

    /// Puts the object's status in the place of the one that is there.
    ///
    /// # Errors
    ///
    /// As [`Api::replace`].
    pub fn replace(&self, object: &Fetched<T>, stop: &Stop) -> Result<Fetched<T>, Error>
    where
        T: WholeObject,
    {
        self.api.replace_at(STATUS, object, stop)
    }

    /// Reads the object, changes it, and puts its status back; again on a conflict, as [`Api::modify`].
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
        self.api.modify_at(STATUS, name, change, stop)
    }
}

impl<T> Clone for StatusApi<T> {
    fn clone(&self) -> Self {
        Self {
            api: self.api.clone(),
        }
    }
}

impl<T> fmt::Debug for StatusApi<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusApi").field("api", &self.api).finish()
    }
}
