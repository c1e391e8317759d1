//! Parses kubeconfig files, merges them, and converts a context to a [`Config`].

mod cluster;
mod entry;
mod merged;
mod options;
mod overrides;
mod parse;
mod schema;
mod user;

#[cfg(test)]
mod tests;

pub use self::merged::Kubeconfig;
pub(super) use self::merged::Unresolved;
pub use self::options::KubeconfigOptions;
pub(super) use self::overrides::{Files, Overrides};
