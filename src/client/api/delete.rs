use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{Api, refused};
use crate::client::Request;
use crate::client::resource::{PARTIAL, PARTIAL_LIST};
use crate::error::Error;
use crate::object::Object;
use crate::stop::Stop;
use crate::wire::ListOptions;

/// What a deletion asks for: `metav1.DeleteOptions`. The default is what the kind's is, without conditions.
///
/// ```
/// use k8s_informer::client::api::{DeleteOptions, PropagationPolicy};
///
/// let mut options = DeleteOptions::default();
/// options.propagation_policy = Some(PropagationPolicy::Foreground);
/// options.grace_period_seconds = Some(0);
/// let sent = serde_json::to_string(&options)?;
/// assert!(sent.ends_with(r#""kind":"DeleteOptions","propagationPolicy":"Foreground"}"#), "{sent}");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Only the object that has this UID: not another one that has taken its name.
    pub uid: Option<String>,
    /// Only if this is still the object's resourceVersion: nobody has changed it.
    pub resource_version: Option<String>,
    /// What becomes of the objects that it owns.
    pub propagation_policy: Option<PropagationPolicy>,
    /// How many seconds it may take to end in order; 0 is at once. Only some kinds, as Pods, have that.
    pub grace_period_seconds: Option<u32>,
}

impl DeleteOptions {
    /// Only this very object, in whatever state it is by now.
    pub fn same_object(object: &impl Object) -> Self {
        Self {
            uid: Some(object.uid().to_owned()),
            ..Self::default()
        }
    }

    /// Only this very object, if nobody has changed it since.
    pub fn unchanged(object: &impl Object) -> Self {
        Self {
            resource_version: Some(object.resource_version().to_owned()),
            ..Self::same_object(object)
        }
    }
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropagationPolicy {
    /// They stay, without an owner.
    Orphan,
    /// They are deleted after it, by the garbage collector.
    Background,
    /// They are deleted before it.
    Foreground,
}

impl PropagationPolicy {
    /// As it stands in a request.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "Orphan",
            Self::Background => "Background",
            Self::Foreground => "Foreground",
        }
    }
}

impl Serialize for DeleteOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Destructured so that a new field can't be forgotten.
        let Self {
            uid,
            resource_version,
            propagation_policy,
            grace_period_seconds,
        } = self;
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        // One that is empty is one that nothing meets, which is better than none.
        for (field, wanted) in [("uid", uid), ("resourceVersion", resource_version)] {
            if let Some(wanted) = wanted {
                options["preconditions"][field] = wanted.as_str().into();
            }
        }
        if let Some(policy) = propagation_policy {
            options["propagationPolicy"] = policy.as_str().into();
        }
        if let Some(seconds) = grace_period_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        options.serialize(serializer)
    }
}

impl<T> Api<T> {
    /// Deletes an object. That it succeeds does not say that the object is gone: finalizers and grace periods
    /// may hold it, with a `deletionTimestamp`. client-go's `Delete`.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Error::is_not_found) if it is not there, [`is_conflict`](Error::is_conflict) if it is
    /// not as the preconditions have it.
    pub fn delete(&self, name: &str, options: &DeleteOptions, stop: &Stop) -> Result<(), Error> {
        self.about("delete", name, || {
            let request = Request::delete(self.path_of(name)?).json(&self.deletion(options)?)?;
            self.done(request.accept(self.accept), stop)
        })
    }

    /// Deletes all objects that the selectors of `which` select, each of them as [`delete`](Self::delete)
    /// does. **Empty selectors select all objects of the namespace**, or of a resource that has none. It does
    /// not go beyond one namespace. client-go's `DeleteCollection`.
    ///
    /// The server deletes one after the other: when it fails, some of them may be gone. With a
    /// [`limit`](ListOptions::limit) only so many are deleted.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer::client::api::DeleteOptions;
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
    ///     maps.create(&json!({"metadata": {"name": name, "labels": {"app": app}}}), &stop)?;
    /// }
    /// let mut which = ListOptions::default();
    /// which.label_selector = "app=web".to_owned();
    /// maps.delete_collection(&DeleteOptions::default(), &which, &stop)?;
    /// let left = maps.list(&ListOptions::default(), &stop)?.items;
    /// assert_eq!(left.iter().map(|map| map.name()).collect::<Vec<_>>(), ["b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_method_not_allowed`](Error::is_method_not_allowed) of kinds that can be deleted only one by one;
    /// [`is_bad_request`](Error::is_bad_request) for a selector that is none. A
    /// [shard selector](ListOptions::shard_selector) is refused here: servers may not look at it.
    pub fn delete_collection(
        &self,
        options: &DeleteOptions,
        which: &ListOptions,
        stop: &Stop,
    ) -> Result<(), Error> {
        self.about("delete all", "", || {
            if !which.shard_selector.is_empty() {
                return Err(refused(
                    "a server that knows no shards would delete the objects of all of them",
                ));
            }
            let request = Request::delete(self.collection()?).raw_query(&which.to_query());
            // Answered with a list of what was there.
            let accept = if self.accept == PARTIAL {
                PARTIAL_LIST
            } else {
                self.accept
            };
            let request = request.json(&self.deletion(options)?)?.accept(accept);
            self.done(request, stop)
        })
    }

    /// The body of a deletion. A server that gets one does not look for a dry run anywhere else.
    pub(super) fn deletion(&self, options: &DeleteOptions) -> Result<Value, Error> {
        let mut body =
            serde_json::to_value(options).map_err(|_| refused("the options can't be written"))?;
        if self.options.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        Ok(body)
    }

    /// Makes a request of whose answer nothing is needed: the object or objects, or a Status, depending on
    /// the kind.
    pub(super) fn done(&self, request: Request, stop: &Stop) -> Result<(), Error> {
        // To its end, so that the connection can be used again.
        self.client.request(&request, stop)?.discard()
    }
}
