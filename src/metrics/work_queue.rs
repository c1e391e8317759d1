use std::time::Duration;

/// Receives the metrics of a work queue. client-go's `MetricsProvider`, where each method is a
/// separate metric. A `WorkQueueMetrics` belongs to one queue, so its methods have no parameter for
/// the queue's name.
///
/// Every method has a default that does nothing. The threads that use the queue and the queue's own
/// thread call these methods, so they must be fast. A lock of the metrics is held during a call, so
/// a method must not use the queue. A panic is caught and logged. Without metrics, nothing is
/// measured.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue, WorkQueueMetrics};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// #[derive(Default)]
/// struct Depth(AtomicUsize);
///
/// impl WorkQueueMetrics for Depth {
///     fn depth(&self, items: usize) {
///         self.0.store(items, Ordering::Relaxed);
///     }
/// }
///
/// let depth = Arc::new(Depth::default());
/// let queue = WorkQueue::builder().name("pods").metrics(depth.clone()).build()?;
/// queue.add("a");
/// assert_eq!(depth.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait WorkQueueMetrics: Send + Sync + 'static {
    /// The current number of waiting items. It includes items that were added again while they are
    /// being processed. `workqueue_depth`.
    fn depth(&self, items: usize) {
        let _ = items;
    }

    /// An item was added that was neither waiting nor already marked to be processed again.
    /// `workqueue_adds_total`.
    fn added(&self) {}

    /// The time between the add of an item and its removal by a worker.
    /// `workqueue_queue_duration_seconds`.
    fn queue_duration(&self, waited: Duration) {
        let _ = waited;
    }

    /// The duration of processing an item. `workqueue_work_duration_seconds`.
    fn work_duration(&self, worked: Duration) {
        let _ = worked;
    }

    /// The total time that all items in progress have been processed so far. Reported twice per
    /// second until the queue is shut down. `workqueue_unfinished_work_seconds`.
    fn unfinished_work(&self, total: Duration) {
        let _ = total;
    }

    /// The longest time that an item in progress has been processed so far. Reported together with
    /// [`unfinished_work`](Self::unfinished_work). `workqueue_longest_running_processor_seconds`.
    fn longest_running_processor(&self, longest: Duration) {
        let _ = longest;
    }

    /// An item was added with a delay, which may be zero. `workqueue_retries_total`.
    fn retried(&self) {}
}
