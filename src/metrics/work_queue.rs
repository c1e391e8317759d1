use std::time::Duration;

/// Is told how a work queue stands. client-go's `MetricsProvider`, in which each of the figures is a metric
/// of its own; here one of these belongs to one queue, so no name is needed to tell queues apart (Q18).
///
/// Each has a default that does nothing. They are called by the threads that use the queue and by the queue's
/// own, so they must be quick, and under a lock of the metrics' own, so they must not use the queue; a panic
/// in one is logged. Where nobody wants to know, nothing is measured.
///
/// ```
/// use k8s_informer::workqueue::{WorkQueue, WorkQueueMetrics};
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
    /// How many items wait now, those included that were added while they are being processed.
    /// `workqueue_depth`.
    fn depth(&self, items: usize) {
        let _ = items;
    }

    /// An item was added that neither waited nor was to be processed again. `workqueue_adds_total`.
    fn added(&self) {}

    /// How long an item has waited from when it was added to when it was got.
    /// `workqueue_queue_duration_seconds`.
    fn queue_duration(&self, waited: Duration) {
        let _ = waited;
    }

    /// How long an item was being processed. `workqueue_work_duration_seconds`.
    fn work_duration(&self, worked: Duration) {
        let _ = worked;
    }

    /// For how long all items that are being processed now have been, in sum; told twice a second until the
    /// queue is shut down. `workqueue_unfinished_work_seconds`.
    fn unfinished_work(&self, total: Duration) {
        let _ = total;
    }

    /// For how long the one that takes longest has been; told with
    /// [`unfinished_work`](Self::unfinished_work). `workqueue_longest_running_processor_seconds`.
    fn longest_running_processor(&self, longest: Duration) {
        let _ = longest;
    }

    /// An item was added with a delay, be it none. `workqueue_retries_total`.
    fn retried(&self) {}
}
