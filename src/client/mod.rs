//! A blocking HTTP client for the API server, and its configuration.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`Client`] | connections, credentials and limits; shared by its clones | `rest.RESTClient`, clientsets |
//! | [`Config`] | server, certificates, credentials, timeouts, rate limit | `rest.Config` |
//! | `Kubeconfig`, `KubeconfigOptions` | kubeconfig files (feature `kubeconfig`) | `clientcmd` |
//! | [`ExecConfig`] | credentials from a plugin | `clientcmdapi.ExecConfig` |
//! | [`Impersonation`] | requests on behalf of another user | `rest.ImpersonationConfig` |
//! | [`Request`], [`Response`] | any HTTP request | `rest.Request` |
//! | [`api`] | read, write, list and watch objects | typed, dynamic and metadata clients |
//! | [`crds`] | installs CustomResourceDefinitions | `envtest.InstallCRDs` |
//! | [`discovery`] | the groups, versions and resources of a server | `discovery`, `restmapper` |
//!
//! ```
//! use k8s_informer::client::Request;
//! use k8s_informer::{Client, Config, Stop};
//! use k8s_informer_testing::ApiServer;
//!
//! let server = ApiServer::start()?;
//! let client = Client::new(Config::new(server.url()))?;
//! let version: serde_json::Value = client.request(&Request::get("/version"), &Stop::never())?.json()?;
//! assert_eq!(version["major"], "1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api;
pub(crate) mod auth;
mod condition;
mod config;
mod connections;
mod content_encoding;
pub mod crds;
mod credential_data;
pub mod discovery;
mod error;
mod exchange;
mod policy;
mod request;
mod resource;
mod response;
mod response_checks;
pub(crate) mod transport;
mod wait;
#[cfg(feature = "kubeconfig")]
mod yaml;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::HeaderValue;

pub use config::{Config, ExecConfig, Impersonation, InteractiveMode};
#[cfg(feature = "kubeconfig")]
pub use config::{Kubeconfig, KubeconfigOptions};
pub use policy::Warning;
pub use request::Request;
pub use response::Response;

use self::api::Api;
use self::auth::Auth;
use self::config::server_url;
use self::connections::Connections;
use self::credential_data::config_error;
use self::policy::Policy;
use self::resource::{JSON, PARTIAL, ResourceListerWatcher};
use crate::base::derive::{debug_fields, unwind_safe};
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::log;
use crate::object::{DynamicObject, GroupVersionResource, Object, PartialObjectMetadata, Resource};
use crate::reflector::ListerWatcher;
use crate::stop::Stop;

/// A client for one API server.
///
/// It opens connections when they are needed and reuses them for later requests. It is cheap to
/// clone; all clones share their connections, credentials, limits and discovery cache. The
/// client-go counterpart is `rest.RESTClient`, on which the clientsets are built.
///
/// Every request blocks the calling thread. Its [`Stop`] ends it immediately, even while it waits
/// for the network. The client has no permanent background threads. Operations that cannot be
/// interrupted run on detached threads, which end with the operation: resolving a host name,
/// waiting for the exit of a killed [plugin](crate::client::ExecConfig) and, on systems other than
/// Unix, reading the output of a plugin.
///
/// The client reads the files named in its [`Config`] (tokens, certificates, certificate
/// authorities) for every request. A changed file takes effect with the next request; requests in
/// progress are not affected.
///
/// This crate never logs secrets, but its HTTP library does: at level `trace`, the log target
/// `ureq_proto` of that library contains every byte that is sent and received, including tokens and
/// bodies. If you enable `trace` globally, set this target to `debug`. Otherwise the first request
/// logs a warning.
///
/// ```no_run
/// use k8s_informer::{Client, Stop};
/// use k8s_informer::client::Request;
///
/// let client = Client::try_default()?; // $KUBECONFIG, ~/.kube/config, in-cluster
/// let version: serde_json::Value = client.request(&Request::get("/version"), &Stop::never())?.json()?;
/// println!("{} is {}", client.server(), version["gitVersion"]);
/// # Ok::<(), k8s_informer::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "RESTClient")]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    connections: Connections,
    /// The URL of the server, without a trailing slash.
    server: String,
    default_namespace: String,
    auth: Auth,
    user_agent: HeaderValue,
    connect_timeout: Option<Duration>,
    response_timeout: Option<Duration>,
    /// Whether lists are requested with gzip compression.
    gzip: bool,
    policy: Arc<Policy>,
    discovery: Mutex<discovery::Cache>,
}

impl Client {
    /// Creates a client with the default configuration. See [`Config::try_default`].
    ///
    /// # Errors
    ///
    /// The errors of [`Config::try_default`] and [`Client::new`].
    pub fn try_default() -> Result<Self, Error> {
        Self::new(Config::try_default()?)
    }

    /// Validates the configuration, reads the files named in it, and creates a client. It does not
    /// connect to the server yet.
    ///
    /// # Errors
    ///
    /// Returns an error ([`is_config`](Error::is_config)) if the URL, a certificate, a key or a
    /// token is not usable.
    pub fn new(config: Config) -> Result<Self, Error> {
        let server = server_url(&config)?;
        let user_agent =
            HeaderValue::from_str(&config.user_agent.clone().unwrap_or_else(default_user_agent))
                .map_err(|_| {
                    config_error(
                        "the user agent contains characters that are not allowed in a header",
                    )
                })?;
        if server.scheme_str() == Some("http")
            && config.has_credentials()
            && !config.server_is_local()
        {
            log::warn!(
                "the credentials for {server} are sent WITHOUT TLS: anyone on the network path can read and use them"
            );
        }
        Ok(Self {
            inner: Arc::new(Inner {
                connections: Connections::new(&config, &server)?,
                server: server.to_string().trim_end_matches('/').to_owned(),
                auth: Auth::new(&config)?,
                user_agent,
                default_namespace: config.default_namespace,
                connect_timeout: config.connect_timeout,
                response_timeout: config.response_timeout,
                gzip: cfg!(feature = "gzip") && config.compression,
                policy: Arc::new(Policy::new(config.policy, &server)?),
                discovery: Mutex::default(),
            }),
        })
    }

    /// Returns the URL of the server, without a trailing slash.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Returns the namespace of the [`Config`]: the one set in code, that of the kubeconfig's
    /// context, or that of the pod. If there is none, returns `default`.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Sends a request. Blocks until the head of the response has arrived.
    ///
    /// The client resends a request only if this is safe or if the server requests it:
    ///
    /// - A GET is resent on a new connection if the server has just closed the pooled one.
    /// - After a 401, the request is resent once, if different credentials are available: because a
    ///   file has changed, or because a plugin returned other credentials.
    /// - After a 429 or 5xx with a retry delay, the request is resent after that delay, up to the
    ///   number of times set by [`Request::retries`]. The delay is the `Retry-After` header or part
    ///   of the `Status`. If it is longer than the [`response_timeout`](Request::response_timeout)
    ///   of the request, or than ten minutes, the error is returned immediately.
    ///
    /// Each attempt waits for the [rate limit](Config::rate_limit) first, if there is one. Warnings
    /// of the server are passed to the handler set by [`Config::on_warning`], or logged.
    ///
    /// # Errors
    ///
    /// Returns the error of the server if the status is not 2xx, or the reason why there is no
    /// response. See [`Error`]. A request whose path has a segment `.` or `..`, also if
    /// percent-encoded, is not sent and returns an error, because proxies would change the path.
    pub fn request(&self, request: &Request, stop: &Stop) -> Result<Response, Error> {
        let context: Arc<str> =
            format!("{} {}{}", request.method, self.inner.server, request.path).into();
        let response = request
            .check_path()
            .and_then(|()| self.inner.request(request, stop, &context));
        response.map_err(|error| error.context(context.to_string()))
    }

    /// Returns a lister-watcher for a resource in one namespace, or in all namespaces with `None`.
    /// Use it with a [`Reflector`](crate::reflector::Reflector) or a single informer. The client-go
    /// counterpart is `NewListWatchFromClient`.
    ///
    /// To list and watch only the metadata, use
    /// [`metadata_lister_watcher`](crate::reflector::ListerWatcherSource::metadata_lister_watcher).
    #[doc(alias = "NewListWatchFromClient")]
    pub fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(ResourceListerWatcher::new(
            self.clone(),
            resource,
            namespace,
        ))
    }

    /// Returns an [`Api`] for the objects of type `T` in a namespace.
    ///
    /// Pass `None` for cluster-scoped kinds, or to list and watch the objects of all namespaces.
    pub fn api<T: Resource>(&self, namespace: Option<&str>) -> Api<T> {
        Api::typed(self.clone(), namespace)
    }

    /// Returns an [`Api`] for a resource that is known only at run time.
    ///
    /// Pass `None` as the namespace for cluster-scoped resources, or to list and watch the objects
    /// of all namespaces. To find a resource by its name, use [`discover`](Self::discover).
    pub fn dynamic_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        self.dynamic_api_as(resource, namespace)
    }

    /// Like [`dynamic_api`](Self::dynamic_api), but decodes the objects into a type of your choice:
    /// for example a custom struct with only the fields that you need.
    ///
    /// The path depends only on `resource`, and objects of any kind are accepted. If `T` implements
    /// [`Resource`], that implementation is ignored.
    ///
    /// ```
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer::{Client, Config, ObjectMeta, Stop, impl_object};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Named {
    ///     metadata: ObjectMeta,
    ///     kind: String,
    /// }
    /// impl_object!(Named, "v1", "Namespace", "namespaces", Cluster);
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    /// let default = client.dynamic_api_as::<Named>(&namespaces, None).get("default", &Stop::never())?;
    /// assert_eq!((&*default.kind, &*default.metadata.name), ("Namespace", "default"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dynamic_api_as<T: Object>(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<T> {
        Api::new(self.clone(), resource.clone(), namespace, JSON)
    }

    /// Returns an [`Api`] that reads only the metadata of objects.
    ///
    /// Pass `None` as the namespace for cluster-scoped resources, or to list and watch the objects
    /// of all namespaces. The objects can be patched and deleted, but not replaced.
    pub fn metadata_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<PartialObjectMetadata> {
        Api::new(self.clone(), resource.clone(), namespace, PARTIAL)
    }
}

/// Returns the user agent as client-go does. API servers take what precedes the first `/` as the
/// field manager.
fn default_user_agent() -> String {
    use std::env::consts::{ARCH, OS};
    let program = base_name(&std::env::args_os().next().unwrap_or_default());
    let version = env!("CARGO_PKG_VERSION");
    format!("{program}/{version} ({OS}/{ARCH}) k8s-informer")
}

/// Returns the file name of a program, without control characters, and not longer than the name of
/// a field manager may be.
fn base_name(program: &OsStr) -> String {
    const LIMIT: usize = 128;
    let name = Path::new(program).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let mut base = String::new();
    for c in name.trim().chars().filter(|c| !c.is_control()) {
        if base.len() + c.len_utf8() > LIMIT {
            break;
        }
        base.push(c);
    }
    if base.is_empty() {
        base.push_str("unknown");
    }
    base
}

// The credentials are omitted.
unwind_safe!(Client);

debug_fields!(Client, this,
    server: this.server(),
    default_namespace: this.default_namespace()
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_name_of_a_program_fits_into_a_header() {
        for (program, name) in [
            ("/usr/bin/gadget-operator", "gadget-operator"),
            ("./prögräm 1", "prögräm 1"),
            ("a\u{7f}b\nc\u{85}", "abc"),
            ("", "unknown"),
            ("/", "unknown"),
            ("\n", "unknown"),
            (" \u{a0} ", "unknown"),
        ] {
            assert_eq!(base_name(OsStr::new(program)), name);
            assert!(HeaderValue::from_str(name).is_ok(), "{name:?}");
        }
        let long = "ä".repeat(100);
        assert_eq!(base_name(OsStr::new(&long)).len(), 128);
        assert_eq!(base_name(OsStr::new(&format!("a{long}"))).len(), 127);
    }
}
