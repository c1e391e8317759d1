//! kubeconfig files: how several become one, and what a context in them means as a [`Config`].

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
pub(super) use self::merged::Problem;
pub use self::options::KubeconfigOptions;
pub(super) use self::overrides::{Files, Overrides};
