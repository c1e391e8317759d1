//! The status that [`Controller::status`](crate::Controller::status) returns.

use std::time::Duration;

use crate::controller::sources::barrier::SourceWait;
use crate::controller::writes::own_writes::AwaitedWrite;
use k8s_informer::object::Key;

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
