//! Controllers: reconcile loops over informers, and the manager that runs them.

#[cfg_attr(not(test), expect(dead_code, reason = "until the manager uses it"))]
mod http;
mod registry;

pub use registry::MetricsRegistry;
