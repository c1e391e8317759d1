//! Virtual time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use simulation::Stop;
use simulation::time::Clock;

use crate::run::Run;

/// The origin of the virtual time. Only differences matter.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The virtual time of a run, in microseconds. Clones share it.
#[derive(Clone, Default)]
pub struct Time(Arc<AtomicU64>);

impl Time {
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// The clock of the informer. A wait lets the world move on.
pub struct VirtualClock {
    pub time: Time,
    pub run: Weak<Run>,
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        *ORIGIN + Duration::from_micros(self.time.now())
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let Some(run) = self.run.upgrade() else {
            return false;
        };
        let until = self.time.now() + micros(duration);
        run.trace(|| format!("wait {duration:?}"));
        run.look(true);
        while self.time.now() < until && !stop.is_stopped() {
            run.step(until);
        }
        !stop.is_stopped()
    }
}

pub fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX / 4)
}
