//! An HTTP client for the API server, and where its configuration comes from.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`Client`] | connections, credentials, limits; shared by its clones | `rest.RESTClient`, clientsets |
//! | [`Config`] | server, certificates, credentials, timeouts, rate limit | `rest.Config` |
//! | `Kubeconfig`, `KubeconfigOptions` | kubeconfig files (feature `kubeconfig`) | `clientcmd` |
//! | [`ExecConfig`] | credentials from a plugin | `clientcmdapi.ExecConfig` |
//! | [`Impersonation`] | requests on behalf of another user | `rest.ImpersonationConfig` |
//! | [`Request`], [`Response`] | any request | `rest.Request` |
//! | [`api`] | objects: read, write, list, watch | typed, dynamic and metadata clients |
//! | [`discovery`] | what the server serves | `discovery`, `restmapper` |
//!
//! ```
//! use k8s_informer::client::Request;
//! use k8s_informer::testing::ApiServer;
//! use k8s_informer::{Client, Config, Stop};
//!
//! let server = ApiServer::start()?;
//! let client = Client::new(Config::new(server.url()))?;
//! let version: serde_json::Value = client.request(&Request::get("/version"), &Stop::new())?.json()?;
//! assert_eq!(version["major"], "1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api;
mod auth;
mod config;
mod connections;
mod content_encoding;
mod credential_data;
pub mod discovery;
mod error;
mod exchange;
mod policy;
mod request;
mod resource;
mod response;
mod response_checks;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::HeaderValue;

#[doc(hidden)]
pub use auth::exec::exec_credential;
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
use self::resource::ResourceListerWatcher;
use crate::error::Error;
use crate::object::{DynamicObject, GroupVersionResource, Object, PartialObjectMetadata, Resource};
use crate::reflector::ListerWatcher;
use crate::stop::Stop;

/// A connection to an API server: opened when needed, kept for the next request, shared by all clones.
///
/// Every request blocks the thread that makes it, and its [`Stop`] ends it at once, whatever it waits for. A
/// client starts no threads, but for what can't be interrupted, on threads that nobody waits for: to resolve
/// a name, to wait for the end of a [plugin](crate::client::ExecConfig) that was killed, and, on systems other than
/// Unix, to read what a plugin says.
///
/// Files that its [`Config`] names (tokens, certificates, authorities) are read for every request: a change
/// counts from the next one on, and what is under way goes on. client-go's `rest.RESTClient`, and what the
/// clientsets are made of.
///
/// No log of this crate holds a secret. At `trace` the library below it does: `ureq_proto` writes down all
/// that it sends and receives, tokens and bodies too. If you log everything, leave that target at `debug`; the
/// first request logs a warning otherwise.
///
/// ```no_run
/// use k8s_informer::{Client, Stop};
/// use k8s_informer::client::Request;
///
/// let client = Client::try_default()?; // $KUBECONFIG, ~/.kube/config, in-cluster
/// let version: serde_json::Value = client.request(&Request::get("/version"), &Stop::new())?.json()?;
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
    /// Without a slash at its end.
    server: String,
    default_namespace: String,
    auth: Auth,
    user_agent: HeaderValue,
    connect_timeout: Option<Duration>,
    response_timeout: Option<Duration>,
    /// Whether lists are asked for compressed.
    gzip: bool,
    policy: Arc<Policy>,
    discovery: discovery::Cache,
}

impl Client {
    /// A client for what kubectl would use, see [`Config::try_default`].
    ///
    /// # Errors
    ///
    /// As [`Config::try_default`] and [`Client::new`].
    pub fn try_default() -> Result<Self, Error> {
        Self::new(Config::try_default()?)
    }

    /// Checks a configuration, reads the files that it names, and makes a client for it. Nothing is connected
    /// yet.
    ///
    /// # Errors
    ///
    /// The URL, a certificate, a key or a token can't be used; [`Error::is_config`].
    pub fn new(config: Config) -> Result<Self, Error> {
        let server = server_url(&config)?;
        let user_agent =
            HeaderValue::from_str(&config.user_agent.clone().unwrap_or_else(default_user_agent))
                .map_err(|_| {
                    config_error("the user agent holds characters that a header can't have")
                })?;
        if server.scheme_str() == Some("http")
            && config.authenticates()
            && !config.stays_on_this_machine()
        {
            log::warn!(
                "the credentials for {server} are sent WITHOUT TLS: anyone in between can read and use them"
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
                discovery: discovery::Cache::default(),
            }),
        })
    }

    /// The server's URL, without a slash at its end.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// The namespace of the kubeconfig's context or of the pod; `default` if it has none.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Makes a request. Blocks until the head of the answer is there.
    ///
    /// It is sent again only where that is sure to do no harm, or the server asks for it:
    ///
    /// - a GET that finds its pooled connection just closed by the server, on a new one;
    /// - after a 401, once, if there are other credentials by then: a file has changed, or a plugin gives
    ///   others;
    /// - after 429, or 5xx with a `Retry-After`, as often as [`Request::retries`] says, each time after the
    ///   time that the server asks for. One that is longer than the client's
    ///   [`response_timeout`](Config::response_timeout) is not waited for.
    ///
    /// Each time it first waits for the [rate limit](Config::rate_limit), if there is one. What the server
    /// warns of is [passed on or logged](Config::on_warning).
    ///
    /// # Errors
    ///
    /// What the server answered if that is not 2xx, or why there is no answer. See [`Error`]. A path with a
    /// segment `.` or `..`, also percent-encoded, is not sent: proxies resolve it to another path.
    pub fn request(&self, request: &Request, stop: &Stop) -> Result<Response, Error> {
        let context: Arc<str> =
            format!("{} {}{}", request.method, self.inner.server, request.path).into();
        let response = request
            .check_path()
            .and_then(|()| self.inner.request(request, stop, &context));
        response.map_err(|error| error.context(context.to_string()))
    }

    /// Lists and watches a resource, in one namespace or (`None`) in all of them: for a
    /// [`Reflector`](crate::reflector::Reflector) or a single informer. client-go's `NewListWatchFromClient`.
    ///
    /// For the metadata alone, see
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

    /// Reads and writes the objects of a type in a namespace; `None` for kinds that don't live in one, and to
    /// list and watch those of all namespaces.
    pub fn api<T: Resource>(&self, namespace: Option<&str>) -> Api<T> {
        Api::typed(self.clone(), namespace)
    }

    /// Reads and writes objects of a resource that is known only at run time, in a namespace; `None` for
    /// kinds that don't live in one, and to list and watch those of all namespaces.
    /// [`discover`](Self::discover) finds the resource by its name.
    pub fn dynamic_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        self.dynamic_api_as(resource, namespace)
    }

    /// As [`dynamic_api`](Self::dynamic_api), of a type that says neither where its objects are nor of what
    /// kind they have to be: a custom struct with the fields that you need.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, ObjectMeta, Stop, impl_object};
    /// use k8s_informer::object::GroupVersionResource;
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
    /// let default = client.dynamic_api_as::<Named>(&namespaces, None).get("default", &Stop::new())?;
    /// assert_eq!((&*default.kind, &*default.metadata.name), ("Namespace", "default"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dynamic_api_as<T: Object>(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<T> {
        Api::dynamic(self.clone(), resource, namespace)
    }

    /// Reads the metadata of a resource's objects, and nothing else of them, in a namespace; `None` for kinds
    /// that don't live in one, and to list and watch those of all namespaces. They can be patched and
    /// deleted, but not replaced.
    pub fn metadata_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<PartialObjectMetadata> {
        Api::metadata(self.clone(), resource, namespace)
    }
}

/// `k8s-informer/VERSION (os/arch)`.
fn default_user_agent() -> String {
    use std::env::consts::{ARCH, OS};
    format!("k8s-informer/{} ({OS}/{ARCH})", env!("CARGO_PKG_VERSION"))
}

/// Without any credential.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server())
            .field("default_namespace", &self.default_namespace())
            .finish_non_exhaustive()
    }
}
