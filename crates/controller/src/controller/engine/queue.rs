//! The work queues of a controller: each term has its own.

use std::io;
use std::sync::Arc;

use super::probe::KeyOrder;
use k8s_informer::__private::catch;
use k8s_informer::metrics::WorkQueueMetrics;
use k8s_informer::object::Key;
use k8s_informer::time::Clock;
use k8s_informer::workqueue::{PriorityQueue, RateLimiter, WorkQueue};

/// What the queues of a controller have in common.
pub(crate) struct QueueSettings {
    pub(crate) name: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) starvation_limit: usize,
    /// The limiter can have state beyond the keys, such as a bucket, so all terms share it.
    pub(crate) limiter: Arc<dyn RateLimiter<Key>>,
    pub(crate) metrics: Option<Arc<dyn WorkQueueMetrics>>,
    /// Whether keys leave the queue in their alphabetical order, for a test.
    pub(crate) is_sorted: bool,
}

impl QueueSettings {
    /// Builds the queue of the next term, which is empty.
    pub(crate) fn build(&self) -> io::Result<PriorityQueue<Key>> {
        let mut queue = WorkQueue::builder()
            .name(&*self.name)
            .clock(Arc::clone(&self.clock))
            .starvation_limit(self.starvation_limit);
        if let Some(metrics) = &self.metrics {
            // The queue of the last term may have ended with keys. Metrics are user code.
            drop(catch(|| metrics.depth(0)));
            queue = queue.metrics(Arc::clone(metrics));
        }
        if self.is_sorted {
            queue = queue.order(KeyOrder::default());
        }
        queue.build_priority(Arc::clone(&self.limiter))
    }
}
