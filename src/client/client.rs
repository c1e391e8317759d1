use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::HeaderValue;

use super::auth::Auth;
use super::config::{Config, server_url};
use super::credential_data::config_error;
use super::discovery::cache::Cache;
use super::gate::{self, WriteGate};
use super::policy::Policy;
use super::transport::connections::Connections;
use crate::base::derive::{debug_fields, unwind_safe};
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::log;

/// A client for one API server.
///
/// It opens connections when they are needed and reuses them for later requests. It is cheap to
/// clone; all clones share their connections, credentials, limits and discovery cache. The
/// client-go counterpart is `rest.RESTClient`, on which the clientsets are built.
///
/// Every request blocks the calling thread. Its [`Stop`](crate::Stop) ends it immediately, even
/// while it waits for the network. The client has no permanent background threads. Operations that
/// cannot be interrupted run on detached threads, which end with the operation: resolving a host
/// name, waiting for the exit of a killed [plugin](crate::client::ExecConfig) and, on systems other
/// than Unix, reading the output of a plugin.
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
// Its other methods are in the modules of what they return: `request` in `exchange`, the
// `Api`s and `lister_watcher` in `api`, `discover` in `discovery`, `install_crds` in `crds`.
#[derive(Clone)]
#[doc(alias = "RESTClient")]
pub struct Client {
    pub(super) inner: Arc<Inner>,
    /// Lets requests out that change something. `None` lets all of them out.
    pub(super) gate: Option<Arc<dyn WriteGate>>,
}

/// What all clones of a client share.
pub(super) struct Inner {
    pub(super) connections: Connections,
    /// The URL of the server, without a trailing slash.
    pub(super) server: String,
    pub(super) default_namespace: String,
    pub(super) auth: Auth,
    pub(super) user_agent: HeaderValue,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) response_timeout: Option<Duration>,
    /// Whether lists are requested with gzip compression.
    pub(super) gzip: bool,
    pub(super) policy: Arc<Policy>,
    pub(super) discovery: Mutex<Cache>,
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
            gate: None,
        })
    }

    /// Returns a client that sends requests only while the gate is open, except for GET, HEAD and
    /// OPTIONS. It shares connections, credentials and limits with this client, which stays as it is.
    ///
    /// - The gate is asked before each attempt, after credentials, the rate limit and the connection,
    ///   immediately before the first byte. A request that may not be sent fails with an
    ///   [`is_not_leading`](Error::is_not_leading) error.
    /// - When the gate closes for good, requests in progress end as at a stop, also with
    ///   [`is_not_leading`](Error::is_not_leading). If bytes had left, the error is
    ///   [`is_outcome_unknown`](Error::is_outcome_unknown). A response that has arrived is returned, on Linux
    ///   also if it waits in the socket.
    /// - The client of a gated client has both gates.
    ///
    /// [`WriteGate`] has an example.
    #[must_use]
    pub fn gated(&self, gate: impl WriteGate) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            gate: Some(gate::added(self.gate.as_ref(), gate)),
        }
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
