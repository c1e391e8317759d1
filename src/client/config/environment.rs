use std::ffi::OsString;
use std::path::PathBuf;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The environment variables and paths from which a configuration is loaded. They are fields of a
/// struct, so that tests need not change the real environment.
pub(super) struct Environment {
    pub(super) kubeconfig: Option<OsString>,
    pub(super) home: Option<PathBuf>,
    pub(super) service_host: Option<String>,
    pub(super) service_port: Option<String>,
    pub(super) pod_namespace: Option<String>,
    pub(super) service_account: PathBuf,
}

impl Environment {
    /// The name that messages use for the files listed in `$KUBECONFIG`.
    pub(super) const KUBECONFIG: &str = "$KUBECONFIG";

    pub(super) fn from_process() -> Self {
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir(),
            service_host: std::env::var("KUBERNETES_SERVICE_HOST").ok(),
            service_port: std::env::var("KUBERNETES_SERVICE_PORT").ok(),
            pod_namespace: std::env::var("POD_NAMESPACE").ok(),
            service_account: SERVICE_ACCOUNT.into(),
        }
    }

    /// Returns the name of the source for messages, and the kubeconfig files: those in
    /// `$KUBECONFIG`, or else the one in the home directory.
    pub(super) fn kubeconfig_files(&self) -> (&'static str, Vec<PathBuf>) {
        match &self.kubeconfig {
            Some(list) if !list.is_empty() => {
                let files = std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty());
                (Self::KUBECONFIG, files.collect())
            }
            _ => {
                let home = self
                    .home
                    .as_ref()
                    .filter(|home| !home.as_os_str().is_empty());
                (
                    "~/.kube/config",
                    home.map(|home| home.join(".kube/config"))
                        .into_iter()
                        .collect(),
                )
            }
        }
    }
}
