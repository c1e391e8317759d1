//! kubeconfig files: how several become one, and what a context in them means as a [`Config`].

mod cluster;
mod entry;
mod file;
mod merged;
mod options;
mod text;
mod user;

#[cfg(test)]
mod tests;

pub use self::merged::Kubeconfig;
pub use self::options::KubeconfigOptions;
