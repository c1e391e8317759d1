//! The connection between a controller and a test that drives it.

use std::collections::BTreeSet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::Controller;
use k8s_informer::handler::HandlerRegistration;
use k8s_informer::object::Key;
use k8s_informer::stop::Done;
use k8s_informer::time::Clock;
use k8s_informer::workqueue::Order;

/// Observes a controller, and lets its workers continue one by one.
pub trait Probe: Send + Sync {
    /// A handler of the controller was added to an informer.
    fn handler_added(&self, registration: HandlerRegistration);

    /// Blocks a worker until it may take the next key.
    fn wait_to_begin(&self);

    /// A worker has finished with a key. `is_called` is `false` if the key was put aside.
    fn ended(&self, key: Key, is_called: bool);
}

/// Returns the keys in their alphabetical order. The order of arrival depends on threads, and so do
/// the priorities: an object can belong to the initial list or follow it.
#[derive(Default)]
pub(super) struct KeyOrder(BTreeSet<Key>);

impl Order<Key> for KeyOrder {
    fn push(&mut self, key: Key) {
        self.0.insert(key);
    }

    fn pop(&mut self) -> Option<Key> {
        self.0.pop_first()
    }
}

impl<T> Controller<T> {
    /// Whether the controller was built with this clock and with a probe.
    #[doc(hidden)]
    pub fn is_driven_by(&self, clock: &Arc<dyn Clock>) -> bool {
        let settings = &self.runner.reconcile_loop.settings;
        settings.probe.is_some() && Arc::ptr_eq(&settings.clock, clock)
    }

    #[doc(hidden)]
    pub fn grace_period(&self) -> Duration {
        self.runner.reconcile_loop.settings.grace_period
    }

    /// Waits until all caches contain all changes up to this version. Returns whether they have
    /// exactly this version: they have later ones until they notice that the server was restored.
    ///
    /// # Errors
    ///
    /// Returns the problem of the first cache that does not reach the version.
    #[doc(hidden)]
    pub fn wait_for_caches(&self, version: u64, deadline: Instant) -> Result<bool, String> {
        let mut is_exact = true;
        for source in &self.runner.reconcile_loop.sources {
            let rest = deadline.saturating_duration_since(Instant::now());
            let reached = source
                .wait_for_version(&version.to_string(), rest)
                .map_err(|error| {
                    let (name, status) = (source.name(), source.status());
                    format!(
                        "the cache of {name} has not reached version {version} ({error}): {status}"
                    )
                })?;
            is_exact &= reached == version.to_string();
        }
        Ok(is_exact)
    }

    /// Returns the time of the next retry, or of the next check for own writes.
    #[doc(hidden)]
    pub fn next_work(&self) -> Option<Instant> {
        let of = &self.runner.reconcile_loop;
        let failures = of.failures();
        let retried = failures
            .iter()
            .filter(|(_, last)| !last.failure.is_terminal());
        let retried: HashSet<&Key> = retried.map(|(key, _)| key).collect();
        let retry = of.queue.next_due(|key| retried.contains(key));
        let is_waiting = of.status().postponed > 0;
        let check = is_waiting.then(|| of.timers.next_due()).flatten();
        retry.into_iter().chain(check).min()
    }

    /// Returns the time of the next retry, delayed key or timer.
    #[doc(hidden)]
    pub fn next_due(&self) -> Option<Instant> {
        let of = &self.runner.reconcile_loop;
        let delayed = of.queue.next_due(|_| true);
        delayed.into_iter().chain(of.timers.next_due()).min()
    }

    /// Returns a signal that is set when all timers that are due have run.
    #[doc(hidden)]
    pub fn due_timers_done(&self) -> Done {
        let timers = &self.runner.reconcile_loop.timers;
        let done = Done::new("due timers");
        let set = done.clone();
        timers.after(Duration::ZERO, move || set.set());
        timers.wake();
        done
    }
}
