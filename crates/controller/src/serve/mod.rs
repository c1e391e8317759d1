//! The HTTP endpoints of a manager: checks, metrics and the status page, whose text they get.

pub(crate) mod checks;
pub(crate) mod endpoints;
pub(crate) mod http;
pub(crate) mod json;
mod registry;

pub use registry::{Counter, Gauge, Histogram, MetricsRegistry};
