use std::sync::Arc;
use std::time::Duration;

use super::InformerMetrics;
use crate::base::sync::Mutex;

/// Returns the metrics for each of an informer's queues. They report the total length of all
/// queues.
pub(crate) fn shares(
    metrics: Option<&Arc<dyn InformerMetrics>>,
    queues: usize,
) -> Vec<Option<Arc<dyn InformerMetrics>>> {
    let lengths = Arc::new(Mutex::new(vec![0; queues]));
    let share = |at| -> Option<Arc<dyn InformerMetrics>> {
        Some(Arc::new(Share {
            metrics: Arc::clone(metrics?),
            lengths: Arc::clone(&lengths),
            at,
        }))
    };
    (0..queues).map(share).collect()
}

struct Share {
    metrics: Arc<dyn InformerMetrics>,
    /// The length of each queue. Held while the total is reported, so that the last report is the
    /// current total. In the lock order it comes after the lock of the queue's meter.
    lengths: Arc<Mutex<Vec<usize>>>,
    /// The index of this queue.
    at: usize,
}

impl InformerMetrics for Share {
    fn queued_items(&self, items: usize) {
        let mut lengths = self.lengths.lock();
        lengths[self.at] = items;
        self.metrics.queued_items(lengths.iter().sum());
    }

    fn processing_latency(&self, latency: Duration) {
        self.metrics.processing_latency(latency);
    }
}
