//! What a controller does, and what failed.

use std::time::{Duration, SystemTime};

use super::outcome::Failure;
use k8s_informer::object::Key;

/// The last failure of a key. A successful call removes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastFailure {
    /// The error of the last call.
    pub failure: Failure,
    /// The number of failed calls in a row.
    pub attempts: usize,
    /// The time of the last call's end.
    pub time: SystemTime,
}

/// The work of a controller at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ControllerStatus {
    /// The number of keys that are ready for a worker, or are queued again during their call.
    pub queued: usize,
    /// The number of keys that wait for a time: a retry, or [`Next::After`](crate::Next::After).
    pub delayed: usize,
    /// The number of keys that wait until the caches contain the controller's own writes.
    pub postponed: usize,
    /// One write that each of these keys waits for, for the first 20 keys.
    pub awaited: Vec<AwaitedWrite>,
    /// The informers whose caches may lack something that was committed before the start of the
    /// controller, or before the term of this leader. There are no calls until this is empty.
    pub old_caches: Vec<SourceWait>,
    /// The keys of the calls in progress with their durations, the longest first.
    pub running: Vec<(Key, Duration)>,
    /// The number of keys whose last call failed.
    pub failing: usize,
}

/// A write that a key waits for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AwaitedWrite {
    /// The key that waits.
    pub key: Key,
    /// The name of the informer whose cache lacks the write.
    pub informer: String,
    /// The key of the written object. Empty if its name is unknown because the server generates it.
    pub object: Key,
    /// What the cache lacks: `version 71`, `its deletion`, or `a change` after a write whose result
    /// is unknown.
    pub change: String,
    /// The time since the write.
    pub since: Duration,
}

/// An informer whose cache may be too old for the first call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceWait {
    /// The name of the informer.
    pub informer: String,
    /// Why the wait is not over: the last error, or that the watch is behind.
    pub reason: String,
    /// The duration of the wait.
    pub since: Duration,
}
