use std::path::PathBuf;

use crate::client::config::ServerUrl;
use crate::client::config::environment::Environment;

/// The kubeconfig files to read. The client-go counterpart is `ClientConfigLoadingRules`.
#[derive(Clone, Debug, Default)]
pub(in crate::client::config) enum Files {
    /// The default files: see [`Environment::kubeconfig_files`].
    #[default]
    Default,
    /// One file, which must exist.
    One(PathBuf),
    /// Several files, which may be missing.
    Several(Vec<PathBuf>),
}

impl Files {
    /// Returns the name of the source for messages, and the paths.
    pub(in crate::client::config) fn paths(
        &self,
        environment: &Environment,
    ) -> (&'static str, Vec<PathBuf>) {
        match self {
            Self::Default => environment.kubeconfig_files(),
            Self::One(path) => ("kubeconfig", vec![path.clone()]),
            Self::Several(paths) => ("kubeconfig", paths.clone()),
        }
    }
}

/// Values that override those of the kubeconfigs, unless they are empty. The client-go counterpart is `ConfigOverrides`.
#[derive(Clone, Debug, Default)]
pub(in crate::client::config) struct Overrides {
    pub(super) context: String,
    pub(super) cluster: String,
    pub(super) user: String,
    pub(in crate::client::config) namespace: String,
    pub(super) server: Option<ServerUrl>,
}
