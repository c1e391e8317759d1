//! Virtual time. It advances when a script advances it or when the reflector waits.

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::time::Clock;

/// The maximum time until a thread acts, in real time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A virtual clock. Clones share their state.
#[derive(Clone)]
pub(super) struct VirtualClock(Arc<Shared>);

struct Shared {
    start: Instant,
    state: Mutex<State>,
    changed: Condvar,
    on_wait: OnceLock<Box<OnWait>>,
}

/// Replaces a wait of the reflector's own thread. Returns whether the time has passed.
type OnWait = dyn Fn(Duration, &Stop) -> bool + Send + Sync;

#[derive(Default)]
struct State {
    now: Duration,
    /// The thread that makes the requests. Any other waiting thread is the resync thread.
    reflector: Option<ThreadId>,
    resync: Resync,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Resync {
    /// There are no resyncs.
    #[default]
    Off,
    /// The resync thread is resyncing or about to wait.
    Busy,
    /// The resync thread waits until this time.
    Waiting(Duration),
}

impl VirtualClock {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            start: Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
            on_wait: OnceLock::new(),
        }))
    }

    /// Sets the replacement of waits. Call it before any thread waits.
    pub(super) fn on_wait(
        &self,
        on_wait: impl Fn(Duration, &Stop) -> bool + Send + Sync + 'static,
    ) {
        let _ = self.0.on_wait.set(Box::new(on_wait));
    }

    /// Marks the calling thread as the reflector's own.
    pub(super) fn is_reflector(&self) {
        self.0.state.lock().unwrap().reflector = Some(thread::current().id());
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.state.lock().unwrap().now
    }

    /// Marks the resync thread as busy. Call it before that thread starts.
    pub(super) fn resyncs_begin(&self) {
        self.0.state.lock().unwrap().resync = Resync::Busy;
    }

    /// Records that there are no more resyncs. Call it when the resync thread ends on its own.
    pub(super) fn resyncs_end(&self) {
        self.0.state.lock().unwrap().resync = Resync::Off;
        self.0.changed.notify_all();
    }

    /// Advances the time. Resyncs that become due run at their times. Returns early when `stop` is
    /// signalled.
    pub(super) fn advance(&self, by: Duration, stop: &Stop) {
        let until = self.elapsed() + by;
        while let Some(due) = self
            .next_resync()
            .filter(|due| *due <= until && !stop.is_stopped())
        {
            self.resync_at(due, stop);
        }
        let mut state = self.0.state.lock().unwrap();
        state.now = state.now.max(until);
    }

    /// Advances the time to the next resync and waits until it has run. Returns whether there was
    /// one.
    pub(super) fn advance_to_resync(&self, stop: &Stop) -> bool {
        let due = self.next_resync();
        due.inspect(|due| self.resync_at(*due, stop)).is_some()
    }

    fn resync_at(&self, due: Duration, stop: &Stop) {
        self.0.state.lock().unwrap().now = due;
        self.0.changed.notify_all();
        if self.settle(|resync| resync != Resync::Waiting(due) && resync != Resync::Busy)
            == Resync::Off
        {
            // The resync failed, so the watch is about to be stopped.
            stop.wait_timeout(PATIENCE);
        }
    }

    fn next_resync(&self) -> Option<Duration> {
        match self.settle(|resync| resync != Resync::Busy) {
            Resync::Waiting(due) => Some(due),
            Resync::Off | Resync::Busy => None,
        }
    }

    fn settle(&self, settled: impl Fn(Resync) -> bool) -> Resync {
        let state = self.0.state.lock().unwrap();
        let waited = self
            .0
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !settled(state.resync));
        waited.unwrap().0.resync
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.0.start + self.elapsed()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let shared = &self.0;
        if shared.state.lock().unwrap().reflector == Some(thread::current().id()) {
            return shared.on_wait.get().unwrap()(duration, stop);
        }
        let wake = Arc::clone(shared);
        let _wakes = stop.on_stop(move || {
            let _state = wake.state.lock().unwrap();
            wake.changed.notify_all();
        });
        let mut state = shared.state.lock().unwrap();
        let due = state.now + duration;
        state.resync = Resync::Waiting(due);
        shared.changed.notify_all();
        while state.now < due && !stop.is_stopped() {
            state = shared.changed.wait(state).unwrap();
        }
        let passed = !stop.is_stopped();
        state.resync = if passed { Resync::Busy } else { Resync::Off };
        shared.changed.notify_all();
        passed
    }
}
