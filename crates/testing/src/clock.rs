use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::wait::check;
use k8s_informer::error::WaitError;
use k8s_informer::stop::Stop;
use k8s_informer::time::Clock;
use parking_lot::{Condvar, Mutex};

/// A clock that only moves when a test advances it.
///
/// Clones share the same time.
///
/// ```
/// use k8s_informer::Stop;
/// use k8s_informer::time::Clock;
/// use k8s_informer_testing::FakeClock;
/// use std::time::Duration;
///
/// let clock = FakeClock::new();
/// let sleeper = std::thread::spawn({
///     let clock = clock.clone();
///     move || clock.wait(Duration::from_secs(600), &Stop::never())
/// });
/// clock.wait_for_waits(1, Duration::from_secs(10)).unwrap();
/// clock.advance(Duration::from_secs(600));
/// assert!(sleeper.join().unwrap());
/// assert_eq!(clock.waits(), [Duration::from_secs(600)]);
/// ```
#[derive(Clone)]
pub struct FakeClock {
    shared: Arc<Shared>,
}

struct Shared {
    start: Instant,
    wall_start: SystemTime,
    /// This is an innermost lock: no other lock is taken while it is held.
    state: Mutex<State>,
    /// Notified of changes of `state` and of stops: by `advance`, by each wait that begins, and by
    /// the stop.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    elapsed: Duration,
    suspended: Duration,
    waits: Vec<Duration>,
}

impl FakeClock {
    /// Creates a clock that starts at the current real time.
    pub fn new() -> Self {
        let shared = Shared {
            start: Instant::now(),
            wall_start: SystemTime::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Advances the clock and wakes all waits whose time has passed.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.state.lock();
        state.elapsed = state.elapsed.saturating_add(by);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Advances only the wall clock, as while a machine is suspended.
    ///
    /// ```
    /// use k8s_informer::time::Clock;
    /// use k8s_informer_testing::FakeClock;
    /// use std::time::Duration;
    ///
    /// let clock = FakeClock::new();
    /// let (monotonic, wall) = (clock.now(), clock.wall_clock());
    /// clock.suspend(Duration::from_secs(600));
    /// assert_eq!(clock.now(), monotonic);
    /// assert_eq!(clock.wall_clock(), wall + Duration::from_secs(600));
    /// ```
    pub fn suspend(&self, by: Duration) {
        let mut state = self.shared.state.lock();
        state.suspended = state.suspended.saturating_add(by);
    }

    /// Blocks until at least `count` waits have begun since the clock was created.
    ///
    /// # Errors
    ///
    /// Fails after `timeout`, in real time.
    pub fn wait_for_waits(&self, count: usize, timeout: Duration) -> Result<(), WaitError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        while state.waits.len() < count {
            if self
                .shared
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                let waits = state.waits.len();
                return check(waits >= count, timeout, || {
                    (
                        format!("{count} waits on the fake clock"),
                        format!("{waits} waits"),
                    )
                });
            }
        }
        Ok(())
    }

    /// Returns the requested durations of all waits so far, in the order in which they began.
    pub fn waits(&self) -> Vec<Duration> {
        self.shared.state.lock().waits.clone()
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        self.shared.start + self.shared.state.lock().elapsed
    }

    fn wall_clock(&self) -> SystemTime {
        let state = self.shared.state.lock();
        self.shared.wall_start + state.elapsed + state.suspended
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || {
            // Takes the lock, so that the wake-up cannot fall between a waiter's check and its
            // wait.
            let _state = shared.state.lock();
            shared.changed.notify_all();
        });
        let mut state = self.shared.state.lock();
        let until = state.elapsed.saturating_add(duration);
        state.waits.push(duration);
        self.shared.changed.notify_all();
        while state.elapsed < until && !stop.is_stopped() {
            self.shared.changed.wait(&mut state);
        }
        !stop.is_stopped()
    }
}

impl fmt::Debug for FakeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeClock")
            .field("elapsed", &self.shared.state.lock().elapsed)
            .finish_non_exhaustive()
    }
}
