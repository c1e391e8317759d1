//! What has been measured: a table for people, a line of JSON for programs.

use serde::{Deserialize, Serialize};

/// Seconds, bytes, microseconds: as the names say.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Report {
    /// What was decoded: `k8s-openapi`, `own`, `dynamic`, `metadata`.
    pub(crate) r#type: String,
    pub(crate) resource: String,
    /// How many the cache held once it had synced.
    pub(crate) objects: usize,
    /// How many pages of a list it took; none where they came by a watch.
    pub(crate) lists: u64,
    /// Objects that could not be decoded, until the end.
    pub(crate) unreadable: u64,
    pub(crate) handlers: usize,
    /// From the start until a handler gets its first object.
    pub(crate) first_object_seconds: f64,
    pub(crate) sync_seconds: f64,
    pub(crate) sync_cpu_seconds: f64,
    /// Before anything was started.
    pub(crate) resident_before_bytes: u64,
    /// Once it had synced.
    pub(crate) resident_bytes: u64,
    /// The most until then.
    pub(crate) peak_bytes: u64,
    pub(crate) threads: usize,
    /// Notifications of each handler after that.
    pub(crate) events: u64,
    /// From the first to the last of them.
    pub(crate) events_seconds: f64,
    /// From the sync to the end, as that of wake-ups.
    pub(crate) events_cpu_seconds: f64,
    pub(crate) wakeups: u64,
    /// From the sync to the end.
    pub(crate) waited_seconds: f64,
    /// From the send stamp to the handler, where objects carry one.
    pub(crate) latency: Option<Latency>,
    /// At the end.
    pub(crate) resident_after_bytes: u64,
    pub(crate) peak_after_bytes: u64,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Latency {
    pub(crate) samples: usize,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}
