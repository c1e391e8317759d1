use std::path::{Path, PathBuf};

use super::merged::{Kubeconfig, Problem};
use super::overrides::{Files, Overrides};
use crate::client::config::environment::Environment;
use crate::client::config::infer::infer;
use crate::client::config::{Config, ServerUrl};
use crate::client::credential_data::config_error;
use crate::error::Error;

/// Which kubeconfig, and what of it: kubectl's `--kubeconfig`, `--context`, `--cluster`, `--user`,
/// `--namespace` and `--server`. client-go's `ClientConfigLoadingRules` and `ConfigOverrides`.
///
/// What else kubectl can be told on its command line, such as a token or whom to act as, is set on the
/// [`Config`] that comes of it.
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
    /// The files in `$KUBECONFIG`, or else `~/.kube/config`, and of them the current context.
    pub fn new() -> Self {
        Self::default()
    }

    /// This file instead, which has to be there: kubectl's `--kubeconfig`.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.files = Files::One(path.into());
        self
    }

    /// These files instead, merged as if they stood in `$KUBECONFIG`: any of them may be missing.
    pub fn paths<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.files = Files::Several(paths.into_iter().map(Into::into).collect());
        self
    }

    /// This context instead of the current one.
    pub fn context(mut self, name: impl Into<String>) -> Self {
        self.overrides.context = Some(name.into());
        self
    }

    /// This cluster instead of the context's.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.overrides.cluster = Some(name.into());
        self
    }

    /// This user instead of the context's.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.overrides.user = Some(name.into());
        self
    }

    /// This namespace instead of the context's.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.overrides.namespace = Some(namespace.into());
        self
    }

    /// This URL instead of the cluster's, and instead of its `tls-server-name` the host of this URL. A client
    /// for a server alone needs no kubeconfig at all: see [`Config::new`].
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.overrides.server = Some(ServerUrl(url.into()));
        self
    }

    /// Reads the files and says what the context means.
    ///
    /// Where these say nothing of any cluster, and no [`path`](Self::path) was given, the service account of
    /// the pod is taken, if this runs in one. In a pod a context that names no namespace means that of the
    /// pod. Certificates and token files are read later, by [`Client::new`](crate::Client::new).
    ///
    /// As in kubectl, credentials and certificates are not used for a server that is not `https`; here they
    /// may be, but for certificates, if it is on this machine and there is no `proxy-url`.
    ///
    /// A kubeconfig names programs to run and files to read: load only those that you trust as your own.
    ///
    /// # Errors
    ///
    /// [`Error::is_config`]: a file can't be read or is no kubeconfig; there is no such context, cluster or
    /// user; they contradict themselves, or ask for what is not supported; or there is nothing at all, with
    /// every place that was looked at. It says which, and no secret.
    pub fn load(&self) -> Result<Config, Error> {
        self.load_from(&Environment::of_this_process())
    }

    /// The same for a kubeconfig that is not in a file, such as one in a Secret; relative paths in it are
    /// relative to `folder`, which may be empty for that of the process. Files that were set are not read,
    /// and no other place is looked at. client-go's `clientcmd.RESTConfigFromKubeConfig`.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
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
            Err(Problem::Empty(problem) | Problem::Wrong(problem)) => {
                Err(config_error(format!("kubeconfig: {problem}")))
            }
        }
    }

    /// Reads the files: to list the contexts that there are. Files that are missing are none.
    ///
    /// # Errors
    ///
    /// [`Error::is_config`]: a file can't be read or is no kubeconfig.
    pub fn read(&self) -> Result<Kubeconfig, Error> {
        Kubeconfig::load(&self.files.paths(&Environment::of_this_process()).1)
    }

    pub(super) fn load_from(&self, environment: &Environment) -> Result<Config, Error> {
        infer(environment, &self.files, &self.overrides)
    }
}
