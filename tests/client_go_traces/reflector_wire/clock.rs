//! Virtual time. It advances when a script advances it or when the reflector waits.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::time::Clock;

/// A virtual clock. Clones share their state.
#[derive(Clone)]
pub(super) struct VirtualClock(Arc<Shared>);

struct Shared {
    start: Instant,
    now: Mutex<Duration>,
    on_wait: OnceLock<Box<OnWait>>,
}

/// Replaces a wait of the reflector. Returns whether the time has passed.
type OnWait = dyn Fn(Duration, &Stop) -> bool + Send + Sync;

impl VirtualClock {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            start: Instant::now(),
            now: Mutex::default(),
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

    pub(super) fn elapsed(&self) -> Duration {
        *self.0.now.lock().unwrap()
    }

    pub(super) fn advance(&self, by: Duration) {
        *self.0.now.lock().unwrap() += by;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.0.start + self.elapsed()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.0.on_wait.get().unwrap()(duration, stop)
    }
}
