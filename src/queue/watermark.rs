//! The resource version up to which a queue has been processed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::derive::debug_fields;
use crate::base::sync::{Condvar, Mutex};
use crate::error::{WaitCause, WaitError};
use crate::resource_version::{Comparable, ResourceVersion};
use crate::stop::Stop;

/// The resource version up to which a queue has been processed. The cache that its consumer fills
/// is at least as new. Only the queue sets it.
///
/// Get the watermark of a queue with [`Queue::processed`](super::Queue::processed). Clones share
/// their state.
///
/// The watermark of a new queue has no version. It does not go back if an event has an older version
/// than an earlier one. It goes back with a list that is older, for example from a restored etcd. A
/// list without a version resets it to `None`.
///
/// Versions are compared as in apimachinery 1.35 and later: as decimal numbers of any length,
/// without leading zeros.
///
/// ```
/// use k8s_informer::object::{Accessor, ResourceVersion};
/// use k8s_informer::queue::{DeltaFifo, Queue};
/// use k8s_informer::store::ReflectorStore;
/// use k8s_informer::{DynamicObject, Stopper};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "web", "resourceVersion": "42"}}"#)?;
/// let queue = Arc::new(DeltaFifo::new(Accessor::object()));
/// let (processed, stop) = (queue.processed(), Stopper::new());
/// queue.replace(vec![Arc::new(pod)], ResourceVersion::new("42"))?;
/// let consumer = std::thread::spawn({ let queue = queue.clone(); move || queue.pop(&mut |_, _| Ok(())) });
/// let [earlier, later] = ["41", "43"].map(|version| ResourceVersion::new(version).unwrap());
/// processed.wait(&earlier, Duration::from_secs(10), &stop)?;
/// assert_eq!(processed.current(), ResourceVersion::new("42"));
/// consumer.join().unwrap()?;
///
/// stop.stop();
/// let error = processed.wait(&later, Duration::from_secs(10), &stop).unwrap_err();
/// assert!(error.is_stopped());
/// assert_eq!(error.to_string(), r#"stopped waiting for the resourceVersion "43"; last seen: 42"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Watermark {
    /// The innermost lock. A queue sets the version under its own lock; no other lock is taken
    /// under this one.
    state: Arc<Mutex<State>>,
    /// Waits for a list to be processed. [`set_settled`](Self::set_settled) and stops wake all of
    /// them.
    settled: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    reached: Option<ResourceVersion>,
    /// Whether the last list, or something before it, has not been processed.
    is_unsettled: bool,
    /// The waiting threads. A change of `reached` wakes those whose version it has reached; the
    /// `Stop` of a waiter wakes only this one.
    waiting: BTreeMap<(Comparable, u64), Arc<Condvar>>,
    /// The number of waits so far, which distinguishes waits for the same version.
    waits: u64,
}

impl State {
    fn has_reached(&self, wanted: &Comparable) -> Result<bool, WaitError> {
        let Some(reached) = &self.reached else {
            return Ok(false);
        };
        match reached.compare(wanted.version()) {
            Some(order) => Ok(order.is_ge()),
            None if reached.is_any() => Ok(false),
            None => Err(not_comparable(reached, wanted.version())),
        }
    }

    /// Wakes the waits that end at the present version. One that cannot be compared ends all.
    fn wake(&mut self) {
        // The usual case: no version is copied.
        if self.waiting.is_empty() {
            return;
        }
        let reached = self.reached.clone();
        let Some(reached) = reached.filter(|reached| !reached.is_any()) else {
            return;
        };
        let reached = Comparable::new(reached);
        while let Some(first) = self.waiting.first_entry()
            && reached
                .as_ref()
                .is_none_or(|reached| first.key().0 <= *reached)
        {
            first.remove().notify_one();
        }
    }
}

/// How the wait for one watermark ended.
enum Waited {
    Reached,
    Stopped {
        reached: Option<ResourceVersion>,
    },
    TimedOut {
        timeout: Duration,
        reached: Option<ResourceVersion>,
    },
}

/// Describes the wait for a version in an error.
fn doing(version: &ResourceVersion) -> String {
    format!("waiting for the resourceVersion \"{version}\"")
}

fn not_comparable(found: &ResourceVersion, wanted: &ResourceVersion) -> WaitError {
    WaitError::new(WaitCause::NotComparable(Some(found.clone())), doing(wanted))
}

impl Watermark {
    /// Creates an empty watermark.
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            settled: Arc::default(),
        }
    }

    /// Returns the version that has been reached. `None` if no version has been reached yet, or if
    /// the server sends no versions.
    pub fn current(&self) -> Option<ResourceVersion> {
        self.state.lock().reached.clone()
    }

    /// Sets a version, as a queue does.
    #[cfg(test)]
    pub(super) fn set(&self, version: &str) {
        self.set_reached(ResourceVersion::new(version));
    }

    /// Sets the version up to which everything has been processed.
    pub(super) fn set_reached(&self, version: Option<ResourceVersion>) {
        let mut state = self.state.lock();
        state.reached = version;
        state.wake();
    }

    /// Records whether the last list and everything before it have been processed.
    pub(super) fn set_settled(&self, is_settled: bool) {
        self.state.lock().is_unsettled = !is_settled;
        if is_settled {
            self.settled.notify_all();
        }
    }

    /// Blocks until the last list and everything before it have been processed, or until `stop` is
    /// set.
    pub(crate) fn wait_until_settled(&self, stop: &Stop) {
        let _stopped = stop.on_stop({
            let (state, settled) = (Arc::clone(&self.state), Arc::clone(&self.settled));
            // Under the lock, as in `wait_until`.
            move || {
                let _state = state.lock();
                settled.notify_all();
            }
        });
        let mut state = self.state.lock();
        while state.is_unsettled && !stop.is_stopped() {
            self.settled.wait(&mut state);
        }
    }

    /// Blocks until `version` or a later one is reached, or until `timeout` has elapsed on the real
    /// clock.
    ///
    /// # Errors
    ///
    /// Fails with [`WaitCause::NotComparable`] at once if `version` is not a decimal number without
    /// leading zeros, or as soon as the watermark reaches a version that is not. Fails when the
    /// timeout has elapsed and when `stop` is set; [`WaitError::last_seen`] is the version that was
    /// reached. If the version has already been reached, the call succeeds even with a zero timeout
    /// or a `stop` that is set.
    pub fn wait(
        &self,
        version: &ResourceVersion,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        Self::wait_all([self], version, Deadline::after(timeout), stop)
    }

    /// Blocks until each of several watermarks has reached `version`, or until the deadline. On
    /// success, each watermark has been at or above the version at some time, but may have gone back
    /// since.
    ///
    /// # Errors
    ///
    /// The same as [`wait`](Self::wait). Returns the error of the first watermark that fails.
    pub(crate) fn wait_all<'a>(
        watermarks: impl IntoIterator<Item = &'a Self>,
        version: &ResourceVersion,
        deadline: Option<Deadline>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let Some(wanted) = Comparable::new(version.clone()) else {
            return Err(not_comparable(version, version));
        };
        watermarks.into_iter().try_for_each(|watermark| {
            let (cause, reached) = match watermark.wait_until(&wanted, deadline, stop)? {
                Waited::Reached => return Ok(()),
                Waited::Stopped { reached } => (WaitCause::Stopped, reached),
                Waited::TimedOut { timeout, reached } => (WaitCause::TimedOut(timeout), reached),
            };
            let reached = reached.map(|reached| reached.to_string());
            Err(WaitError::new(cause, doing(version)).seen(reached))
        })
    }

    /// Returns the lowest version of several watermarks: the version that all of them have reached.
    /// Returns `None` if one of them has reached no version, or if they cannot be compared.
    pub(crate) fn lowest<'a>(
        watermarks: impl IntoIterator<Item = &'a Self>,
    ) -> Option<ResourceVersion> {
        ResourceVersion::lowest(watermarks.into_iter().map(Self::current))
    }

    fn wait_until(
        &self,
        wanted: &Comparable,
        deadline: Option<Deadline>,
        stop: &Stop,
    ) -> Result<Waited, WaitError> {
        // In most calls the version has been reached already, and no subscription is needed.
        if self.state.lock().has_reached(wanted)? {
            return Ok(Waited::Reached);
        }
        let changed = Arc::new(Condvar::new());
        let _stopped = stop.on_stop({
            let (state, changed) = (Arc::clone(&self.state), Arc::clone(&changed));
            // Notify under the lock, so that the waiter does not miss the notification between its
            // check and its wait.
            move || {
                let _state = state.lock();
                changed.notify_one();
            }
        });
        let mut state = self.state.lock();
        state.waits += 1;
        let key = (wanted.clone(), state.waits);
        let mut timed_out = None;
        let result = loop {
            match state.has_reached(wanted) {
                Ok(true) => break Ok(Waited::Reached),
                Ok(false) => {}
                Err(error) => break Err(error),
            }
            let reached = || state.reached.clone();
            if stop.is_stopped() {
                break Ok(Waited::Stopped { reached: reached() });
            }
            if let Some(timeout) = timed_out {
                let reached = reached();
                break Ok(Waited::TimedOut { timeout, reached });
            }
            // Insert again after a wake-up: the version may have gone back since.
            state.waiting.insert(key.clone(), Arc::clone(&changed));
            match deadline {
                Some(deadline) => {
                    let waited = changed.wait_until(&mut state, deadline.at);
                    timed_out = waited.timed_out().then_some(deadline.timeout);
                }
                None => changed.wait(&mut state),
            }
        };
        state.waiting.remove(&key);
        result
    }
}

debug_fields!(Watermark, this, current: this.current());

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::{WaitCause, WaitError, Watermark};
    use crate::resource_version::ResourceVersion;
    use crate::stop::{Stop, Stopper};

    /// Starts waits, and returns once all of them block.
    fn waits(
        watermark: &Watermark,
        versions: &[&'static str],
        stop: &Stop,
    ) -> Vec<thread::JoinHandle<Result<(), WaitError>>> {
        let before = watermark.state.lock().waiting.len();
        let wait = |version: &&'static str| {
            let (watermark, version, stop) = (watermark.clone(), *version, stop.clone());
            thread::spawn(move || watermark.wait(&version_of(version), None, &stop))
        };
        let waits = versions.iter().map(wait).collect();
        while watermark.state.lock().waiting.len() < before + versions.len() {
            thread::yield_now();
        }
        waits
    }

    fn version_of(text: &str) -> ResourceVersion {
        ResourceVersion::new(text).expect("a version has a text")
    }

    fn waiting(watermark: &Watermark) -> Vec<String> {
        let state = watermark.state.lock();
        state.waiting.keys().map(|key| key.0.to_string()).collect()
    }

    #[test]
    fn version_wakes_only_the_waits_that_it_ends() {
        let (watermark, stop, other_stop) = (Watermark::new(), Stopper::new(), Stopper::new());
        let long = "111111111111111111111111111111";
        let ended = waits(&watermark, &["9", "10", "10"], &stop);
        let stopped = waits(&watermark, &["11"], &other_stop);
        let later = waits(&watermark, &[long, "100"], &stop);
        for unrelated in ["8", "", "0", "7"] {
            watermark.set(unrelated);
            assert_eq!(waiting(&watermark), ["9", "10", "10", "11", "100", long]);
        }
        watermark.set("10");
        assert_eq!(waiting(&watermark), ["11", "100", long]);
        ended
            .into_iter()
            .for_each(|wait| wait.join().unwrap().unwrap());
        other_stop.stop();
        for wait in stopped {
            assert!(wait.join().unwrap().unwrap_err().is_stopped());
        }
        assert_eq!(waiting(&watermark), ["100", long]);
        let timed_out = watermark.wait(&version_of("12"), Duration::ZERO, &stop);
        assert!(timed_out.unwrap_err().is_timed_out());
        assert_eq!(waiting(&watermark), ["100", long]);
        watermark.set("v1");
        assert!(waiting(&watermark).is_empty());
        for wait in later {
            let ended = wait.join().unwrap().unwrap_err();
            assert_eq!(
                *ended.cause(),
                WaitCause::NotComparable(ResourceVersion::new("v1"))
            );
        }
    }

    #[test]
    fn lowest_version_is_the_one_all_watermarks_reached() {
        let several = [Watermark::new(), Watermark::new(), Watermark::new()];
        let lowest = |watermarks: &[Watermark]| {
            ResourceVersion::text(Watermark::lowest(watermarks).as_ref())
        };
        assert_eq!(lowest(&several), "");
        several
            .iter()
            .zip(["10", "9", "11"])
            .for_each(|(one, version)| one.set(version));
        assert_eq!(lowest(&several), "9");
        assert_eq!(lowest(&[]), "");
        assert_eq!(lowest(&several[..1]), "10");
        let nine = version_of("9");
        Watermark::wait_all(&several, &nine, None, &Stop::never()).unwrap();
        several[1].set("abc");
        assert_eq!(lowest(&several), "");
    }
}
