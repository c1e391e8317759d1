//! The HTTP endpoints of a manager: checks, metrics and the status page.

pub(crate) mod checks;
pub(crate) mod endpoints;
pub(crate) mod http;
mod registry;
pub(crate) mod status_page;

pub use registry::{Counter, Gauge, Histogram, MetricsRegistry};
