//! Lets a test drive a controller.

use std::collections::HashSet;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::builder::ControllerBuilder;
use super::handle::Controller;
use crate::controller::engine::probe::Probe;
use crate::controller::engine::reconcile_loop::ReconcileLoop;
use crate::controller::sources::presence::{Presence, Served};
use crate::controller::sources::source::AnySource;
use crate::events::EventSink;
use k8s_informer::handler::HandlerRegistration;
use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::reflector::ReflectorState;
use k8s_informer::stop::{Done, DoneSetter, Stop};
use k8s_informer::time::Clock;

/// The real time between two looks at an informer.
const TICK: Duration = Duration::from_millis(1);

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
        Self(Arc::clone(&controller.runner.reconcile_loop))
    }

    /// Whether the controller was built with this clock and with a test attached.
    pub fn is_driven_by(&self, clock: &Arc<dyn Clock>) -> bool {
        self.0.probe.is_some() && Arc::ptr_eq(&self.0.calls.clock, clock)
    }

    /// Passes all recorded events and counts to the sink of the test.
    pub fn flush_events(&self, timeout: Duration) {
        if let Some(recorder) = self.0.calls.recorder.get() {
            // If this times out, the test misses events.
            let _ = recorder.flush(timeout);
        }
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
        for (at, source) in self.0.calls.sources.iter().enumerate() {
            if let Some(presence) = source.presence()
                && !self.is_served(at, presence, deadline)
            {
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
            if let Some(presence) = source.presence() {
                self.check_until(at, deadline, || presence.exists());
            }
        }
        Ok::<_, StaleCache>(is_exact)
    }

    /// Whether the kind of an optional source is served, so that its cache gets the changes. If it
    /// is not, waits until its informer and the controller have noticed that.
    fn is_served(&self, at: usize, presence: &Presence, deadline: Instant) -> bool {
        let calls = &self.0.calls;
        let source = &calls.sources[at];
        let answer = calls.client.rediscover(&Stop::never());
        if Served::of(&answer, source.resource()) != Served::No {
            return true;
        }
        // A watch that has ended is not enough: the time of the controller would run before the
        // informer has asked for the kind again, or after that.
        while !is_refused(&**source) && Instant::now() < deadline {
            thread::sleep(TICK);
        }
        // The deletions that the server has sent.
        let rest = deadline.saturating_duration_since(Instant::now());
        if let Some(version) = source.status().resource_version {
            let _ = source.wait_for_version(&version, rest);
        }
        // A kind that has existed is gone after some time, which begins now.
        self.check_until(at, deadline, || {
            presence.is_missing() || presence.is_doubted()
        });
        false
    }

    /// Repeats the check of an optional source until `condition` holds. The threads of the informer
    /// report one after another that the first list is complete.
    fn check_until(&self, at: usize, deadline: Instant, condition: impl Fn() -> bool) {
        while !condition() && Instant::now() < deadline {
            self.check_now(at, deadline.min(Instant::now() + TICK));
            if !condition() {
                thread::sleep(TICK);
            }
        }
        // The last check may still queue the keys.
        let rest = deadline.saturating_duration_since(Instant::now());
        self.due_timers_done().wait_timeout(rest);
    }

    /// Checks an optional source, on the thread of these checks. It begins after the start.
    fn check_now(&self, at: usize, deadline: Instant) {
        self.0.check_optional_after(at, Duration::ZERO);
        let rest = deadline.saturating_duration_since(Instant::now());
        self.due_timers_done().wait_timeout(rest);
    }

    /// Returns the time of the next retry, or of the next check for own writes.
    pub fn next_work(&self) -> Option<Instant> {
        let failures = self.0.calls.failures(usize::MAX);
        let retried = failures
            .iter()
            .filter(|(_, last)| !last.failure.is_terminal());
        let retried: HashSet<&Key> = retried.map(|(key, _)| key).collect();
        let retry = self.0.queue.next_due(|key| retried.contains(key));
        let is_waiting = self.0.postponed.len() > 0;
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
        match self.0.has_optional() {
            true => {
                self.0.optional.after(Duration::ZERO, then);
                self.0.optional.wake();
            }
            false => then(),
        }
        done.signal()
    }
}

/// Whether the lists and watches of a source fail.
fn is_refused(source: &dyn AnySource) -> bool {
    let status = source.status();
    let is_watching = status.state == ReflectorState::Watching;
    status.failures > 0 && !is_watching
}

/// A cache that has not reached a version.
struct StaleCache(String);

impl Display for StaleCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
