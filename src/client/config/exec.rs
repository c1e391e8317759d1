//! The configuration of a credential plugin.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::base::derive::debug_fields;

/// A credential plugin: a program that prints a token or a client certificate.
///
/// Examples are `aws eks get-token`, `gke-gcloud-auth-plugin` and `kubelogin`. In a kubeconfig,
/// this is the `exec` section of a user. The client-go counterpart is `clientcmdapi.ExecConfig`.
///
/// The plugin runs when a request needs a credential and there is none, when the current credential
/// has expired, and after the server has responded with 401. Concurrent requests that need a
/// credential wait for the same run. Each of them can be cancelled by its own
/// [`Stop`](crate::Stop).
///
/// The plugin inherits the environment and the standard error of this process. Its standard output
/// may have at most 1 MiB, and no message shows any part of it.
///
/// ```
/// use k8s_informer::client::{ExecConfig, InteractiveMode};
///
/// let plugin = ExecConfig::new("aws")
///     .args(["eks", "get-token", "--cluster-name", "prod"])
///     .env("AWS_SESSION_TOKEN", "s3cret")
///     .api_version("client.authentication.k8s.io/v1beta1")
///     .interactive_mode(InteractiveMode::Never)
///     .install_hint("https://docs.aws.amazon.com/cli");
/// let shown = format!("{plugin:?}");
/// assert!(shown.contains("aws") && shown.contains("AWS_SESSION_TOKEN"));
/// assert!(!shown.contains("s3cret") && !shown.contains("prod"));
/// ```
#[derive(Clone)]
#[must_use]
#[doc(alias = "ExecCredential")]
pub struct ExecConfig {
    pub(in crate::client) command: PathBuf,
    pub(in crate::client) args: Vec<String>,
    pub(in crate::client) env: Vec<(String, String)>,
    pub(in crate::client) api_version: String,
    pub(in crate::client) interactive_mode: InteractiveMode,
    pub(in crate::client) provide_cluster_info: bool,
    pub(in crate::client) cluster_config: Option<Value>,
    pub(in crate::client) install_hint: String,
    /// `None` if no value was set. `Some(None)` means no limit.
    pub(in crate::client) time_limit: Option<Option<Duration>>,
}

/// Whether a credential plugin may prompt the user, that is, whether it inherits the standard input
/// of this process. The client-go counterpart is `ExecInteractiveMode`.
///
/// ```
/// use k8s_informer::client::InteractiveMode;
///
/// assert_eq!(InteractiveMode::default(), InteractiveMode::IfAvailable);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InteractiveMode {
    /// The plugin never inherits standard input.
    Never,
    /// The plugin inherits standard input if that is a terminal.
    #[default]
    IfAvailable,
    /// The plugin requires standard input. If that is not a terminal, the request fails.
    Always,
}

impl ExecConfig {
    /// The default time limit for a run that can't prompt the user: 60 s.
    ///
    /// Sign-in helpers respond within seconds, and a plugin that hangs must not block requests
    /// forever.
    pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(60);

    /// Returns a plugin with this command: a name to look up in the `PATH` of this process, or a
    /// path that contains a slash.
    pub fn new(command: impl Into<PathBuf>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            interactive_mode: InteractiveMode::default(),
            provide_cluster_info: false,
            cluster_config: None,
            install_hint: String::new(),
            time_limit: None,
        }
    }

    /// Appends arguments to the command.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable for the plugin.
    ///
    /// It overrides a variable of this process with the same name. If you set a name more than
    /// once, the last value is used.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The API version that the plugin must use: `client.authentication.k8s.io/v1` (the default) or
    /// `client.authentication.k8s.io/v1beta1`. [`Client::new`](crate::Client::new) rejects any
    /// other version.
    pub fn api_version(mut self, api_version: impl Into<String>) -> Self {
        self.api_version = api_version.into();
        self
    }

    /// Whether the plugin may prompt the user. Default:
    /// [`IfAvailable`](InteractiveMode::IfAvailable).
    pub fn interactive_mode(mut self, mode: InteractiveMode) -> Self {
        self.interactive_mode = mode;
        self
    }

    /// Whether the environment variable `KUBERNETES_EXEC_INFO` describes the cluster: its URL, CA
    /// and proxy, and `cluster_config`. Default: no.
    #[cfg(feature = "kubeconfig")]
    pub(crate) fn provide_cluster_info(mut self, provide: bool) -> Self {
        self.provide_cluster_info = provide;
        self
    }

    /// Additional data for the plugin about this cluster, in a format that the plugin defines. In a
    /// kubeconfig, this is the cluster's extension `client.authentication.k8s.io/exec`.
    #[cfg(feature = "kubeconfig")]
    pub(crate) fn cluster_config(mut self, config: Value) -> Self {
        self.cluster_config = Some(config);
        self
    }

    /// A text that explains how to install the plugin. The error message contains it if the command
    /// does not exist.
    pub fn install_hint(mut self, hint: impl Into<String>) -> Self {
        self.install_hint = hint.into();
        self
    }

    /// The time limit for a run, after which the plugin is killed. `None` means no limit: a plugin
    /// that hangs is killed only when the last clone of the client is dropped, and until then every
    /// request waits for it until the stop of the request.
    ///
    /// The default is [60 s](Self::DEFAULT_TIME_LIMIT), or no limit if the plugin may prompt the
    /// user. Processes that the plugin has started are not killed.
    pub fn time_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.time_limit = Some(limit.into());
        self
    }
}

// The arguments, the values of variables and the cluster configuration may be secret.
debug_fields!(ExecConfig, this,
    command: this.command,
    args: format_args!("{} arguments", this.args.len()),
    env: this.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
    api_version: this.api_version,
    interactive_mode: this.interactive_mode,
    provide_cluster_info: this.provide_cluster_info,
    time_limit: this.time_limit
);
