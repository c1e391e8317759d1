//! Whether the kind of an optional source exists.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::timers::TimerId;
use k8s_informer::client::Client;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::stop::Stop;

/// How long discovery must lack a kind that existed, in each answer. Several API servers behind one
/// address learn of a new definition at different times.
pub(super) const SETTLE: Duration = Duration::from_secs(5);

/// The time between two checks while the result may change soon.
pub(super) const CHECK: Duration = Duration::from_secs(1);

/// Whether the kind of an optional source exists.
#[derive(Default)]
pub(super) struct Presence {
    exists: AtomicBool,
    /// No other lock is taken and no user code runs while this one is held.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// When discovery began to lack a kind that exists.
    pub(super) absent_since: Option<Instant>,
    /// Whether the kind has existed before.
    pub(super) was_gone: bool,
    /// The next check.
    pub(super) timer: Option<TimerId>,
}

impl Presence {
    pub(super) fn exists(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, exists: bool) {
        self.exists.store(exists, Ordering::Release);
    }
}

/// Whether discovery has a resource. `None` if that is unknown, for example after an error.
pub(super) fn is_served(
    client: &Client,
    resource: &GroupVersionResource,
    stop: &Stop,
) -> Option<bool> {
    let found = client.rediscover(stop).ok()?;
    if found.by_resource(resource).is_some() {
        return Some(true);
    }
    // The group of a failure is empty if it is unknown.
    let concerns = |group: &str| group.is_empty() || group == resource.group;
    let mut failures = found.failures().iter();
    let is_unknown = failures.any(|failure| concerns(&failure.group));
    // The core group and the others have separate documents. A proxy can answer 404 to each.
    let is_core = |resource: &GroupVersionResource| resource.group.is_empty();
    let mut others = found.resources().iter();
    let has_document = others.any(|other| is_core(&other.resource) == is_core(resource));
    (!is_unknown && has_document).then_some(false)
}
