//! Lets a test drive a controller.

use std::collections::HashSet;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::ControllerBuilder;
use super::handle::Controller;
use crate::controller::engine::probe::Probe;
use crate::controller::engine::reconcile_loop::ReconcileLoop;
use crate::events::EventSink;
use k8s_informer::handler::HandlerRegistration;
use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::stop::{Done, DoneSetter};
use k8s_informer::time::Clock;

/// The side of a controller that `ControllerTest` uses.
#[doc(hidden)]
pub struct Drive(Arc<ReconcileLoop>);

impl Drive {
    /// Lets a test observe the controller, and start its calls one by one in the order of the keys.
    ///
    /// `handler_added` is called when a handler of the controller was added to an informer.
    /// `wait_to_begin` blocks a worker until it may take the next key. `ended` is called when a
    /// worker has finished with a key, with `false` if the key was put aside. `events` receives the
    /// events of the controller.
    pub fn attach<T>(
        mut builder: ControllerBuilder<T>,
        handler_added: impl Fn(HandlerRegistration) + Send + Sync + 'static,
        wait_to_begin: impl Fn() + Send + Sync + 'static,
        ended: impl Fn(Key, bool) + Send + Sync + 'static,
        events: Arc<dyn EventSink>,
    ) -> ControllerBuilder<T> {
        builder.probe = Some(Probe {
            handler_added: Box::new(handler_added),
            wait_to_begin: Box::new(wait_to_begin),
            ended: Box::new(ended),
            events,
        });
        builder
    }

    /// Returns the hooks of a controller.
    pub fn of<T>(controller: &Controller<T>) -> Self {
        Self(controller.runner.current())
    }

    /// Whether the controller was built with this clock and with a test attached.
    pub fn is_driven_by(&self, clock: &Arc<dyn Clock>) -> bool {
        self.0.probe.is_some() && Arc::ptr_eq(&self.0.core.clock, clock)
    }

    /// Passes all recorded events and counts to the sink of the test.
    pub fn flush_events(&self, timeout: Duration) {
        self.0.core.events.flush(timeout);
    }

    /// Returns how long calls can take after a stop.
    pub fn grace_period(&self) -> Duration {
        self.0.settings.grace_period
    }

    /// Waits until all caches contain all changes up to this version, and the controller knows which
    /// optional kinds exist. Returns whether the caches have exactly this version: they have later
    /// ones until they notice that the server was restored.
    ///
    /// # Errors
    ///
    /// Returns the problem of the first cache that does not reach the version.
    pub fn wait_for_caches(
        &self,
        version: u64,
        deadline: Instant,
    ) -> Result<bool, impl Display + use<>> {
        let mut is_exact = true;
        let Some(wanted) = ResourceVersion::new(&version.to_string()) else {
            unreachable!("the text of a number is not empty");
        };
        let (sources, optional) = (&self.0.core.sources, &self.0.optional);
        for (at, source) in sources.iter().enumerate() {
            if !optional.is_served(at, deadline) {
                continue;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let reached = source.wait_for_version(&wanted, rest).map_err(|error| {
                let (name, status) = (source.name(), source.status());
                StaleCache(format!(
                    "the cache of {name} has not reached version {version} ({error}): {status}"
                ))
            })?;
            is_exact &= reached.as_ref() == Some(&wanted);
            optional.wait_until_exists(at, deadline);
        }
        Ok::<_, StaleCache>(is_exact)
    }

    /// Returns the time of the next retry, or of the next check for own writes.
    pub fn next_work(&self) -> Option<Instant> {
        let failures = self.0.calls.failures(usize::MAX);
        let retried = failures
            .iter()
            .filter(|(_, last)| !last.failure.is_terminal());
        let retried: HashSet<&Key> = retried.map(|(key, _)| key).collect();
        let retry = self.0.queue.next_due(|key| retried.contains(key));
        let is_waiting = self.0.own_writes.postponed() > 0;
        let check = is_waiting.then(|| self.0.timers.next_due()).flatten();
        retry.into_iter().chain(check).min()
    }

    /// Returns the time of the next retry, delayed key or timer.
    pub fn next_due(&self) -> Option<Instant> {
        let delayed = self.0.queue.next_due(|_| true);
        let timers = [self.0.timers.next_due(), self.0.optional.next_due()];
        delayed
            .into_iter()
            .chain(timers.into_iter().flatten())
            .min()
    }

    /// Returns a signal that is set when all timers that are due have run.
    pub fn due_timers_done(&self) -> Done {
        let done = DoneSetter::new("due timers");
        let set = done.clone();
        let this = Arc::clone(&self.0);
        let then = move || {
            this.timers.after(Duration::ZERO, move || set.set());
            this.timers.wake();
        };
        match self.0.optional.has_any() {
            true => self.0.optional.after_due(then),
            false => then(),
        }
        done.signal()
    }
}

/// A cache that has not reached a version.
struct StaleCache(String);

impl Display for StaleCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
