//! The result of a measurement, printed as a table and as one line of JSON.

use serde::{Deserialize, Serialize};

/// The figures. The suffixes of the names are the units.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Report {
    /// The type of the decoded objects: `k8s-openapi`, `custom`, `dynamic` or `metadata`.
    pub(crate) r#type: String,
    pub(crate) resource: String,
    /// The number of objects in the cache after the sync.
    pub(crate) objects: usize,
    /// The number of pages of the initial list. 0 if it arrived by a watch.
    pub(crate) lists: u64,
    /// The number of objects, until the end, that could not be decoded.
    pub(crate) unreadable: u64,
    pub(crate) handlers: usize,
    /// The time from the start until a handler receives its first object.
    pub(crate) first_object_seconds: f64,
    pub(crate) sync_seconds: f64,
    pub(crate) sync_cpu_seconds: f64,
    /// The memory before anything is started.
    pub(crate) resident_before_bytes: u64,
    /// The memory after the sync.
    pub(crate) resident_bytes: u64,
    /// The peak memory until the sync.
    pub(crate) peak_bytes: u64,
    pub(crate) threads: usize,
    /// The number of notifications per handler after the sync.
    pub(crate) events: u64,
    /// The time from the first to the last notification after the sync.
    pub(crate) events_seconds: f64,
    /// The CPU time from the sync to the end. `wakeups` covers the same time.
    pub(crate) events_cpu_seconds: f64,
    pub(crate) wakeups: u64,
    /// The time from the sync to the end.
    pub(crate) waited_seconds: f64,
    /// The latency from the send time to the handler, if objects carry a send time.
    pub(crate) latency: Option<Latency>,
    /// The memory at the end.
    pub(crate) resident_after_bytes: u64,
    pub(crate) peak_after_bytes: u64,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Latency {
    pub(crate) samples: usize,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}
