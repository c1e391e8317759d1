//! Controllers: reconcile loops over informers, and the manager that runs them.

mod registry;

pub use registry::MetricsRegistry;
