use std::path::PathBuf;

use crate::client::config::ServerUrl;
use crate::client::config::environment::Environment;

/// Which kubeconfigs are read. client-go's `ClientConfigLoadingRules`.
#[derive(Clone, Debug, Default)]
pub(in crate::client::config) enum Files {
    /// Those that the environment names.
    #[default]
    Usual,
    /// One that has to be there.
    One(PathBuf),
    /// Several, of which any may be missing.
    Several(Vec<PathBuf>),
}

impl Files {
    /// Their paths, and what messages call all of them.
    pub(in crate::client::config) fn paths(
        &self,
        environment: &Environment,
    ) -> (&'static str, Vec<PathBuf>) {
        match self {
            Self::Usual => environment.kubeconfig_files(),
            Self::One(path) => ("kubeconfig", vec![path.clone()]),
            Self::Several(paths) => ("kubeconfig", paths.clone()),
        }
    }
}

/// What is used instead of what the kubeconfigs say. client-go's `ConfigOverrides`.
#[derive(Clone, Debug, Default)]
pub(in crate::client::config) struct Overrides {
    pub(super) context: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) user: Option<String>,
    pub(in crate::client::config) namespace: Option<String>,
    pub(super) server: Option<ServerUrl>,
}
