//! Configuration of a client: built in code, or found where kubectl looks.

mod environment;
mod exec;
mod impersonation;
mod infer;
#[cfg(feature = "kubeconfig")]
mod kubeconfig;
mod server_url;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::environment::Environment;
use super::credential_data::{PemSource, Secret, config_error};
use super::policy::{self, Warning};
use crate::error::Error;
use crate::metrics::ClientMetrics;
use crate::time::Clock;

pub use exec::{ExecConfig, InteractiveMode};
pub use impersonation::Impersonation;
#[cfg(feature = "kubeconfig")]
pub use kubeconfig::{Kubeconfig, KubeconfigOptions};
pub(super) use server_url::{ServerUrl, server_url};

/// Where an API server is and how to talk to it.
///
/// Made in code, or read from a kubeconfig or a pod's service account. Nothing is opened before
/// [`Client::new`](crate::Client::new), which checks it. `Debug` shows no secret. client-go's `rest.Config`.
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
    pub(super) id_token: Option<IdToken>,
    pub(super) exec: Option<ExecConfig>,
    pub(super) impersonation: Option<Impersonation>,
    pub(super) proxy: ProxyChoice,
    pub(super) compression: bool,
    pub(super) insecure: bool,
    pub(super) tls_server_name: Option<String>,
    pub(super) default_namespace: String,
    pub(super) user_agent: Option<String>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) response_timeout: Option<Duration>,
    pub(super) policy: policy::Settings,
}

/// Which proxy is between here and the server.
#[derive(Clone, Debug)]
pub(super) enum ProxyChoice {
    /// The one that the environment names for this server, if any.
    Environment,
    Direct,
    /// May hold a password.
    Url(Secret),
}

/// The id-token of an OIDC provider, and whose it is in messages: `the id-token of user "jane"`.
#[derive(Clone, Debug)]
pub(super) struct IdToken {
    pub(super) what: String,
    pub(super) token: Secret,
}

impl Config {
    /// How long making a connection may take: 10 s, enough for a lost SYN to be sent three times.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long an answer may take to begin: 90 s, as the API server gives up on a request after 60 s and
    /// says so.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

    /// The largest body that is read as a whole: 256 MiB, some hundred thousand objects.
    pub const DEFAULT_BODY_LIMIT: u64 = 256 << 20;

    /// A server by its URL, `https://host:port` or `http://host:port`, with a path before all others if it
    /// has one.
    ///
    /// As in kubectl, a `host:port` without a scheme is `https` if anything of TLS is configured, and else
    /// `http`. That credentials leave this machine without TLS is logged as a warning.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: ServerUrl(server.into()),
            ca: None,
            client_certificate: None,
            client_key: None,
            token: None,
            token_file: None,
            basic: None,
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

    /// What kubectl would use: the files in `$KUBECONFIG` (merged), or else `~/.kube/config`, or else, if
    /// these are not there or name no cluster, the service account of the pod.
    ///
    /// Reads files. To choose another context or another file, use `KubeconfigOptions`.
    ///
    /// # Errors
    ///
    /// A kubeconfig that is there but can't be used; or, when there is nothing at all, every place that was
    /// looked at and why it does not do.
    pub fn try_default() -> Result<Self, Error> {
        let environment = Environment::of_this_process();
        #[cfg(feature = "kubeconfig")]
        return infer::infer(&environment, &Default::default(), &Default::default());
        #[cfg(not(feature = "kubeconfig"))]
        infer::infer(&environment)
    }

    /// One kubeconfig file; `context` instead of its current one. Relative paths in it are relative to it.
    /// [`KubeconfigOptions`] has more to choose.
    ///
    /// # Errors
    ///
    /// The file can't be read or parsed, there is no such context, or it asks for something that is not
    /// supported: the message says which.
    #[cfg(feature = "kubeconfig")]
    pub fn from_kubeconfig(
        path: impl AsRef<std::path::Path>,
        context: Option<&str>,
    ) -> Result<Self, Error> {
        let options = KubeconfigOptions::new().path(path.as_ref());
        match context {
            Some(name) => options.context(name),
            None => options,
        }
        .load()
    }

    /// The service account of the pod that this runs in. Its token is read again as it is rotated.
    ///
    /// # Errors
    ///
    /// This is not a pod, or it has no service account: `KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT`
    /// or the token's file is missing.
    pub fn in_cluster() -> Result<Self, Error> {
        infer::in_cluster(&Environment::of_this_process()).map_err(config_error)
    }

    /// Trusts the authorities in this PEM text, and only these. Without any, those of the system are trusted.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(PemSource::bytes("the CA", pem));
        self
    }

    /// Trusts the authorities in this PEM file, and only these; read by [`Client::new`](crate::Client::new).
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(PemSource::file("the CA", path));
        self
    }

    /// Authenticates with a client certificate (a chain, leaf first) and its key, both PEM.
    ///
    /// The key may be PKCS#8, PKCS#1 (RSA) or SEC1 (EC): RSA, P-256, P-384, Ed25519.
    pub fn client_certificate_pem(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.client_certificate = Some(PemSource::bytes("the client certificate", chain));
        self.client_key = Some(PemSource::bytes("the client key", key));
        self
    }

    /// The same from files; read by [`Client::new`](crate::Client::new).
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
        self.token = Some(Secret(token.into()));
        self
    }

    /// Authenticates with the bearer token in a file, which is read for every request. It wins over
    /// [`token`](Self::token), which is used as long as the file has never been readable.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::client::Request;
    ///
    /// let server = ApiServer::builder().token("second").start()?;
    /// let file = std::env::temp_dir().join(format!("k8s-informer-token-{}", std::process::id()));
    /// std::fs::write(&file, "first")?;
    /// let client = Client::new(Config::new(server.url()).token_file(&file))?;
    /// assert!(client.request(&Request::get("/version"), &Stop::new()).unwrap_err().is_unauthorized());
    /// std::fs::write(&file, "second")?; // As a kubelet does it.
    /// client.request(&Request::get("/version"), &Stop::new())?;
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Authenticates with a user name and a password (HTTP basic authentication), which kube-apiserver itself
    /// no longer knows, but a proxy before it may. Can't be combined with a token.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.basic = Some((user.into(), Secret(password.into())));
        self
    }

    /// Authenticates with what a plugin hands out: a token, a client certificate, or both. As in client-go it
    /// is not asked if there is a token, a user name or a client certificate beside it.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::client::{ExecConfig, Request};
    ///
    /// let plugin = ExecConfig::new("no-such-plugin").args(["get-token"]).install_hint("apt install it");
    /// let client = Client::new(Config::new("https://127.0.0.1:6443").exec(plugin))?; // Runs nothing yet.
    /// let error = client.request(&Request::get("/version"), &Stop::new()).unwrap_err();
    /// assert!(error.is_credentials() && error.to_string().ends_with("apt install it"), "{error}");
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn exec(mut self, plugin: ExecConfig) -> Self {
        self.exec = Some(plugin);
        self
    }

    /// Acts as another user, if the authenticated one may do that: kubectl's `--as`. [`Impersonation`] has an
    /// example.
    pub fn impersonate(mut self, impersonation: Impersonation) -> Self {
        self.impersonation = Some(impersonation);
        self
    }

    /// Goes through this proxy, `http://`, `https://`, or `socks5://host:port`, with `user:password@` before
    /// the host if it wants that; whatever the environment says. A kubeconfig's `proxy-url`.
    ///
    /// Without it the environment is asked when the client is made, as Go programs do: `HTTPS_PROXY` (or
    /// `HTTP_PROXY` for a server without TLS), unless `NO_PROXY` has the server; never for a server on this
    /// machine. `socks5h://` is the same as `socks5://`: the proxy resolves names either way.
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

    /// Goes through no proxy, whatever the environment says.
    pub fn no_proxy(mut self) -> Self {
        self.proxy = ProxyChoice::Direct;
        self
    }

    /// Never asks for compressed answers; a kubeconfig's `disable-compression`. With the feature `gzip` lists
    /// are asked for compressed if this is not set, without it nothing is.
    pub fn disable_compression(mut self, disable: bool) -> Self {
        self.compression = !disable;
        self
    }

    /// Accepts any certificate of the server: whoever is in between can read and change everything. For
    /// tests; logged as a warning. Can't be combined with a CA.
    pub fn insecure_skip_tls_verify(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// The name that the server's certificate must be for, and that is asked for (SNI), if it is not the host
    /// of the URL.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls_server_name = Some(name.into());
        self
    }

    /// What [`Client::default_namespace`](crate::Client::default_namespace) says; `default` if not set.
    pub fn default_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.default_namespace = namespace.into();
        self
    }

    /// The `User-Agent` in place of `k8s-informer/VERSION (os/arch)`.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// How long resolving the name, connecting and the TLS handshake may take together; `None` for as long as
    /// the system tries. Default: [10 s](Self::DEFAULT_CONNECT_TIMEOUT).
    pub fn connect_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.connect_timeout = timeout.into();
        self
    }

    /// How long sending a request, then waiting for the head of its answer, and then reading its body may take.
    /// `None` for ever. Default: [90 s](Self::DEFAULT_RESPONSE_TIMEOUT).
    ///
    /// | body | limit |
    /// |---|---|
    /// | what an [`Api`](crate::client::api::Api) reads, a list or a page too; [`Response::bytes`], [`Response::json`]; a failure | this for the whole |
    /// | an informer's list, which can be of any size | this for silence, ten times this for the whole |
    /// | logs that are not followed, [`Response::into_body`] | this for silence, none for the whole |
    /// | a watch, logs that are followed | none; an informer has [`watch_idle_timeout`] |
    ///
    /// [`Response::bytes`]: crate::client::Response::bytes
    /// [`Response::json`]: crate::client::Response::json
    /// [`Response::into_body`]: crate::client::Response::into_body
    /// [`watch_idle_timeout`]: crate::reflector::ReflectorOptions::watch_idle_timeout
    pub fn response_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.response_timeout = timeout.into();
        self
    }

    /// Passes what the server warns of to this function, instead of logging it. client-go's `WarningHandler`.
    ///
    /// Without it, each text of a warning 299 is logged at `warn`, once in the life of a client; of more than
    /// 256 texts the oldest are forgotten. The function is called with all of them, of whatever code, each
    /// time that they come, on the thread that makes the request and before it has the answer; a panic in it
    /// is logged. Failures and watches have warnings, too.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use std::sync::mpsc::channel;
    ///
    /// let server = ApiServer::start()?;
    /// let (sender, warnings) = channel();
    /// let config = Config::new(server.url()).on_warning(move |warning| {
    ///     let _ = sender.send(warning.clone());
    /// });
    /// let maps = Client::new(config)?.api::<ConfigMap>(Some("default"));
    /// maps.create(&serde_json::json!({"metadata": {"name": "a"}, "date": {}}), &Stop::new())?;
    /// let warning = warnings.recv()?;
    /// assert_eq!((warning.code, &*warning.text), (299, "unknown field \"date\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_warning(mut self, handler: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.policy.on_warning = Some(policy::WarningHandler(Arc::new(handler)));
        self
    }

    /// Makes no more than `qps` requests a second, after `burst` at once; those that are too many wait, and
    /// their [`Stop`](crate::Stop) ends that. Both must be above 0. client-go's `QPS` and `Burst`.
    ///
    /// Each time that a request is sent counts, as it does to the server: those that are sent again, and
    /// watches, too. All clones of a client share the limit. A request cancelled while waiting
    /// still consumes its token. A wait of more than 50 ms is logged at `debug`, one of more than a second at `info`, every ten
    /// seconds at most.
    ///
    /// There is none by default, where client-go has 5 and 10: an API server shares itself out fairly (API
    /// Priority and Fairness), says 429 where that is not enough, and then is waited for
    /// ([`Request::retries`](crate::client::Request::retries)). A limit here knows nothing of what the server can do;
    /// controller-runtime has none any more either.
    ///
    /// ```
    /// use k8s_informer::{Client, Config};
    ///
    /// Client::new(Config::new("http://127.0.0.1:8001").rate_limit(20.0, 30))?;
    /// let error = Client::new(Config::new("http://127.0.0.1:8001").rate_limit(0.0, 30)).unwrap_err();
    /// assert!(error.is_config());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn rate_limit(mut self, qps: f64, burst: usize) -> Self {
        self.policy.rate_limit = Some((qps, burst));
        self
    }

    /// How many bytes the body of an answer may have for [`Response::bytes`](crate::client::Response::bytes),
    /// [`Response::json`](crate::client::Response::json) and an [`Api`](crate::client::api::Api). Default: [256
    /// MiB](Self::DEFAULT_BODY_LIMIT). [`Request::body_limit`](crate::client::Request::body_limit) sets it for one
    /// request. What is larger is an error ([`Error::is_decode`](crate::Error::is_decode)), as soon as that
    /// is known.
    ///
    /// All that limits how much a server can send:
    ///
    /// | what | limit |
    /// |---|---|
    /// | the head of an answer | 32 KiB |
    /// | the body of a failure | 256 KiB are read, 1 KiB of them shown if it is no `Status` |
    /// | a body that is read as a whole; a list or a page of an [`Api`](crate::client::api::Api) | this one; after decompression |
    /// | an object of a list, an event of a watch | [`DecodeLimits`]: 32 MiB; after decompression |
    /// | an informer's list, a watch, logs, [`Response::into_body`] | none: they are streams, never in memory as a whole |
    /// | a compressed list, after decompression | this one, or 100 times its compressed size if that is more |
    ///
    /// [`DecodeLimits`]: crate::reflector::DecodeLimits
    /// [`Response::into_body`]: crate::client::Response::into_body
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.policy.body_limit = bytes;
        self
    }

    /// Reports each request to these metrics. By default there are none.
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

    /// Whether it says how to authenticate, but for a certificate.
    pub(super) fn authenticates(&self) -> bool {
        self.token.is_some()
            || self.token_file.is_some()
            || self.basic.is_some()
            || self.id_token.is_some()
            || self.exec.is_some()
    }

    /// Whether anything in it makes sense only over TLS.
    pub(super) fn mentions_tls(&self) -> bool {
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
    fn defaults() {
        let config = Config::new("http://a");
        assert_eq!(config.connect_timeout, Some(Duration::from_secs(10)));
        assert_eq!(config.response_timeout, Some(Duration::from_secs(90)));
        assert_eq!(config.default_namespace, "default");
        assert!(config.policy.rate_limit.is_none() && config.policy.metrics.is_none());
        assert_eq!(config.policy.body_limit, 256 * 1024 * 1024);
        assert!(!config.insecure && !config.mentions_tls());
    }
}
