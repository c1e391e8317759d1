//! Where a configuration is looked for when none is given.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Config;
#[cfg(not(feature = "kubeconfig"))]
use crate::client::material::config_error;
use crate::client::material::{Material, read_trimmed};
use crate::error::Error;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What the process was started with, as a value, so that tests need not change it.
pub(in crate::client) struct Places {
    pub(in crate::client) kubeconfig: Option<OsString>,
    pub(in crate::client) home: Option<PathBuf>,
    pub(in crate::client) service_host: Option<String>,
    pub(in crate::client) service_port: Option<String>,
    pub(in crate::client) pod_namespace: Option<String>,
    pub(in crate::client) service_account: PathBuf,
}

impl Places {
    pub(in crate::client) fn of_this_process() -> Self {
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir(),
            service_host: std::env::var("KUBERNETES_SERVICE_HOST").ok(),
            service_port: std::env::var("KUBERNETES_SERVICE_PORT").ok(),
            pod_namespace: std::env::var("POD_NAMESPACE").ok(),
            service_account: SERVICE_ACCOUNT.into(),
        }
    }

    /// See [`Config::try_default`].
    #[cfg(feature = "kubeconfig")]
    pub(in crate::client) fn config(&self) -> Result<Config, Error> {
        super::KubeconfigOptions::new().load_from(self)
    }

    #[cfg(not(feature = "kubeconfig"))]
    pub(in crate::client) fn config(&self) -> Result<Config, Error> {
        let (origin, files) = self.kubeconfig_files();
        let problem = match files.iter().any(|file| file.exists()) {
            true => "there, but this program is built without k8s-informer's feature `kubeconfig`",
            false => "not there",
        };
        self.in_cluster().map_err(|in_cluster| {
            config_error(format!(
                "nothing to connect to: {origin}: {problem}; in-cluster: {in_cluster}"
            ))
        })
    }

    /// Whether `$KUBECONFIG` names any file.
    #[cfg(feature = "kubeconfig")]
    pub(in crate::client) fn has_kubeconfig(&self) -> bool {
        self.kubeconfig
            .as_ref()
            .is_some_and(|list| !list.is_empty())
    }

    /// What `$KUBECONFIG` or else the home folder says, and which of them.
    pub(in crate::client) fn kubeconfig_files(&self) -> (&'static str, Vec<PathBuf>) {
        match &self.kubeconfig {
            Some(list) if !list.is_empty() => {
                let files = std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty());
                ("$KUBECONFIG", files.collect())
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

    /// See [`Config::in_cluster`].
    pub(in crate::client) fn in_cluster(&self) -> Result<Config, String> {
        let variable = |value: &Option<String>, name| match value.as_deref() {
            None | Some("") => Err(format!("{name} is not set, so this is not a pod")),
            Some(value) => Ok(value.to_owned()),
        };
        let host = variable(&self.service_host, "KUBERNETES_SERVICE_HOST")?;
        let port = variable(&self.service_port, "KUBERNETES_SERVICE_PORT")?;
        // An IPv6 address stands in brackets in a URL.
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };

        let token = self.service_account.join("token");
        match read_trimmed(&token) {
            Ok(text) if text.is_empty() => {
                return Err(format!(
                    "the service account's token {} is empty",
                    token.display()
                ));
            }
            Ok(_) => {}
            Err(error) => {
                let path = token.display();
                return Err(format!(
                    "can't read the service account's token {path}: {error}"
                ));
            }
        }
        let mut config = Config::new(format!("https://{host}:{port}")).token_file(token);

        let ca = self.service_account.join("ca.crt");
        if ca.exists() {
            config.ca = Some(Material::file("the service account's CA", ca));
        } else {
            log::error!(
                "{} is not there: trusting the authorities of the system",
                ca.display()
            );
        }
        if let Some(namespace) = self.namespace() {
            config.default_namespace = namespace;
        }
        Ok(config)
    }

    /// The namespace of the pod, if this is one. client-go's `inClusterClientConfig`.
    #[cfg(feature = "kubeconfig")]
    pub(in crate::client) fn namespace_of_a_pod(&self) -> Option<String> {
        let set = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
        let is_pod = set(&self.service_host)
            && set(&self.service_port)
            && self.service_account.join("token").is_file();
        is_pod.then(|| self.namespace()).flatten()
    }

    /// What the downward API says comes first, as in client-go.
    fn namespace(&self) -> Option<String> {
        let of_the_account = || read_trimmed(&self.service_account.join("namespace")).ok();
        let set = self
            .pod_namespace
            .clone()
            .filter(|namespace| !namespace.is_empty());
        set.or_else(of_the_account)
            .filter(|namespace| !namespace.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A folder that goes away with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("k8s-informer-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn nothing(folder: &Path) -> Places {
        Places {
            kubeconfig: None,
            home: Some(folder.join("home")),
            service_host: None,
            service_port: None,
            pod_namespace: None,
            service_account: folder.join("serviceaccount"),
        }
    }

    #[test]
    fn every_place_is_named_when_there_is_nothing() {
        let places = nothing(Path::new("/nowhere"));
        assert_eq!(
            places.config().unwrap_err().to_string(),
            "configuration: nothing to connect to: ~/.kube/config (/nowhere/home/.kube/config): not there; \
             in-cluster: KUBERNETES_SERVICE_HOST is not set, so this is not a pod"
        );
        let places = Places {
            kubeconfig: Some("/nowhere/a:/nowhere/b".into()),
            service_host: Some("10.0.0.1".to_owned()),
            service_port: Some("443".to_owned()),
            ..places
        };
        let error = places.config().unwrap_err();
        assert!(error.is_config());
        let error = error.to_string();
        assert!(
            error.contains(
                "$KUBECONFIG (/nowhere/a, /nowhere/b): not there; in-cluster: can't read"
            ),
            "{error}"
        );
        assert!(error.contains("/nowhere/serviceaccount/token"), "{error}");
    }

    #[test]
    fn the_service_account_of_a_pod() {
        let folder = Folder::new("pod");
        folder.write("serviceaccount/token", "abc\n");
        folder.write("serviceaccount/namespace", "team\n");
        let mut places = nothing(&folder.0);
        places.service_host = Some("fd00::1".to_owned());
        places.service_port = Some("443".to_owned());
        let config = places.config().unwrap();
        assert_eq!(config.server.0, "https://[fd00::1]:443");
        assert_eq!(config.default_namespace, "team");
        assert!(config.ca.is_none(), "no ca.crt: the system's");
        assert_eq!(
            config.token_file.unwrap(),
            folder.0.join("serviceaccount/token")
        );
        folder.write("serviceaccount/ca.crt", "");
        assert!(places.config().unwrap().ca.is_some());
    }

    #[cfg(feature = "kubeconfig")]
    #[test]
    fn a_kubeconfig_comes_first_and_a_broken_one_is_not_passed_over() {
        let folder = Folder::new("order");
        folder.write("serviceaccount/token", "abc");
        let home = folder.write(
            "home/.kube/config",
            "{current-context: a, contexts: [{name: a, context: {cluster: c}}], clusters: [{name: c, cluster: {server: home}}]}",
        );
        let mut places = nothing(&folder.0);
        places.service_host = Some("10.0.0.1".to_owned());
        places.service_port = Some("443".to_owned());
        assert_eq!(places.config().unwrap().server.0, "home");

        let other = folder.write(
            "other",
            &fs::read_to_string(&home).unwrap().replace("home", "other"),
        );
        let missing = folder.0.join("missing");
        places.kubeconfig = Some(std::env::join_paths([Path::new(""), &missing, &other]).unwrap());
        assert_eq!(places.config().unwrap().server.0, "other");
        // Empty is as good as not set.
        places.kubeconfig = Some("".into());
        assert_eq!(places.config().unwrap().server.0, "home");
        // With $KUBECONFIG set, the home is not looked at.
        places.kubeconfig = Some(missing.clone().into());
        assert_eq!(places.config().unwrap().server.0, "https://10.0.0.1:443");
        // An empty file is no configuration, a broken one is an error.
        places.kubeconfig = Some(folder.write("empty", "\n").into());
        assert_eq!(places.config().unwrap().server.0, "https://10.0.0.1:443");
        places.kubeconfig = Some(folder.write("broken", "users: [").into());
        let error = places.config().unwrap_err().to_string();
        assert!(
            error.contains("/broken: ") && error.contains("line 1"),
            "{error}"
        );
    }
}
