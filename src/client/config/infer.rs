//! Finds the configuration as kubectl does: in kubeconfigs, or else in the service account of the
//! pod.

#[cfg(feature = "kubeconfig")]
use std::path::PathBuf;

use super::Config;
use super::environment::Environment;
#[cfg(feature = "kubeconfig")]
use super::kubeconfig::{Files, Kubeconfig, Overrides, Unresolved};
use crate::base::text::Reason;
use crate::client::credential_data::{PemSource, config_error, read_trimmed};
use crate::error::Error;
use crate::log;

impl Config {
    /// Loads a configuration from where kubectl looks for it.
    ///
    /// It reads the files in `$KUBECONFIG` (merged), or `~/.kube/config` if the variable is not
    /// set. If these files do not exist or set no current context, it uses the service account of
    /// the pod. Without the feature `kubeconfig`, it uses only the service account.
    ///
    /// To choose another context or another file, use `KubeconfigOptions`.
    ///
    /// # Errors
    ///
    /// Returns an error if a kubeconfig exists but can't be used. If there is no configuration at
    /// all, the error lists every place that was searched and why it was not usable.
    pub fn try_default() -> Result<Self, Error> {
        let environment = Environment::from_process();
        #[cfg(feature = "kubeconfig")]
        return infer(&environment, &Default::default(), &Default::default());
        #[cfg(not(feature = "kubeconfig"))]
        infer(&environment)
    }

    /// Loads the service account of the pod that this process runs in.
    ///
    /// The token file is read again for every request, so that a rotated token takes effect.
    ///
    /// # Errors
    ///
    /// Returns an error if this process does not run in a pod, or if the pod has no service
    /// account: `KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT` or the token file is missing.
    pub fn in_cluster() -> Result<Self, Error> {
        in_cluster(&Environment::from_process()).map_err(config_error)
    }
}

/// Loads the kubeconfig files and resolves the context. Uses the service account if no file exists
/// or none sets a current context.
#[cfg(feature = "kubeconfig")]
pub(super) fn infer(
    environment: &Environment,
    files: &Files,
    overrides: &Overrides,
) -> Result<Config, Error> {
    let (origin, paths) = files.paths(environment);
    let kubeconfig = Kubeconfig::load(&paths)?;

    let all_missing = kubeconfig.files.is_empty();
    let source = match (files, &paths[..]) {
        (Files::One(path), _) if all_missing => {
            return Err(config_error(format!(
                "{}: there is no such file",
                path.display()
            )));
        }
        (_, []) => origin.to_owned(),
        _ if all_missing => format!("{origin} ({})", names(&paths)),
        _ => names(&kubeconfig.files),
    };
    if all_missing && origin == Environment::KUBECONFIG {
        log::warn!("{source}: not found");
    }

    let problem = match kubeconfig.resolve(overrides) {
        Ok((mut config, has_namespace)) => {
            if !has_namespace && let Some(namespace) = namespace_of_pod(environment) {
                config.default_namespace = namespace;
            }
            return Ok(config);
        }
        Err(Unresolved::Empty(_)) if all_missing => format!("{source}: not found"),
        Err(Unresolved::Empty(problem)) if !matches!(files, Files::One(_)) => {
            format!("{source}: {problem}")
        }
        Err(Unresolved::Empty(problem) | Unresolved::Invalid(problem)) => {
            return Err(config_error(format!("{source}: {problem}")));
        }
    };

    let mut config = in_cluster(environment).map_err(|in_cluster| {
        config_error(format!(
            "no cluster configuration found: {problem}; in-cluster: {in_cluster}"
        ))
    })?;
    if !overrides.namespace.is_empty() {
        config.default_namespace.clone_from(&overrides.namespace);
    }
    Ok(config)
}

#[cfg(feature = "kubeconfig")]
fn names(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|file| file.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Without the feature `kubeconfig`, only the service account can be used.
#[cfg(not(feature = "kubeconfig"))]
pub(super) fn infer(environment: &Environment) -> Result<Config, Error> {
    let (origin, files) = environment.kubeconfig_files();
    let problem = match files.iter().any(|file| file.exists()) {
        true => {
            "found, but this program was built without the feature `kubeconfig` of k8s-informer"
        }
        false => "not found",
    };
    in_cluster(environment).map_err(|in_cluster| {
        config_error(format!(
            "no cluster configuration found: {origin}: {problem}; in-cluster: {in_cluster}"
        ))
    })
}

/// Loads the service account of the pod, or returns the reason why it can't be used. See
/// [`Config::in_cluster`].
pub(super) fn in_cluster(environment: &Environment) -> Result<Config, Reason> {
    let variable = |value: &Option<String>, name| -> Result<String, Reason> {
        match value.as_deref() {
            None | Some("") => Err(format!("{name} is not set, so this is not a pod").into()),
            Some(value) => Ok(value.to_owned()),
        }
    };
    let host = variable(&environment.service_host, "KUBERNETES_SERVICE_HOST")?;
    let port = variable(&environment.service_port, "KUBERNETES_SERVICE_PORT")?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };

    let token = environment.service_account.join("token");
    match read_trimmed(&token) {
        Ok(text) if text.is_empty() => {
            return Err(format!("the service account's token {} is empty", token.display()).into());
        }
        Ok(_) => {}
        Err(error) => {
            let path = token.display();
            return Err(format!("can't read the service account's token {path}: {error}").into());
        }
    }
    let mut config = Config::new(format!("https://{host}:{port}")).token_file(token);

    let ca = environment.service_account.join("ca.crt");
    if ca.exists() {
        config.ca = Some(PemSource::file("the service account's CA", ca));
    } else {
        log::error!(
            "{} does not exist: using the certificate authorities of the system",
            ca.display()
        );
    }
    if let Some(namespace) = namespace(environment) {
        config.default_namespace = namespace;
    }
    Ok(config)
}

/// The namespace of the pod, if this process runs in one. The client-go counterpart is
/// `inClusterClientConfig`.
#[cfg(feature = "kubeconfig")]
fn namespace_of_pod(environment: &Environment) -> Option<String> {
    let set = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
    let is_pod = set(&environment.service_host)
        && set(&environment.service_port)
        && environment.service_account.join("token").is_file();
    is_pod.then(|| namespace(environment)).flatten()
}

/// The namespace from `POD_NAMESPACE` (the downward API), or else that of the service account, as
/// in client-go.
fn namespace(environment: &Environment) -> Option<String> {
    let of_service_account = || read_trimmed(&environment.service_account.join("namespace")).ok();
    let set = environment
        .pod_namespace
        .clone()
        .filter(|namespace| !namespace.is_empty());
    set.or_else(of_service_account)
        .filter(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// A temporary directory, removed on drop.
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

    fn inferred(environment: &Environment) -> Result<Config, Error> {
        #[cfg(feature = "kubeconfig")]
        return infer(environment, &Files::Default, &Overrides::default());
        #[cfg(not(feature = "kubeconfig"))]
        infer(environment)
    }

    fn empty_environment(folder: &Path) -> Environment {
        Environment {
            kubeconfig: None,
            home: Some(folder.join("home")),
            service_host: None,
            service_port: None,
            pod_namespace: None,
            service_account: folder.join("serviceaccount"),
        }
    }

    #[test]
    fn missing_configuration_error_names_the_tried_sources() {
        let environment = empty_environment(Path::new("/nowhere"));
        assert_eq!(
            inferred(&environment).unwrap_err().to_string(),
            "configuration: no cluster configuration found: ~/.kube/config (/nowhere/home/.kube/config): not found; \
             in-cluster: KUBERNETES_SERVICE_HOST is not set, so this is not a pod"
        );
        let environment = Environment {
            kubeconfig: Some("/nowhere/a:/nowhere/b".into()),
            service_host: Some("10.0.0.1".to_owned()),
            service_port: Some("443".to_owned()),
            ..environment
        };
        let error = inferred(&environment).unwrap_err();
        assert!(error.is_config());
        let error = error.to_string();
        assert!(
            error.contains(
                "$KUBECONFIG (/nowhere/a, /nowhere/b): not found; in-cluster: can't read"
            ),
            "{error}"
        );
        assert!(error.contains("/nowhere/serviceaccount/token"), "{error}");
    }

    #[test]
    fn in_cluster_config_uses_service_account() {
        let folder = Folder::new("pod");
        folder.write("serviceaccount/token", "abc\n");
        folder.write("serviceaccount/namespace", "team\n");
        let mut environment = empty_environment(&folder.0);
        environment.service_host = Some("fd00::1".to_owned());
        environment.service_port = Some("443".to_owned());
        let config = inferred(&environment).unwrap();
        assert_eq!(config.server.0, "https://[fd00::1]:443");
        assert_eq!(config.default_namespace, "team");
        assert!(
            config.ca.is_none(),
            "without ca.crt, the system's authorities are used"
        );
        assert_eq!(
            config.token_file.unwrap(),
            folder.0.join("serviceaccount/token")
        );
        folder.write("serviceaccount/ca.crt", "");
        assert!(inferred(&environment).unwrap().ca.is_some());
    }

    #[cfg(feature = "kubeconfig")]
    #[test]
    fn kubeconfig_precedes_service_account_and_must_be_valid() {
        let folder = Folder::new("order");
        folder.write("serviceaccount/token", "abc");
        let home = folder.write(
            "home/.kube/config",
            "{current-context: a, contexts: [{name: a, context: {cluster: c}}], clusters: [{name: c, cluster: {server: home}}]}",
        );
        let mut environment = empty_environment(&folder.0);
        environment.service_host = Some("10.0.0.1".to_owned());
        environment.service_port = Some("443".to_owned());
        assert_eq!(inferred(&environment).unwrap().server.0, "home");

        let other = folder.write(
            "other",
            &fs::read_to_string(&home).unwrap().replace("home", "other"),
        );
        let missing = folder.0.join("missing");
        environment.kubeconfig =
            Some(std::env::join_paths([Path::new(""), &missing, &other]).unwrap());
        assert_eq!(inferred(&environment).unwrap().server.0, "other");
        // An empty `$KUBECONFIG` counts as not set.
        environment.kubeconfig = Some("".into());
        assert_eq!(inferred(&environment).unwrap().server.0, "home");
        // If `$KUBECONFIG` is set, the file in the home directory is not read.
        environment.kubeconfig = Some(missing.clone().into());
        assert_eq!(
            inferred(&environment).unwrap().server.0,
            "https://10.0.0.1:443"
        );
        // An empty file counts as missing; a broken one is an error.
        environment.kubeconfig = Some(folder.write("empty", "\n").into());
        assert_eq!(
            inferred(&environment).unwrap().server.0,
            "https://10.0.0.1:443"
        );
        environment.kubeconfig = Some(folder.write("broken", "users: [").into());
        let error = inferred(&environment).unwrap_err().to_string();
        assert!(
            error.contains("/broken: ") && error.contains("line 1"),
            "{error}"
        );
    }
}
