//! Where an API server is and who asks it: built in code, or found where kubectl looks.

mod exec;
mod impersonation;
#[cfg(feature = "kubeconfig")]
mod kubeconfig;
mod places;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use super::material::{Material, Secret, config_error};
use crate::error::Error;

pub use exec::{ExecConfig, InteractiveMode};
pub use impersonation::Impersonation;
#[cfg(feature = "kubeconfig")]
pub use kubeconfig::{Kubeconfig, KubeconfigOptions};
pub(super) use server::server_url;

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
    pub(super) server: String,
    pub(super) ca: Option<Material>,
    pub(super) client_certificate: Option<Material>,
    pub(super) client_key: Option<Material>,
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

    /// A server by its URL, `https://host:port` or `http://host:port`, with a path before all others if it
    /// has one.
    ///
    /// As in kubectl, a `host:port` without a scheme is `https` if anything of TLS is configured, and else
    /// `http`.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
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
        }
    }

    /// What kubectl would use: the files in `$KUBECONFIG` (merged), or else `~/.kube/config`, or else, if
    /// these are not there or name no cluster, the service account of the pod.
    ///
    /// Reads files. `KubeconfigOptions` is for who wants another context, or a file of his own.
    ///
    /// # Errors
    ///
    /// A kubeconfig that is there but can't be used; or, when there is nothing at all, every place that was
    /// looked at and why it does not do.
    pub fn try_default() -> Result<Self, Error> {
        places::Places::of_this_process().config()
    }

    /// One kubeconfig file; `context` instead of its current one. Relative paths in it are relative to it.
    /// [`KubeconfigOptions`] has more to choose.
    ///
    /// # Errors
    ///
    /// The file can't be read or parsed, there is no such context, or it asks for something that is not
    /// supported: the message says which.
    #[cfg(feature = "kubeconfig")]
    pub fn from_kubeconfig(path: impl AsRef<std::path::Path>, context: Option<&str>) -> Result<Self, Error> {
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
        places::Places::of_this_process().in_cluster().map_err(config_error)
    }

    /// Trusts the authorities in this PEM text, and only these. Without any, those of the system are trusted.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Material::bytes("the CA", pem));
        self
    }

    /// Trusts the authorities in this PEM file, and only these; read by [`Client::new`](crate::Client::new).
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(Material::file("the CA", path));
        self
    }

    /// Authenticates with a client certificate (a chain, leaf first) and its key, both PEM.
    ///
    /// The key may be PKCS#8, PKCS#1 (RSA) or SEC1 (EC): RSA, P-256, P-384, Ed25519.
    pub fn client_certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client_certificate = Some(Material::bytes("the client certificate", chain));
        self.client_key = Some(Material::bytes("the client key", key));
        self
    }

    /// The same from files; read by [`Client::new`](crate::Client::new).
    pub fn client_certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some(Material::file("the client certificate", chain));
        self.client_key = Some(Material::file("the client key", key));
        self
    }

    /// Authenticates with a bearer token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret(token.into()));
        self
    }

    /// Authenticates with the bearer token in a file, which is read for every request. It wins over
    /// [`token`](Self::token), which is used as long as the file has never been readable.
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
    pub fn exec(mut self, plugin: ExecConfig) -> Self {
        self.exec = Some(plugin);
        self
    }

    /// Acts as somebody else, if the one who authenticates may: kubectl's `--as`.
    pub fn impersonate(mut self, impersonation: Impersonation) -> Self {
        self.impersonation = Some(impersonation);
        self
    }

    /// Goes through this proxy, `http://`, `https://`, or `socks5://host:port`, with `user:password@` before
    /// the host if it wants that; whatever the environment says. A kubeconfig's `proxy-url`.
    ///
    /// Without it the environment is asked when the client is made, as Go programs do: `HTTPS_PROXY` (or
    /// `HTTP_PROXY` for a server without TLS), unless `NO_PROXY` has the server; never for a server on this
    /// machine.
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

    /// How long sending a request and, after that, waiting for the head of its answer may take; also how long
    /// the body of anything but a watch may be silent. `None` for ever. Default: [90
    /// s](Self::DEFAULT_RESPONSE_TIMEOUT).
    pub fn response_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.response_timeout = timeout.into();
        self
    }

    /// Whether it says how to authenticate, but for a certificate.
    #[cfg(feature = "kubeconfig")]
    fn authenticates(&self) -> bool {
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
        assert!(!config.insecure && !config.mentions_tls());
    }
}
