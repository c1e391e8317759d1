//! How long the processing takes: for the metrics, and for the log where others wait for it.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::{InformerMetrics, Meter};
use crate::object::Key;
use crate::panic::catch;
use crate::time::{Clock, slow};

/// A queue shorter than this is not told about.
const LONG: usize = 10;

/// The name, metrics and clock of a queue.
pub(super) struct Timing {
    pub(super) name: String,
    pub(super) meter: Meter<dyn InformerMetrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Timing {
    /// Tells how much waits; `depth` may lock the queue.
    pub(super) fn depth(&self, depth: impl FnOnce() -> usize) {
        self.meter.level(depth, InformerMetrics::queued_items);
    }

    /// Runs `process` on some items, of which `key` is the first, while `depth` others wait. It is slow if it
    /// takes more than 100 ms for each of them, or a second (D14, R23).
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
        // Clocks and loggers may be anybody's: a panic in one costs the figure, not the item.
        let began = catch(|| self.clock.now());
        let result = process();
        let told = began.and_then(|began| {
            catch(|| {
                let took = self.clock.now().saturating_duration_since(began);
                self.meter.event(|metrics| metrics.processing_latency(took));
                if depth > LONG && took > slow(items, Duration::from_millis(100), Duration::from_secs(1)) {
                    let (name, first) = (&self.name, key.map_or("without a key", |key| key));
                    log::info!(
                        "{name}: processing {items} items, the first of them {first}, took {took:?} \
                         while {depth} more wait"
                    );
                }
            })
        });
        drop(told);
        result
    }
}
