//! Measures processing times, for metrics and for the log.

use std::sync::Arc;
use std::time::Duration;

use crate::base::panic::catch;
use crate::log;
use crate::metrics::{InformerMetrics, Meter};
use crate::object::Key;
use crate::time::{Clock, slow_threshold};

/// Slow processing is logged only if more than this number of items wait.
const LONG: usize = 10;

/// The name, metrics and clock of a queue.
pub(super) struct Timing {
    pub(super) name: String,
    pub(super) meter: Meter<dyn InformerMetrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Timing {
    /// Reports the number of waiting items. Call it without the lock: `depth` may lock the queue.
    pub(super) fn depth(&self, depth: impl FnOnce() -> usize) {
        self.meter.level(depth, InformerMetrics::queued_items);
    }

    /// Runs `process` on `items` items while `depth` others wait, and reports how long it takes.
    /// `key` is the key of the first item. The limit for the log is 100 ms per item, but at most
    /// one second (D14, R23).
    pub(super) fn run<R>(
        &self,
        items: usize,
        key: Option<&Key>,
        depth: usize,
        process: impl FnOnce() -> R,
    ) -> R {
        if depth <= LONG && !self.meter.is_on() {
            return process();
        }
        // The clock and the logger may be user code. If one of them panics, only the measurement is
        // lost.
        let began = catch(|| self.clock.now());
        let result = process();
        let measured = began.and_then(|began| {
            catch(|| {
                let took = self.clock.now().saturating_duration_since(began);
                self.meter.event(|metrics| metrics.processing_latency(took));
                if depth > LONG && took > slow_threshold(items, Duration::from_millis(100), Duration::from_secs(1)) {
                    let (name, first) = (&self.name, key.map_or("without a key", |key| key));
                    log::info!(
                        "{name}: processing took {took:?}; items: {items}, first: {first}, still queued: {depth}"
                    );
                }
            })
        });
        drop(measured);
        result
    }
}
