//! A program that is asked for credentials, as a configuration names it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// A credential plugin: a program that is run for a token or a client certificate, as `aws eks get-token`,
/// `gke-gcloud-auth-plugin` and `kubelogin` are. client-go's `clientcmdapi.ExecConfig`, the `exec` of a
/// kubeconfig's user.
///
/// It is run when a request needs a credential and there is none, when the one that is there has expired, and
/// after the server has answered 401. Requests that need one at the same time wait for one run, each with its
/// own [`Stop`](crate::Stop). It inherits the environment and the standard error of this process; what it
/// writes to its standard output is read by a thread, up to 1 MiB, and no message shows any of it.
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
    /// What was set, if anything was.
    pub(in crate::client) time_limit: Option<Option<Duration>>,
}

/// Whether a credential plugin may ask its questions on the terminal: whether it gets the standard input of
/// this process. client-go's `ExecInteractiveMode`.
///
/// ```
/// use k8s_informer::client::InteractiveMode;
///
/// assert_eq!(InteractiveMode::default(), InteractiveMode::IfAvailable);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InteractiveMode {
    /// It never gets it.
    Never,
    /// It gets it if that is a terminal.
    #[default]
    IfAvailable,
    /// It can't do without: an error if that is not a terminal.
    Always,
}

impl ExecConfig {
    /// How long a run may take that can't ask anybody: 60 s. Sign-in helpers answer in seconds, and one that
    /// hangs must not keep requests waiting for ever.
    pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(60);

    /// A plugin by its command: a name that is looked for in the `PATH` of this process, or a path with a
    /// slash in it.
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

    /// More arguments of the command.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Another environment variable for it. It wins over one of this process of that name, and the last one
    /// of a name wins.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// What it is asked in and has to answer in: `client.authentication.k8s.io/v1`, the default, or
    /// `client.authentication.k8s.io/v1beta1`. [`Client::new`](crate::Client::new) refuses anything else.
    pub fn api_version(mut self, api_version: impl Into<String>) -> Self {
        self.api_version = api_version.into();
        self
    }

    /// Whether it may ask questions. Default: [`IfAvailable`](InteractiveMode::IfAvailable).
    pub fn interactive_mode(mut self, mode: InteractiveMode) -> Self {
        self.interactive_mode = mode;
        self
    }

    /// Whether it is told of the cluster, in the environment variable `KUBERNETES_EXEC_INFO`: its URL, its
    /// CA, its proxy and what is configured for it. Default: no.
    #[cfg(feature = "kubeconfig")]
    pub(crate) fn provide_cluster_info(mut self, provide: bool) -> Self {
        self.provide_cluster_info = provide;
        self
    }

    /// What the plugin is told of this cluster beside that, in a form of the plugin's own: in a kubeconfig
    /// the cluster's extension `client.authentication.k8s.io/exec`.
    #[cfg(feature = "kubeconfig")]
    pub(crate) fn cluster_config(mut self, config: Value) -> Self {
        self.cluster_config = Some(config);
        self
    }

    /// What the error says when the command is not there: how to install it.
    pub fn install_hint(mut self, hint: impl Into<String>) -> Self {
        self.install_hint = hint.into();
        self
    }

    /// How long a run may take before it is killed; `None` for as long as it likes. Default: [60
    /// s](Self::DEFAULT_TIME_LIMIT), and none where it may ask questions, as nobody knows how long an answer
    /// takes. What the plugin itself has started is not killed.
    pub fn time_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.time_limit = Some(limit.into());
        self
    }
}

/// Arguments, values of variables and what is configured for the cluster may be secret.
impl fmt::Debug for ExecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("ExecConfig")
            .field("command", &self.command)
            .field("args", &format_args!("{} of them", self.args.len()))
            .field("env", &names)
            .field("api_version", &self.api_version)
            .field("interactive_mode", &self.interactive_mode)
            .field("provide_cluster_info", &self.provide_cluster_info)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
