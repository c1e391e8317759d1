//! The operation that only Pods support: evictions.

use serde_json::json;

use super::{Api, DeleteOptions};
use crate::client::Request;
use crate::error::Error;
use crate::stop::Stop;

impl<T> Api<T> {
    /// Evicts a pod: deletes it, unless a PodDisruptionBudget forbids that. A node drain uses
    /// evictions. The client-go counterpart is `EvictV1`.
    ///
    /// ```
    /// use k8s_informer::client::api::DeleteOptions;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::{ApiServer, Fault};
    /// use k8s_openapi::api::core::v1::Pod;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (pods, stop) = (client.api::<Pod>(Some("default")), Stop::never());
    /// server.create("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "a"}}))?;
    ///
    /// // As if a budget forbade the eviction.
    /// server.fail_next(Fault::status(429));
    /// let error = pods.evict("a", &DeleteOptions::default(), &stop).unwrap_err();
    /// assert!(error.is_too_many_requests());
    ///
    /// pods.evict("a", &DeleteOptions::default(), &stop)?;
    /// assert!(pods.get("a", &stop).unwrap_err().is_not_found());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`is_too_many_requests`](Error::is_too_many_requests) error if a budget forbids
    /// the eviction now. The client does not retry in this case, because the budget can forbid it
    /// for a long time; the caller decides when to retry.
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if the pod does not exist, and an
    /// [`is_conflict`](Error::is_conflict) error if it does not match the preconditions. Resources
    /// other than pods are rejected.
    pub fn evict(&self, name: &str, options: &DeleteOptions, stop: &Stop) -> Result<(), Error> {
        self.with_context("evict", name, || {
            if (&*self.resource.group, &*self.resource.resource) != ("", "pods") {
                return Err(Error::other("only pods can be evicted"));
            }
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": self.namespace()},
                "deleteOptions": options,
            });
            // No retries: a 429 from a disruption budget does not mean that the server is busy.
            let request = Request::post(
                self.view::<T>(None, Some("eviction".into()))
                    .path_of(name)?,
            )
            .json(&eviction)?
            .retries(0);
            let request = self.options.add_to(request);
            self.write_unseen(name, || self.send(request, stop))
        })
    }
}
