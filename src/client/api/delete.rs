use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Api;
use super::lister_watcher::{PARTIAL, PARTIAL_LIST, with_selectors};
use super::observer::{WriteOutcome, report_deletion};
use crate::base::derive::setters;
use crate::client::Request;
use crate::error::Error;
use crate::object::Object;
use crate::stop::Stop;
use crate::wire::ListOptions;

/// Options for a deletion: `metav1.DeleteOptions`.
///
/// The default is a deletion without preconditions, with the default policy and grace period of the
/// kind.
///
/// ```
/// use k8s_informer::client::api::{DeleteOptions, PropagationPolicy};
///
/// let options = DeleteOptions::new()
///     .propagation_policy(PropagationPolicy::Foreground)
///     .grace_period_seconds(0);
/// let sent = serde_json::to_string(&options)?;
/// assert!(sent.ends_with(r#""kind":"DeleteOptions","propagationPolicy":"Foreground"}"#), "{sent}");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Deletes the object only if it has this UID. A newer object with the same name is not
    /// deleted.
    pub uid: Option<String>,
    /// Deletes the object only if it has this resource version, that is, only if it is unchanged.
    pub resource_version: Option<String>,
    /// The policy for the objects that the deleted object owns.
    pub propagation_policy: Option<PropagationPolicy>,
    /// The grace period in seconds; 0 deletes immediately. Only some kinds, such as Pods, support
    /// it.
    pub grace_period_seconds: Option<u32>,
}

impl DeleteOptions {
    /// Creates options without preconditions.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Deletes the object only if it has this UID.
        uid(uid: impl Into<String>) = Some(uid.into());
        /// Deletes the object only if it has this resource version.
        resource_version(version: impl Into<String>) = Some(version.into());
        /// Sets the policy for the objects that the deleted object owns.
        propagation_policy(policy: PropagationPolicy) = Some(policy);
        /// Sets the grace period in seconds; 0 deletes immediately.
        grace_period_seconds(seconds: u32) = Some(seconds);
    }

    /// Returns options that delete only the given object, in any state. A newer object with the
    /// same name is not deleted.
    pub fn same_object(object: &impl Object) -> Self {
        Self {
            uid: Some(object.uid().to_owned()),
            ..Self::default()
        }
    }

    /// Returns options that delete only the given object, and only if it is unchanged.
    pub fn unchanged(object: &impl Object) -> Self {
        Self {
            resource_version: Some(object.resource_version().to_owned()),
            ..Self::same_object(object)
        }
    }
}

/// The policy for the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum PropagationPolicy {
    /// The owned objects are kept, without an owner.
    Orphan,
    /// The garbage collector deletes the owned objects after the owner.
    Background,
    /// The garbage collector deletes the owned objects before the owner.
    Foreground,
}

impl Serialize for DeleteOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Destructured, so that the compiler reports a new field that is not handled here.
        let Self {
            uid,
            resource_version,
            propagation_policy,
            grace_period_seconds,
        } = self;
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        // An empty value is sent as well: it matches no object, which is safer than no
        // precondition.
        for (field, value) in [("uid", uid), ("resourceVersion", resource_version)] {
            if let Some(value) = value {
                options["preconditions"][field] = value.as_str().into();
            }
        }
        if let Some(policy) = propagation_policy {
            options["propagationPolicy"] = json!(policy);
        }
        if let Some(seconds) = grace_period_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        options.serialize(serializer)
    }
}

impl<T> Api<T> {
    /// Deletes an object. The client-go counterpart is `Delete`.
    ///
    /// Success does not mean that the object is gone. Finalizers and grace periods can keep it,
    /// with a `deletionTimestamp`.
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if the object does not exist, and an
    /// [`is_conflict`](Error::is_conflict) error if it does not match the preconditions.
    pub fn delete(&self, name: &str, options: &DeleteOptions, stop: &Stop) -> Result<(), Error> {
        self.with_context("delete", name, || {
            let request = Request::delete(self.path_of(name)?).json(&self.delete_body(options)?)?;
            self.send_delete(name, request.accept(self.accept), stop)
        })
    }

    /// Deletes all objects that match the selectors in `which`. The client-go counterpart is
    /// `DeleteCollection`.
    ///
    /// **Without selectors, all objects of the namespace match**, or all objects of a cluster-scoped
    /// resource. A call never covers several namespaces. Each object is deleted as by
    /// [`delete`](Self::delete).
    ///
    /// The server deletes the objects one after the other. After an error, some of them may be
    /// deleted. A [`limit`](ListOptions::limit) restricts the number of deleted objects.
    ///
    /// ```
    /// use k8s_informer::client::api::DeleteOptions;
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
    ///     maps.create(&json!({"metadata": {"name": name, "labels": {"app": app}}}), &stop)?;
    /// }
    /// let which = ListOptions::new().label_selector("app=web");
    /// maps.delete_collection(&DeleteOptions::default(), &which, &stop)?;
    /// let left = maps.list(&ListOptions::default(), &stop)?.items;
    /// assert_eq!(left.iter().map(|map| map.name()).collect::<Vec<_>>(), ["b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`is_method_not_allowed`](Error::is_method_not_allowed) error if the kind does
    /// not support this operation, and an [`is_bad_request`](Error::is_bad_request) error if a
    /// selector is invalid. A [shard selector](ListOptions::shard_selector) is rejected, because
    /// some servers ignore it.
    pub fn delete_collection(
        &self,
        options: &DeleteOptions,
        which: &ListOptions,
        stop: &Stop,
    ) -> Result<(), Error> {
        self.with_context("delete all", "", || {
            if which.shard_selector.is_some() {
                return Err(Error::other(
                    "a shard selector is not allowed: a server without sharding would delete the objects of all shards",
                ));
            }
            let request = Request::delete(self.collection()?).raw_query(&which.to_query());
            // The server responds with a list of the deleted objects.
            let accept = if self.accept == PARTIAL {
                PARTIAL_LIST
            } else {
                self.accept
            };
            let request = request.json(&self.delete_body(options)?)?.accept(accept);
            let sent = self.send(request, stop);
            sent.map_err(|error| with_selectors(error, which))
        })
    }

    /// Serializes the options. A dry run is added to this body, because servers ignore a dry run in
    /// the query if a deletion has a body.
    pub(super) fn delete_body(&self, options: &DeleteOptions) -> Result<Value, Error> {
        let mut body = serde_json::to_value(options)
            .map_err(|_| Error::other("the options can't be serialized as JSON"))?;
        if self.options.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        Ok(body)
    }

    /// Sends the deletion of an object.
    fn send_delete(&self, name: &str, request: Request, stop: &Stop) -> Result<(), Error> {
        let Some(observer) = self.observer() else {
            return self.send(request, stop);
        };
        let report = observer.before_write(&self.resource, &self.target(name));
        let response = self.request(&request, stop);
        let response = response.and_then(|response| response.bytes());
        report_deletion(report, name, &response);
        response.map(drop)
    }

    /// Sends a write whose response does not contain the object. A cache shows its effect only as a
    /// change of the object.
    pub(super) fn write_unseen<R>(
        &self,
        name: &str,
        send: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Some(observer) = self.observer() else {
            return send();
        };
        let report = observer.before_write(&self.resource, &self.target(name));
        let sent = send();
        if sent.as_ref().err().is_none_or(Error::is_outcome_unknown) {
            report(WriteOutcome::Unknown);
        }
        sent
    }

    /// Sends a request and ignores the body of the response. Depending on the kind, the body is the
    /// object, a list or a `Status`.
    pub(super) fn send(&self, request: Request, stop: &Stop) -> Result<(), Error> {
        // Read to the end, so that the connection can be reused.
        self.request(&request, stop)?.discard()
    }
}
