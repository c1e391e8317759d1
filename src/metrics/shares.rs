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
    let Some(metrics) = metrics.filter(|_| queues > 1) else {
        return vec![metrics.cloned(); queues];
    };
    let all = Arc::new(Shares {
        metrics: Arc::clone(metrics),
        waiting: Mutex::new(vec![0; queues]),
    });
    let share = |at| -> Arc<dyn InformerMetrics> {
        Arc::new(Share {
            all: Arc::clone(&all),
            at,
        })
    };
    (0..queues).map(share).map(Some).collect()
}

struct Shares {
    metrics: Arc<dyn InformerMetrics>,
    /// The length of each queue. Held while the total is reported, so that the last report is the
    /// current total. In the lock order it comes after the lock of the queue's meter.
    waiting: Mutex<Vec<usize>>,
}

struct Share {
    all: Arc<Shares>,
    at: usize,
}

impl InformerMetrics for Share {
    fn queued_items(&self, items: usize) {
        let mut waiting = self.all.waiting.lock();
        if let Some(waiting) = waiting.get_mut(self.at) {
            *waiting = items;
        }
        self.all.metrics.queued_items(waiting.iter().sum());
    }

    fn processing_latency(&self, latency: Duration) {
        self.all.metrics.processing_latency(latency);
    }
}
