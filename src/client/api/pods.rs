//! What only Pods have: evictions and logs.

use serde_json::json;

use super::{Api, DeleteOptions, refused};
use crate::client::Request;
use crate::error::Error;
use crate::reflector::Body;
use crate::stop::Stop;

/// Which part of a container's log is wanted: `v1.PodLogOptions`. The default is all that there is, of the
/// pod's only container.
///
/// ```
/// use k8s_informer::client::api::LogOptions;
///
/// let mut options = LogOptions::default();
/// options.container = Some("app".to_owned());
/// options.tail_lines = Some(100);
/// options.follow = true;
/// assert!(!options.previous && options.limit_bytes.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// Whose log it is. A pod with several containers has to say it.
    pub container: Option<String>,
    /// Whether to wait for more at its end, until the container ends.
    pub follow: bool,
    /// The log of the container's last run instead of the present one.
    pub previous: bool,
    /// Only lines that are no older than so many seconds.
    pub since_seconds: Option<u32>,
    /// Only the last so many lines.
    pub tail_lines: Option<u32>,
    /// Whether each line begins with its time (RFC 3339).
    pub timestamps: bool,
    /// No more than so many bytes, which may end within a line.
    pub limit_bytes: Option<u64>,
}

impl LogOptions {
    fn add_to(&self, mut request: Request) -> Request {
        // Destructured so that a new field can't be forgotten.
        let Self {
            container,
            follow,
            previous,
            since_seconds,
            tail_lines,
            timestamps,
            limit_bytes,
        } = self;
        if let Some(container) = container {
            request = request.query("container", container);
        }
        for (name, flag) in [
            ("follow", follow),
            ("previous", previous),
            ("timestamps", timestamps),
        ] {
            if *flag {
                request = request.query(name, "true");
            }
        }
        let (since, tail) = (since_seconds.map(u64::from), tail_lines.map(u64::from));
        for (name, number) in [
            ("sinceSeconds", since),
            ("tailLines", tail),
            ("limitBytes", *limit_bytes),
        ] {
            if let Some(number) = number {
                request = request.query(name, &number.to_string());
            }
        }
        request
    }
}

impl<T> Api<T> {
    /// Deletes a pod unless a disruption budget speaks against it: what draining a node does. client-go's
    /// `EvictV1`.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::client::api::DeleteOptions;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (pods, stop) = (client.api::<Pod>(Some("default")), Stop::new());
    /// let pod = json!({"metadata": {"name": "a", "labels": {"app": "web"}}, "status": {"phase": "Running"}});
    /// server.create("/api/v1/namespaces/default/pods", pod)?;
    /// let budget = json!({
    ///     "metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
    ///     "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    /// });
    /// server.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)?;
    ///
    /// let error = pods.evict("a", &DeleteOptions::default(), &stop).unwrap_err();
    /// assert!(error.is_too_many_requests());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_many_requests`](Error::is_too_many_requests) if a budget does not allow it now: at once, as
    /// it may take long until it does, and when to try again is the caller's to say;
    /// [`is_not_found`](Error::is_not_found) if the pod is not there, [`is_conflict`](Error::is_conflict) if
    /// it is not as the preconditions have it. Other resources have no evictions.
    pub fn evict(&self, name: &str, options: &DeleteOptions, stop: &Stop) -> Result<(), Error> {
        self.about("evict", name, || {
            self.check_pods("evicted")?;
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": self.namespace()},
                "deleteOptions": options,
            });
            // Never again by itself, whatever a client does about 429: a budget that says no is no server
            // that is busy.
            let request = Request::post(
                self.view::<T>(None, Some("eviction".into()))
                    .path_of(name)?,
            )
            .json(&eviction)?
            .retries(0);
            self.done(self.options.add_to(request), stop)
        })
    }

    /// Reads the log of a pod's container, as the bytes that it wrote: blocks until the first of them can
    /// come. client-go's `GetLogs`.
    ///
    /// The body is a [`Read`](std::io::Read). With [`follow`](LogOptions::follow) a read waits for as long as
    /// the container has nothing to say, until the [`Stop`] is given; otherwise no longer than the client's
    /// [`response_timeout`](crate::Config::response_timeout).
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
    /// [`is_not_found`](Error::is_not_found) if the pod is not there;
    /// [`is_bad_request`](Error::is_bad_request) if it has several containers and none is named, or if the
    /// container has not started. Other resources have no logs.
    pub fn logs(&self, name: &str, options: &LogOptions, stop: &Stop) -> Result<Body, Error> {
        let log = self.view::<T>(None, Some("log".into()));
        log.about("get", name, || {
            self.check_pods("asked for their logs")?;
            let request = options.add_to(Request::get(log.path_of(name)?));
            let mut request = request.accept("application/json, */*");
            if options.follow {
                request = request.idle_timeout(None);
            }
            Ok(self.client.request(&request, stop)?.into_body())
        })
    }

    fn check_pods(&self, what: &str) -> Result<(), Error> {
        match (&*self.resource.group, &*self.resource.resource) {
            ("", "pods") => Ok(()),
            _ => Err(refused(format!("only pods can be {what}"))),
        }
    }
}
