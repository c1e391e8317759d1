//! Controllers: reconcile loops over informers, and the manager that runs them.

#[cfg_attr(not(test), expect(dead_code, reason = "until the manager uses it"))]
mod checks;
#[cfg_attr(not(test), expect(dead_code, reason = "until the manager uses it"))]
mod endpoints;
#[cfg_attr(not(test), expect(dead_code, reason = "until the manager uses it"))]
mod http;
mod registry;
#[cfg_attr(not(test), expect(dead_code, reason = "until the manager uses it"))]
mod status_page;

pub use registry::MetricsRegistry;
