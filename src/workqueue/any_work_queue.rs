use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::item::Item;
use super::work_item::WorkItem;
use crate::error::ShutdownError;
use crate::stop::Stop;

pub(super) mod sealed {
    use super::{Core, Item};

    /// Other types do not implement it, so a queue can get further methods.
    #[allow(unnameable_types, reason = "this seals the trait")]
    pub trait Sealed<T: Item> {
        fn core(&self) -> &Core<T>;
    }
}

/// The methods that all work queues share. client-go's `workqueue.TypedInterface`.
///
/// [`WorkQueue`], [`DelayingQueue`], [`RateLimitingQueue`] and [`PriorityQueue`] implement the trait;
/// other types cannot. Import it together with the queue:
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, DelayingQueue, WorkQueue};
///
/// /// A worker for every queue of names.
/// fn work(queue: &impl AnyWorkQueue<&'static str>) -> Vec<&'static str> {
///     std::iter::from_fn(|| queue.take().map(|name| *name)).collect()
/// }
///
/// /// An event handler that does not know the type of the queue.
/// fn enqueue(queue: &dyn AnyWorkQueue<&'static str>) {
///     queue.add("a");
///     queue.add("b");
///     queue.stop();
/// }
///
/// let (plain, delaying) = (WorkQueue::new(), DelayingQueue::new()?);
/// enqueue(&plain);
/// enqueue(&delaying);
/// assert_eq!(work(&plain), ["a", "b"]);
/// assert_eq!(work(&plain), work(&delaying)[2..]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// [`WorkQueue`]: super::WorkQueue
/// [`DelayingQueue`]: super::DelayingQueue
/// [`RateLimitingQueue`]: super::RateLimitingQueue
/// [`PriorityQueue`]: super::PriorityQueue
#[doc(alias = "Interface")]
#[doc(alias = "TypedInterface")]
pub trait AnyWorkQueue<T: Item>: sealed::Sealed<T> + Send + Sync {
    /// Adds an item.
    ///
    /// If the item already waits, it stays in the queue once, and the order may
    /// [move](super::Order::touch) it. If the item is being processed, it is queued again when that
    /// processing ends. Does nothing if the queue is stopped.
    fn add(&self, item: T) {
        self.core().shared.add(item, 0);
    }

    /// Blocks until an item is available and takes it.
    ///
    /// Returns `None` once the queue is stopped and no item waits. A worker should then end.
    /// Dropping the [`WorkItem`] finishes the item.
    fn take(&self) -> Option<WorkItem<'_, T>> {
        let shared = &self.core().shared;
        shared
            .get(|| false)
            .map(|taken| WorkItem::new(shared, taken))
    }

    /// Like [`take`](Self::take), but also returns `None` as soon as `stop` is triggered.
    fn take_or_stop(&self, stop: &Stop) -> Option<WorkItem<'_, T>> {
        let shared = &self.core().shared;
        let woken = Arc::clone(shared);
        let _wakes = stop.on_stop(move || woken.wake_all());
        shared
            .get(|| stop.is_stopped())
            .map(|taken| WorkItem::new(shared, taken))
    }

    /// Like [`take`](Self::take), but you must call [`done`](Self::done) yourself, as in Go.
    fn get(&self) -> Option<T> {
        self.core().shared.get(|| false).map(|taken| taken.item)
    }

    /// Finishes the processing of an item returned by [`get`](Self::get).
    ///
    /// If the item was added meanwhile, it is queued again. If the item is not being processed,
    /// this only logs a warning.
    fn done(&self, item: &T) {
        self.core().shared.done(item, None);
    }

    /// Returns the number of waiting items, without items that are being processed or delayed.
    fn len(&self) -> usize {
        self.core().shared.change(|state, _, _| state.len())
    }

    /// Whether no item waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of delayed items.
    fn delayed_len(&self) -> usize {
        self.core().shared.change(|state, _, _| state.delayed.len())
    }

    /// Signals the queue to end, and returns at once: the queue accepts no more items and drops the
    /// delayed ones. client-go's `ShutDown`.
    ///
    /// Waiting items are still returned, and so are items that were added while they were being
    /// processed. Then [`take`](Self::take) returns `None`. Every blocked
    /// [`shut_down`](Self::shut_down) returns.
    ///
    /// To wait for the queue's thread, drop the queue or call [`shut_down`](Self::shut_down).
    #[doc(alias = "ShutDown")]
    fn stop(&self) {
        self.core().shared.stop();
    }

    /// Signals the queue to end, drops the delayed items, and blocks until all waiting items are
    /// processed and the queue's own thread, if any, has ended. Without a timeout, it blocks as long as that takes.
    /// client-go's `ShutDownWithDrain`, which has no timeout.
    ///
    /// Workers must keep taking items until the queue returns `None`. Do not call this method
    /// without a timeout from a worker that holds an item: it would wait for itself. The timeout
    /// uses the system clock.
    ///
    /// # Errors
    ///
    /// The queue is stopped in any case. After an error, workers may go on with the remaining items,
    /// unless you stop them, and you can call the method again.
    ///
    /// - [`TimedOut`](ShutdownError::TimedOut): `stuck` has one entry: the name of the queue and the
    ///   number of items in process and waiting, because items have no `Debug`. If all items are
    ///   processed, it is the name of the queue's thread, which is in your metrics or clock.
    /// - [`Interrupted`](ShutdownError::Interrupted): another thread called [`stop`](Self::stop).
    /// - [`FromWithin`](ShutdownError::FromWithin): a callback on the queue's thread called the
    ///   method.
    ///
    /// ```
    /// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// let error = queue.shut_down(Duration::from_millis(1)).unwrap_err(); // No worker takes the item.
    /// assert_eq!(
    ///     error.to_string(),
    ///     "timed out after 1ms; unfinished: workqueue: 0 items in process, 1 waiting"
    /// );
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| while let Some(item) = queue.take() {
    ///         item.done();
    ///     });
    ///     queue.shut_down(None)
    /// })?;
    /// assert!(queue.is_stopped() && queue.is_empty());
    /// # Ok::<(), k8s_informer::error::ShutdownError>(())
    /// ```
    #[doc(alias = "ShutDownWithDrain")]
    fn shut_down(&self, timeout: impl Into<Option<Duration>>) -> Result<(), ShutdownError>
    where
        Self: Sized,
    {
        self.core().shut_down(timeout.into())
    }

    /// Whether [`stop`](Self::stop) or [`shut_down`](Self::shut_down) was called. client-go's
    /// `ShuttingDown`.
    #[doc(alias = "ShuttingDown")]
    fn is_stopped(&self) -> bool {
        self.core().shared.peek().shutting_down
    }

    /// Returns the name that the [builder](super::WorkQueueBuilder::name) set. Logs and the queue's
    /// thread show `workqueue` if there is none.
    fn name(&self) -> Option<&str> {
        self.core().shared.name.as_deref()
    }
}
