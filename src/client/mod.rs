//! Talks to an API server: configuration, credentials, TLS, and HTTP/1.1 over sockets that a [`Stop`] can
//! end.

mod answer;
mod api;
mod auth;
mod config;
mod failure;
mod material;
mod request;
mod resource;
mod response;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{self, HeaderValue, Method, Uri, header};

pub use api::{Api, DeleteOptions, Fetched, Patch, PropagationPolicy, StatusApi, retry_on_conflict};
pub use config::Config;
pub use request::Request;
pub use resource::ResourceListerWatcher;
pub use response::Response;

use self::auth::Auth;
use self::material::{Secret, config_error};
use self::response::Incoming;
use self::transport::cancel::Running;
use self::transport::proxy::Proxy;
use self::transport::{deadline, tls};
use crate::error::Error;
use crate::object::{DynamicObject, GroupVersionResource, PartialObjectMetadata, Resource};
use crate::stop::Stop;

/// A connection to an API server: opened when needed, kept for the next request, shared by all clones.
///
/// Every request blocks the thread that makes it, and its [`Stop`] ends it at once, whatever it waits for. A
/// client starts no threads, but for name resolution, which can't be interrupted and so runs on a thread that
/// nobody waits for.
///
/// ```no_run
/// use k8s_informer::{Client, Request, Stop};
///
/// let client = Client::try_default()?; // $KUBECONFIG, ~/.kube/config, in-cluster
/// let version: serde_json::Value = client.request(&Request::get("/version"), &Stop::new())?.json()?;
/// println!("{} is {}", client.server(), version["gitVersion"]);
/// # Ok::<(), k8s_informer::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    agent: Agent,
    /// Without a slash at its end.
    server: String,
    default_namespace: String,
    auth: Auth,
    user_agent: HeaderValue,
    connect_timeout: Option<Duration>,
    response_timeout: Option<Duration>,
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
        let is_https = server.scheme() == Some(&http::uri::Scheme::HTTPS);
        let tls = match server.host() {
            Some(host) if is_https => Some(tls::tls(&config, host)?),
            _ => None,
        };
        let proxy = match &config.proxy_url {
            Some(Secret(url)) => Some(Proxy::parse(url)?),
            None => Proxy::from_environment(&server, |name| std::env::var(name).ok())?,
        };
        let proxy = proxy.map(|proxy| proxy.secured(&config)).transpose()?;
        if !is_https && config.client_certificate.is_some() {
            return Err(config_error("a client certificate needs an https server"));
        }
        let user_agent = HeaderValue::from_str(&config.user_agent.clone().unwrap_or_else(default_user_agent))
            .map_err(|_| config_error("the user agent holds characters that a header can't have"))?;
        Ok(Self {
            inner: Arc::new(Inner {
                agent: transport::agent(tls, proxy),
                server: server.to_string().trim_end_matches('/').to_owned(),
                auth: Auth::new(&config)?,
                user_agent,
                default_namespace: config.default_namespace,
                connect_timeout: config.connect_timeout,
                response_timeout: config.response_timeout,
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
    /// One that finds its pooled connection just closed by the server is tried again on a new one if it is a
    /// GET; nothing else is ever sent twice.
    ///
    /// # Errors
    ///
    /// What the server answered if that is not 2xx, or why there is no answer. See [`Error`].
    pub fn request(&self, request: &Request, stop: &Stop) -> Result<Response, Error> {
        let context: Arc<str> = format!("{} {}{}", request.method, self.inner.server, request.path).into();
        match self.send(request, stop, &context) {
            Ok(response) => Ok(response),
            Err(error) => Err(error.context(context.to_string())),
        }
    }

    /// Lists and watches a resource that is known only at run time; in all namespaces if `None`.
    pub fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> ResourceListerWatcher {
        ResourceListerWatcher::new(self.clone(), resource, namespace)
    }

    /// Lists and watches the objects of a type; in all namespaces if `None`.
    pub fn lister_watcher_of<T: Resource>(&self, namespace: Option<&str>) -> ResourceListerWatcher {
        self.lister_watcher(&T::group_version_resource(), namespace)
    }

    /// Lists and watches the metadata of a resource's objects, and nothing else of them; in all namespaces if
    /// `None`.
    pub fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> ResourceListerWatcher {
        self.lister_watcher(resource, namespace).metadata_only()
    }

    /// Reads and writes the objects of a type in a namespace; `None` for kinds that don't live in one.
    pub fn api<T: Resource>(&self, namespace: Option<&str>) -> Api<T> {
        Api::typed(self.clone(), namespace)
    }

    /// Reads and writes objects of a resource that is known only at run time, in a namespace; `None` for
    /// kinds that don't live in one.
    pub fn dynamic_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        Api::dynamic(self.clone(), resource, namespace)
    }

    /// Reads the metadata of a resource's objects, and nothing else of them, in a namespace; `None` for kinds
    /// that don't live in one. They can be patched and deleted, but not replaced.
    pub fn metadata_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<PartialObjectMetadata> {
        Api::metadata(self.clone(), resource, namespace)
    }

    fn send(&self, request: &Request, stop: &Stop, context: &Arc<str>) -> Result<Response, Error> {
        let mut fresh = false;
        let (answer, running) = loop {
            if stop.is_stopped() {
                return Err(Error::stopped());
            }
            let running = Running::begin(stop, fresh);
            match running.enter(|| self.run(request)) {
                Ok(answer) => break (answer, running),
                Err(_) if stop.is_stopped() => return Err(Error::stopped()),
                Err(Failure::Ureq(error)) => {
                    let again = !fresh && request.method == Method::GET && running.reused();
                    if !(again && failure::is_broken_connection(&error)) {
                        return Err(failure::from_ureq(error));
                    }
                    fresh = true;
                }
                Err(Failure::Ours(error)) => return Err(error),
            }
        };
        let (head, body) = answer.into_parts();
        answer::check_framing(&head.headers)?;
        let status = head.status.as_u16();
        let idle = request.idle_timeout.unwrap_or(self.inner.response_timeout);
        let body = Incoming::new(body, running, stop.clone(), context.clone(), idle);
        if head.status.is_success() {
            return Ok(Response { status, headers: head.headers, body });
        }
        // All of it together: what comes of it is an answer to the request.
        let limit = self.response_timeout(request);
        let error = deadline::within(limit, || failure::from_answer(status, &head.headers, body));
        Err(if stop.is_stopped() { Error::stopped() } else { error })
    }

    fn run(&self, request: &Request) -> Result<http::Response<ureq::Body>, Failure> {
        let inner = &*self.inner;
        let value = |text: &str, name: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| config_error(format!("{name} holds characters that a header can't have")))
        };
        let separator = if request.query.is_empty() { "" } else { "?" };
        let uri: Uri = format!("{}{}{separator}{}", inner.server, request.path, request.query)
            .parse()
            .map_err(|_| config_error("the path does not make a URL"))?;

        let mut head = http::Request::builder()
            .method(&request.method)
            .uri(uri)
            .header(header::ACCEPT, value(&request.accept, "accept")?)
            .header(header::USER_AGENT, &inner.user_agent);
        if let Some(authorization) = inner.auth.header() {
            head = head.header(header::AUTHORIZATION, authorization);
        }
        let needs_body = [Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
        let body = match &request.body {
            None if needs_body => Some(&[][..]),
            body => body.as_deref(),
        };
        match body {
            None => {
                let request = self.limited(head.body(()).map_err(ureq::Error::from)?, request);
                Ok(inner.agent.run(request)?)
            }
            Some(body) => {
                let head = head.header(header::CONTENT_TYPE, value(&request.content_type, "content type")?);
                let request = self.limited(head.body(body).map_err(ureq::Error::from)?, request);
                Ok(inner.agent.run(request)?)
            }
        }
    }

    fn response_timeout(&self, request: &Request) -> Option<Duration> {
        request.response_timeout.unwrap_or(self.inner.response_timeout)
    }

    /// With the time limits up to the head of the answer. Never a limit for the whole: lists are long, and
    /// watches have no end; the limit for a read of the body is [`Incoming`]'s.
    fn limited<B: ureq::AsSendBody>(&self, http: http::Request<B>, request: &Request) -> http::Request<B> {
        /// A limit beyond this is none; much more would overflow a point in time.
        const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        let below = |limit: Option<Duration>| limit.filter(|limit| *limit < LONG);
        let response = below(self.response_timeout(request));
        self.inner
            .agent
            .configure_request(http)
            .timeout_connect(below(self.inner.connect_timeout))
            .timeout_send_request(response)
            .timeout_send_body(response)
            .timeout_recv_response(response)
            .build()
    }
}

/// `k8s-informer/VERSION (os/arch)`.
fn default_user_agent() -> String {
    use std::env::consts::{ARCH, OS};
    format!("k8s-informer/{} ({OS}/{ARCH})", env!("CARGO_PKG_VERSION"))
}

enum Failure {
    Ureq(ureq::Error),
    Ours(Error),
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Self {
        Self::Ureq(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

/// The server's URL with a scheme; refuses what would be ignored, and what would put a secret into messages.
fn server_url(config: &Config) -> Result<Uri, Error> {
    let given = config.server.trim();
    if given.is_empty() {
        return Err(config_error("no server is given"));
    }
    if given.contains('@') {
        return Err(config_error("the server's URL holds a user name or password, which is not supported"));
    }
    if given.contains(['?', '#']) {
        return Err(config_error("the server's URL has a query or a fragment, which is not supported"));
    }
    let url = match (given.contains("://"), config.mentions_tls()) {
        (true, _) => given.to_owned(),
        (false, true) => format!("https://{given}"),
        (false, false) => format!("http://{given}"),
    };
    let uri: Uri = url.parse().map_err(|_| config_error(format!("{given:?} is not a URL of a server")))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        _ => Err(config_error(format!("{given:?} is not an http or https URL of a server"))),
    }
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
