use std::path::{Path, PathBuf};

use super::merged::{Kubeconfig, Unresolved};
use super::overrides::{Files, Overrides};
use crate::client::config::environment::Environment;
use crate::client::config::infer::infer;
use crate::client::config::{Config, ServerUrl};
use crate::client::credential_data::config_error;
use crate::error::Error;

/// Options for loading kubeconfigs: kubectl's `--kubeconfig`, `--context`, `--cluster`, `--user`,
/// `--namespace` and `--server`. The client-go counterparts are `ClientConfigLoadingRules` and
/// `ConfigOverrides`.
///
/// For other settings of kubectl's command line, such as a token or impersonation, use the methods
/// of the returned [`Config`].
///
/// ```
/// use k8s_informer::Client;
/// use k8s_informer::client::KubeconfigOptions;
///
/// # let folder = std::env::temp_dir().join(format!("kubeconfig-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("config");
/// # std::fs::write(&path, "
/// # contexts:
/// # - {name: dev, context: {cluster: near, user: me}}
/// # - {name: prod, context: {cluster: far, user: me, namespace: shop}}
/// # clusters:
/// # - {name: near, cluster: {server: 'https://near:6443'}}
/// # - {name: far, cluster: {server: 'https://far:6443'}}
/// # users:
/// # - {name: me, user: {token: s3cret}}
/// # ")?;
/// let config = KubeconfigOptions::new().path(&path).context("prod").namespace("shop-test").load()?;
/// # std::fs::remove_dir_all(&folder)?;
/// let client = Client::new(config)?;
/// assert_eq!((client.server(), client.default_namespace()), ("https://far:6443", "shop-test"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct KubeconfigOptions {
    files: Files,
    overrides: Overrides,
}

impl KubeconfigOptions {
    /// Returns the default options: the files in `$KUBECONFIG`, or else `~/.kube/config`, with the
    /// current context.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads this file instead of the default files, like kubectl's `--kubeconfig`. The file must
    /// exist.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.files = Files::One(path.into());
        self
    }

    /// Reads and merges these files instead of the default files, as if they were listed in
    /// `$KUBECONFIG`. Files that do not exist are skipped.
    pub fn paths<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.files = Files::Several(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Uses this context instead of the current one.
    pub fn context(mut self, name: impl Into<String>) -> Self {
        self.overrides.context = name.into();
        self
    }

    /// Uses this cluster instead of the context's cluster.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.overrides.cluster = name.into();
        self
    }

    /// Uses this user instead of the context's user.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.overrides.user = name.into();
        self
    }

    /// Uses this namespace instead of the context's namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.overrides.namespace = namespace.into();
        self
    }

    /// Uses this URL instead of the cluster's URL.
    ///
    /// The cluster's `tls-server-name` is then ignored, and the certificate must match the host of
    /// this URL. If you only need a server URL, you need no kubeconfig: see [`Config::new`].
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.overrides.server = Some(ServerUrl(url.into()));
        self
    }

    /// Loads the files and resolves the context.
    ///
    /// In a pod, the service account of the pod is used if both are true: the files set no current
    /// context or do not exist, and these options set no [`path`](Self::path), context, cluster or
    /// server. In a pod, a context without a namespace gets the namespace of the pod. Certificates
    /// and token files are read later, by [`Client::new`](crate::Client::new).
    ///
    /// As in kubectl, credentials and certificates are not used for a server that is not `https`.
    /// There is one exception: credentials (but not certificates) are used if the server is on this
    /// machine and there is no `proxy-url`.
    ///
    /// A kubeconfig can name programs to run and files to read. Load only kubeconfigs that you
    /// trust.
    ///
    /// # Errors
    ///
    /// Returns an error ([`Error::is_config`]) in these cases:
    ///
    /// - A file can't be read or is not a kubeconfig.
    /// - The context, cluster or user does not exist.
    /// - The settings contradict each other, or use a feature that is not supported.
    /// - There is no configuration at all. The message lists every place that was searched.
    ///
    /// The message describes the cause and contains no secrets.
    pub fn load(&self) -> Result<Config, Error> {
        self.load_from(&Environment::from_process())
    }

    /// Resolves the context of a kubeconfig in memory, such as one from a Secret.
    ///
    /// Relative paths in it are relative to `folder`. An empty `folder` means the working directory
    /// of the process. Files that were set with [`path`](Self::path) or [`paths`](Self::paths) are
    /// not read, and there is no fallback to the service account. The client-go counterpart is
    /// `clientcmd.RESTConfigFromKubeConfig`.
    ///
    /// # Errors
    ///
    /// The same as for [`load`](Self::load).
    ///
    /// ```
    /// use k8s_informer::Client;
    /// use k8s_informer::client::KubeconfigOptions;
    ///
    /// let text = "
    /// current-context: here
    /// contexts: [{name: here, context: {cluster: c}}]
    /// clusters: [{name: c, cluster: {server: 'https://api:6443'}}]
    /// ";
    /// let client = Client::new(KubeconfigOptions::new().load_bytes(text, "")?)?;
    /// assert_eq!(client.server(), "https://api:6443");
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn load_bytes(
        &self,
        text: impl AsRef<[u8]>,
        folder: impl AsRef<Path>,
    ) -> Result<Config, Error> {
        match Kubeconfig::parse(text, folder)?.resolve(&self.overrides) {
            Ok((config, _)) => Ok(config),
            Err(Unresolved::Empty(problem) | Unresolved::Invalid(problem)) => {
                Err(config_error(format!("kubeconfig: {problem}")))
            }
        }
    }

    /// Reads and merges the files without resolving a context, for example to list the contexts.
    /// Files that do not exist are skipped.
    ///
    /// # Errors
    ///
    /// Returns an error ([`Error::is_config`]) if a file can't be read or is not a kubeconfig.
    pub fn read(&self) -> Result<Kubeconfig, Error> {
        Kubeconfig::load(&self.files.paths(&Environment::from_process()).1)
    }

    pub(super) fn load_from(&self, environment: &Environment) -> Result<Config, Error> {
        infer(environment, &self.files, &self.overrides)
    }
}

impl Config {
    /// Loads one kubeconfig file.
    ///
    /// `context` overrides the current context of the file. Relative paths in the file are relative
    /// to its folder. [`KubeconfigOptions`] has more settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read or parsed, if there is no context with this name,
    /// or if the context uses a feature that is not supported. The message describes the cause.
    pub fn from_kubeconfig(path: impl AsRef<Path>, context: Option<&str>) -> Result<Self, Error> {
        let options = KubeconfigOptions::new().path(path.as_ref());
        match context {
            Some(name) => options.context(name),
            None => options,
        }
        .load()
    }
}
