//! Operations that only Pods support: evictions and logs.

use serde_json::json;

use super::{Api, DeleteOptions};
use crate::client::Request;
use crate::error::Error;
use crate::reflector::Body;
use crate::stop::Stop;

/// Options for [`Api::logs`]: the part of `v1.PodLogOptions` that programs use.
///
/// The default returns the complete log of the only container of the pod.
///
/// ```
/// use k8s_informer::client::api::LogOptions;
///
/// let mut options = LogOptions::default();
/// options.container = Some("app".to_owned());
/// options.tail_lines = Some(100);
/// options.follow = true;
/// assert!(!options.previous);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// The name of the container. Required if the pod has several containers.
    pub container: Option<String>,
    /// Whether to wait for new lines at the end of the log, until the container ends.
    pub follow: bool,
    /// Whether to read the log of the previous run of the container.
    pub previous: bool,
    /// Returns only this number of lines, from the end of the log.
    pub tail_lines: Option<u32>,
}

impl LogOptions {
    fn add_to(&self, mut request: Request) -> Request {
        // Destructured, so that the compiler reports a new field that is not handled here.
        let Self {
            container,
            follow,
            previous,
            tail_lines,
        } = self;
        if let Some(container) = container {
            request = request.query("container", container);
        }
        for (name, flag) in [("follow", follow), ("previous", previous)] {
            if *flag {
                request = request.query(name, "true");
            }
        }
        if let Some(lines) = tail_lines {
            request = request.query("tailLines", &lines.to_string());
        }
        request
    }
}

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
    /// let (pods, stop) = (client.api::<Pod>(Some("default")), Stop::new());
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
            self.check_pods("can be evicted")?;
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

    /// Reads the log of a container, as the bytes that it wrote. The client-go counterpart is
    /// `GetLogs`.
    ///
    /// This call blocks until the head of the response has arrived. The returned body implements
    /// [`Read`](std::io::Read). With [`follow`](LogOptions::follow), a read blocks until the
    /// container writes something or the [`Stop`] is set. Otherwise it blocks for at most the
    /// client's [`response_timeout`](crate::Config::response_timeout).
    ///
    /// ```no_run
    /// use k8s_informer::{Client, Stop};
    /// use k8s_informer::client::api::LogOptions;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use std::io::{BufRead, BufReader};
    ///
    /// let (client, stop) = (Client::try_default()?, Stop::new());
    /// let mut options = LogOptions::default();
    /// options.follow = true;
    /// options.tail_lines = Some(10);
    /// let log = client.api::<Pod>(Some("default")).logs("web-0", &options, &stop)?;
    /// for line in BufReader::new(log).lines() {
    ///     println!("{}", line?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if the pod does not exist. Returns an
    /// [`is_bad_request`](Error::is_bad_request) error if the pod has several containers and you
    /// have not named one, or if the container has not started. Resources other than pods are
    /// rejected.
    pub fn logs(&self, name: &str, options: &LogOptions, stop: &Stop) -> Result<Body, Error> {
        let log = self.view::<T>(None, Some("log".into()));
        log.with_context("get", name, || {
            self.check_pods("have logs")?;
            let request = options.add_to(Request::get(log.path_of(name)?));
            let mut request = request.accept("application/json, */*");
            if options.follow {
                request = request.idle_timeout(None);
            }
            Ok(self.request(&request, stop)?.into_body())
        })
    }

    fn check_pods(&self, what: &str) -> Result<(), Error> {
        match (&*self.resource.group, &*self.resource.resource) {
            ("", "pods") => Ok(()),
            _ => Err(Error::other(format!("only pods {what}"))),
        }
    }
}
