use std::sync::Arc;

use crate::metrics::WorkQueueMetrics;
use crate::panic::catch;
use crate::sync::Mutex;

/// Somebody who is told, or nobody.
pub(super) struct Meter {
    metrics: Option<Arc<dyn WorkQueueMetrics>>,
    /// Held while the depth is read and told, so that what is told last is how it is. Taken before the lock
    /// of the queue, never under it.
    order: Mutex<()>,
}

impl Meter {
    pub(super) fn new(metrics: Option<Arc<dyn WorkQueueMetrics>>) -> Self {
        Self { metrics, order: Mutex::new(()) }
    }

    pub(super) fn is_on(&self) -> bool {
        self.metrics.is_some()
    }

    /// Tells how much waits; `read` locks the queue.
    pub(super) fn depth(&self, read: impl FnOnce() -> usize) {
        let Some(metrics) = &self.metrics else { return };
        let _in_order = self.order.lock();
        say(|| metrics.depth(read()));
    }

    /// Tells of something that has happened.
    pub(super) fn event(&self, tell: impl FnOnce(&dyn WorkQueueMetrics)) {
        if let Some(metrics) = &self.metrics {
            say(|| tell(&**metrics));
        }
    }
}

fn say(tell: impl FnOnce()) {
    if let Err(panic) = catch(tell) {
        // If the logger panics too, nobody is left to tell.
        drop(catch(|| log::error!("metrics of a work queue {panic}")));
    }
}
