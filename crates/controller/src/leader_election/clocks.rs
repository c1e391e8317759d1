use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use super::steps::Now;
use k8s_informer::time::Clock;

/// The clocks of a candidate. Clones count from the same origin, so their times can be compared.
#[derive(Clone)]
pub(crate) struct Clocks {
    clock: Arc<dyn Clock>,
    /// The origin of the elapsed time.
    origin: Instant,
}

impl Clocks {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let origin = clock.now();
        Self { clock, origin }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn now(&self) -> Now {
        let wall = self.clock.wall_clock().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_micros();
        Now {
            elapsed: self.clock.now().saturating_duration_since(self.origin),
            wall: i64::try_from(wall).unwrap_or(i64::MAX),
        }
    }
}
