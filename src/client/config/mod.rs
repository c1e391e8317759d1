//! Client configuration: built in code, or loaded from the places that kubectl uses.

mod environment;
mod exec;
mod impersonation;
mod infer;
#[cfg(feature = "kubeconfig")]
mod kubeconfig;
mod server_url;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::credential_data::{PemSource, Secret};
use super::policy::{self, Warning};
use crate::metrics::ClientMetrics;
use crate::time::{Clock, RateLimit};

pub use exec::{ExecConfig, InteractiveMode};
pub use impersonation::Impersonation;
#[cfg(feature = "kubeconfig")]
pub use kubeconfig::{Kubeconfig, KubeconfigOptions};
pub(super) use server_url::{ServerUrl, server_url};

/// The address of an API server and the settings for connecting to it.
///
/// Build a `Config` in code, or load it from a kubeconfig or from the service account of a pod.
/// [`Client::new`](crate::Client::new) validates it and reads the files named in it. The `Debug`
/// output contains no secrets. The client-go counterpart is `rest.Config`.
///
/// ```
/// use std::time::Duration;
/// use k8s_informer::{Client, Config};
///
/// let config = Config::new("http://127.0.0.1:8001")
///     .token("s3cret")
///     .default_namespace("team-a")
///     .connect_timeout(Duration::from_secs(5));
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let client = Client::new(config)?;
/// assert_eq!((client.server(), client.default_namespace()), ("http://127.0.0.1:8001", "team-a"));
/// # Ok::<(), k8s_informer::Error>(())
/// ```
// Its constructors that read files are in `infer` and `kubeconfig::options`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    pub(super) server: ServerUrl,
    pub(super) ca: Option<PemSource>,
    pub(super) client_certificate: Option<PemSource>,
    pub(super) client_key: Option<PemSource>,
    pub(super) token: Option<Secret>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) basic: Option<(String, Secret)>,
    /// The user of the kubeconfig, for messages.
    pub(super) user: Option<String>,
    pub(super) id_token: Option<IdToken>,
    pub(super) exec: Option<ExecConfig>,
    pub(super) impersonation: Option<Impersonation>,
    pub(super) proxy: ProxyChoice,
    pub(super) compression: bool,
    pub(super) insecure: bool,
    pub(super) tls_server_name: Option<TlsServerName>,
    pub(super) default_namespace: String,
    pub(super) user_agent: Option<String>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) response_timeout: Option<Duration>,
    pub(super) policy: policy::Settings,
}

/// The proxy to use for the connection to the server.
#[derive(Clone, Debug)]
pub(super) enum ProxyChoice {
    /// The proxy that the environment variables set for this server, if any.
    Environment,
    Direct,
    /// The URL may contain a password.
    Url(Secret),
}

/// A `tls-server-name`. `what` names it in messages: `tls-server-name of cluster "prod"`. `Debug`
/// shows only the name.
#[derive(Clone)]
pub(super) struct TlsServerName {
    pub(super) what: String,
    pub(super) name: String,
}

impl fmt::Debug for TlsServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// The id-token of an OIDC provider. `what` names it in messages: `the id-token of user "jane"`.
#[derive(Clone, Debug)]
pub(super) struct IdToken {
    pub(super) what: String,
    pub(super) token: Secret,
}

impl Config {
    /// The default time limit for opening a connection: 10 s. That is enough for three
    /// retransmissions of a lost SYN.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// The default [`response_timeout`](Self::response_timeout): 90 s. The API server itself times
    /// out a request after 60 s and responds with an error, which arrives before this limit.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

    /// The default size limit for a body that is read as a whole: 256 MiB, or some hundred thousand
    /// objects.
    pub const DEFAULT_BODY_LIMIT: u64 = 256 << 20;

    /// Returns a configuration for the server at this URL.
    ///
    /// The URL is `https://host:port` or `http://host:port`. It can end with a path, which is
    /// prepended to the path of every request.
    ///
    /// As in kubectl, a `host:port` without a scheme means `https` if a TLS setting, such as a CA
    /// or a client certificate, is present, and `http` otherwise. If credentials are sent to
    /// another machine without TLS, a warning is logged.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: ServerUrl(server.into()),
            ca: None,
            client_certificate: None,
            client_key: None,
            token: None,
            token_file: None,
            basic: None,
            user: None,
            id_token: None,
            exec: None,
            impersonation: None,
            proxy: ProxyChoice::Environment,
            compression: true,
            insecure: false,
            tls_server_name: None,
            default_namespace: "default".to_owned(),
            user_agent: None,
            connect_timeout: Some(Self::DEFAULT_CONNECT_TIMEOUT),
            response_timeout: Some(Self::DEFAULT_RESPONSE_TIMEOUT),
            policy: policy::Settings::new(Self::DEFAULT_BODY_LIMIT),
        }
    }

    /// Trusts only the certificates in this PEM text: the authorities sign others, and a server may
    /// present any of them itself. By default, the authorities of the system are trusted.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(PemSource::bytes("the CA", pem));
        self
    }

    /// Like [`ca_pem`](Self::ca_pem), with the certificates in this PEM file.
    /// [`Client::new`](crate::Client::new) reads the file, and the client reads it again for every
    /// request.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(PemSource::file("the CA", path));
        self
    }

    /// Authenticates with a client certificate (a chain, leaf first) and its key, both PEM.
    ///
    /// The key can be PKCS#8, PKCS#1 (RSA) or SEC1 (EC). The supported algorithms are RSA, P-256,
    /// P-384 and Ed25519.
    pub fn client_certificate_pem(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.client_certificate = Some(PemSource::bytes("the client certificate", chain));
        self.client_key = Some(PemSource::bytes("the client key", key));
        self
    }

    /// Authenticates with a client certificate and its key from PEM files. See
    /// [`client_certificate_pem`](Self::client_certificate_pem) for the formats.
    /// [`Client::new`](crate::Client::new) reads the files, and the client reads them again for
    /// every request.
    pub fn client_certificate_files(
        mut self,
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some(PemSource::file("the client certificate", chain));
        self.client_key = Some(PemSource::file("the client key", key));
        self
    }

    /// Authenticates with a bearer token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        (self.token, self.user) = (Some(Secret(token.into())), None);
        self
    }

    /// Authenticates with the bearer token in a file. The file is read for every request.
    ///
    /// The file has precedence over [`token`](Self::token), which is used only until the file has
    /// been read successfully once.
    ///
    /// ```
    /// use k8s_informer::client::Request;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::builder().token("second").start()?;
    /// let file = std::env::temp_dir().join(format!("k8s-informer-token-{}", std::process::id()));
    /// std::fs::write(&file, "first")?;
    /// let client = Client::new(Config::new(server.url()).token_file(&file))?;
    /// assert!(client.request(&Request::get("/version"), &Stop::never()).unwrap_err().is_unauthorized());
    /// std::fs::write(&file, "second")?; // Rotated, as by a kubelet.
    /// client.request(&Request::get("/version"), &Stop::never())?;
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Authenticates with a user name and a password (HTTP basic authentication).
    ///
    /// kube-apiserver no longer supports this, but a proxy in front of it may. A user name can't be
    /// combined with a token.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.basic = Some((user.into(), Secret(password.into())));
        self.user = None;
        self
    }

    /// Authenticates with the output of a credential plugin: a token, a client certificate, or
    /// both.
    ///
    /// As in client-go, the plugin is not run if a token, a token file, a user name or a client
    /// certificate is also set.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::client::{ExecConfig, Request};
    ///
    /// let plugin = ExecConfig::new("no-such-plugin").args(["get-token"]).install_hint("apt install it");
    /// let client = Client::new(Config::new("https://127.0.0.1:6443").exec(plugin))?; // Runs nothing yet.
    /// let error = client.request(&Request::get("/version"), &Stop::never()).unwrap_err();
    /// assert!(error.is_credentials() && error.to_string().ends_with("apt install it"), "{error}");
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn exec(mut self, plugin: ExecConfig) -> Self {
        self.exec = Some(plugin);
        self
    }

    /// Acts as another user, if the authenticated user has the permission to do so: kubectl's
    /// `--as`. [`Impersonation`] has an example.
    pub fn impersonate(mut self, impersonation: Impersonation) -> Self {
        self.impersonation = Some(impersonation);
        self
    }

    /// Connects through this proxy and ignores the proxy variables of the environment. In a
    /// kubeconfig, this is `proxy-url`.
    ///
    /// The URL is `http://`, `https://` or `socks5://host:port`. Put `user:password@` before the
    /// host if the proxy requires it. `socks5h://` is the same as `socks5://`: the proxy resolves
    /// names in both cases.
    ///
    /// By default, the client reads the environment when it is created, as Go programs do. It uses
    /// `HTTPS_PROXY` (or `HTTP_PROXY` for a server without TLS), unless `NO_PROXY` matches the
    /// server. It never uses these variables for a server on this machine.
    ///
    /// ```
    /// use k8s_informer::{Client, Config};
    ///
    /// let config = Config::new("https://api:6443").proxy_url("http://me:s3cret@proxy:3128");
    /// assert!(!format!("{config:?}").contains("s3cret"));
    /// Client::new(config)?;
    /// let config = Config::new("https://api:6443").proxy_url("ftp://me:s3cret@proxy");
    /// let error = Client::new(config).unwrap_err();
    /// assert!(error.is_config() && !error.to_string().contains("s3cret"));
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn proxy_url(mut self, url: impl Into<String>) -> Self {
        self.proxy = ProxyChoice::Url(Secret(url.into()));
        self
    }

    /// Connects without a proxy and ignores the proxy variables of the environment.
    pub fn no_proxy(mut self) -> Self {
        self.proxy = ProxyChoice::Direct;
        self
    }

    /// Sets whether lists are requested compressed. In a kubeconfig, `disable-compression` turns it
    /// off.
    ///
    /// The default is `true` if the feature `gzip` is on. Without this feature, nothing is requested
    /// compressed.
    #[doc(alias = "disable_compression")]
    pub fn compression(mut self, compression: bool) -> Self {
        self.compression = compression;
        self
    }

    /// Accepts any server certificate. An attacker on the network path can then read and change all
    /// traffic.
    ///
    /// Use this setting for tests only. The client logs a warning. This setting can't be combined
    /// with a CA.
    pub fn insecure_skip_tls_verify(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// The name that the server's certificate must match, and that is sent in the TLS handshake
    /// (SNI). By default, the host of the URL.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls_server_name = Some(TlsServerName {
            what: "tls-server-name".to_owned(),
            name: name.into(),
        });
        self
    }

    /// The namespace that [`Client::default_namespace`](crate::Client::default_namespace) returns.
    /// Default: `default`.
    pub fn default_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.default_namespace = namespace.into();
        self
    }

    /// The `User-Agent` header.
    ///
    /// The part before the first `/` is also the [field
    /// manager](crate::guide::authentication#field-manager) of all writes, unless a request names
    /// another one.
    ///
    /// The default is `PROGRAM/VERSION (os/arch) k8s-informer`, as in client-go. `PROGRAM` is the
    /// file name of the program, and `VERSION` the version of this crate.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// The time limit for resolving the name, connecting and the TLS handshake together. `None`
    /// means no limit except that of the system. Default: [10 s](Self::DEFAULT_CONNECT_TIMEOUT).
    pub fn connect_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.connect_timeout = timeout.into();
        self
    }

    /// The time limit for each of three phases: sending a request, waiting for the head of the
    /// response, and reading the body. `None` means no limit. Default: [90
    /// s](Self::DEFAULT_RESPONSE_TIMEOUT).
    ///
    /// The limit for reading the body depends on the request:
    ///
    /// | body | limit |
    /// |---|---|
    /// | read by an [`Api`](crate::client::api::Api), including a list or a page; [`Response::bytes`], [`Response::json`]; an error response | this value, for the whole body |
    /// | an informer's list, which can have any size | this value for each wait for new data, ten times this value for the whole body |
    /// | logs that are not followed, [`Response::into_body`] | this value for each wait for new data, no limit for the whole body |
    /// | a watch, logs that are followed | no limit; an informer has [`watch_idle_timeout`] |
    ///
    /// [`Response::bytes`]: crate::client::Response::bytes
    /// [`Response::json`]: crate::client::Response::json
    /// [`Response::into_body`]: crate::client::Response::into_body
    /// [`watch_idle_timeout`]: crate::reflector::ReflectorOptions::watch_idle_timeout
    pub fn response_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.response_timeout = timeout.into();
        self
    }

    /// Passes the warnings of the server to this function instead of logging them. The client-go
    /// counterpart is `WarningHandler`.
    ///
    /// By default, the client logs the text of each warning with code 299 once, at `warn`. It
    /// remembers the 256 latest texts. An older text is logged again if the server repeats it.
    ///
    /// The function receives every warning of any code, each time the server sends it. It is called
    /// on the thread that makes the request, before the request returns. A panic in it is caught
    /// and logged. Error responses and watches can have warnings as well.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use std::sync::mpsc::channel;
    ///
    /// let server = ApiServer::start()?;
    /// let (sender, warnings) = channel();
    /// let config = Config::new(server.url()).on_warning(move |warning| {
    ///     let _ = sender.send(warning.clone());
    /// });
    /// let maps = Client::new(config)?.api::<ConfigMap>(Some("default"));
    /// maps.create(&serde_json::json!({"metadata": {"name": "a"}, "date": {}}), &Stop::never())?;
    /// let warning = warnings.recv()?;
    /// assert_eq!((warning.code, &*warning.text), (299, "unknown field \"date\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_warning(mut self, handler: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.policy.on_warning = Some(policy::WarningHandler(Arc::new(handler)));
        self
    }

    /// Limits the requests of the client per second. The client-go counterparts are `QPS` and
    /// `Burst`.
    ///
    /// Requests above the limit wait; their [`Stop`](crate::Stop) ends the wait. The rate and the
    /// burst must be above 0; otherwise [`Client::new`](crate::Client::new) fails.
    ///
    /// Every attempt counts, including retries and watches. A request cancelled while waiting
    /// counts as well. All clones of a client share the limit. A wait of more than 50 ms is logged
    /// at `debug`. A wait of more than one second is logged at `info`, at most every ten seconds.
    ///
    /// By default there is no limit, whereas client-go allows 5 requests per second and bursts of
    /// 10. An API server already distributes its capacity fairly (API Priority and Fairness). When
    /// it is overloaded, it responds with 429, and the client then waits and retries
    /// ([`Request::retries`](crate::client::Request::retries)). A client-side limit does not take
    /// the capacity of the server into account. controller-runtime has also removed its default
    /// limit.
    ///
    /// ```
    /// use k8s_informer::time::RateLimit;
    /// use k8s_informer::{Client, Config};
    ///
    /// let config = Config::new("http://127.0.0.1:8001");
    /// Client::new(config.clone().rate_limit(RateLimit::per_second(20.0).burst(30)))?;
    /// let error = Client::new(config.rate_limit(RateLimit::per_second(0.0))).unwrap_err();
    /// assert!(error.is_config());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    #[doc(alias = "QPS")]
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.policy.rate_limit = Some(limit);
        self
    }

    /// The largest body in bytes that [`Response::bytes`](crate::client::Response::bytes),
    /// [`Response::json`](crate::client::Response::json) and an [`Api`](crate::client::api::Api)
    /// accept. Default: [256 MiB](Self::DEFAULT_BODY_LIMIT).
    ///
    /// To set the limit for one request, use
    /// [`Request::body_limit`](crate::client::Request::body_limit). A larger body is an error
    /// ([`Error::is_decode`](crate::Error::is_decode)). The client returns this error as soon as
    /// the body is known to be too large.
    ///
    /// These limits apply to the data that a server sends:
    ///
    /// | data | limit |
    /// |---|---|
    /// | the head of a response | 32 KiB |
    /// | the body of an error response | 256 KiB are read; if it is not a `Status`, 1 KiB of it is shown |
    /// | a body that is read as a whole; a list or a page of an [`Api`](crate::client::api::Api) | this limit, after decompression |
    /// | an object of a list, a watch event | [`DecodeLimits`]: 32 MiB, after decompression |
    /// | an informer's list, a watch, logs, [`Response::into_body`] | no limit: they are streams and are never in memory as a whole |
    /// | a compressed list, after decompression | this limit, or 100 times its compressed size if that is more |
    ///
    /// [`DecodeLimits`]: crate::reflector::DecodeLimits
    /// [`Response::into_body`]: crate::client::Response::into_body
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.policy.body_limit = bytes;
        self
    }

    /// Reports every request to these metrics. By default, nothing is reported.
    pub fn metrics(mut self, metrics: Arc<dyn ClientMetrics>) -> Self {
        self.policy.metrics = Some(metrics);
        self
    }

    /// For tests: the clock of the [rate limit](Self::rate_limit), of `Retry-After` and of metrics.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.policy.clock = clock;
        self
    }

    /// Whether the configuration contains credentials other than a client certificate.
    pub(super) fn has_credentials(&self) -> bool {
        self.token.is_some()
            || self.token_file.is_some()
            || self.basic.is_some()
            || self.id_token.is_some()
            || self.exec.is_some()
    }

    /// Whether the configuration contains any setting that only makes sense with TLS.
    pub(super) fn has_tls_settings(&self) -> bool {
        self.ca.is_some()
            || self.client_certificate.is_some()
            || self.client_key.is_some()
            || self.insecure
            || self.tls_server_name.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_has_documented_defaults() {
        let config = Config::new("http://a");
        assert_eq!(config.connect_timeout, Some(Duration::from_secs(10)));
        assert_eq!(config.response_timeout, Some(Duration::from_secs(90)));
        assert_eq!(config.default_namespace, "default");
        assert!(config.policy.rate_limit.is_none() && config.policy.metrics.is_none());
        assert_eq!(config.policy.body_limit, 256 * 1024 * 1024);
        assert!(!config.insecure && !config.has_tls_settings());
    }
}
