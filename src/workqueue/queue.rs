pub(super) mod builder;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::builder::WorkQueueBuilder;
use super::item::Item;
use super::shared::Shared;
use super::state::{Taken, Ticket};
use crate::base::derive::unwind_safe;
use crate::base::panic::catch;
use crate::base::threads::{Owner, Threads};
use crate::log;
use crate::stop::Stop;

/// A queue of items to process. It corresponds to client-go's `Interface` and `Typed`.
///
/// - The queue holds an item at most once, however often you add it. It never gives an item to two
///   workers at a time. An item added while it is being processed is processed once more
///   afterwards.
/// - Items leave the queue in order of arrival, or in a custom [`Order`](super::Order).
/// - A worker that [takes](Self::take) or [gets](Self::get) an item must report when it has
///   finished. A [`WorkItem`] reports this when it is dropped, also during a panic.
/// - After [`shut_down`](Self::shut_down) the queue accepts no more items, but still returns the
///   waiting ones.
///
/// **Threads.** Any number of threads may add and take items. Share the queue by reference or in an
/// `Arc`. One lock guards it. The `Hash`, `Eq` and `Clone` implementations of items and the
/// [`Order`](super::Order) run under this lock, so they must not use the queue. Items are dropped
/// without the lock. A queue starts a thread if it has [metrics](super::WorkQueueMetrics) or
/// supports [delays](super::DelayingQueue). Dropping the queue shuts it down and joins this thread.
///
/// ```
/// use k8s_informer::workqueue::WorkQueue;
///
/// let queue = WorkQueue::new();
/// for item in ["a", "b", "a"] {
///     queue.add(item);
/// }
/// assert_eq!(queue.len(), 2);
/// queue.shut_down();
/// let mut seen = Vec::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while let Some(item) = queue.take() {
///             seen.push(*item);
///         }
///     });
/// });
/// assert_eq!(seen, ["a", "b"]);
/// ```
#[doc(alias = "TypedInterface")]
pub struct WorkQueue<T: Item> {
    pub(super) shared: Arc<Shared<T>>,
    pub(super) owner: Owner,
    pub(super) threads: Threads,
}

impl<T: Item> WorkQueue<T> {
    /// Creates a queue in order of arrival, without metrics. client-go's `NewTyped`.
    pub fn new() -> Self {
        Self::builder().assemble(false)
    }

    /// Returns a builder for a queue with options, with delays or with rate limits. client-go's
    /// `TypedQueueConfig`.
    pub fn builder() -> WorkQueueBuilder<T> {
        WorkQueueBuilder::new()
    }

    /// Adds an item.
    ///
    /// If the item already waits, it stays in the queue once, and the order may
    /// [move](super::Order::touch) it. If the item is being processed, it is queued again when that
    /// processing ends. Does nothing if the queue is shut down.
    pub fn add(&self, item: T) {
        self.shared.add(item, 0);
    }

    /// Blocks until an item is available and takes it.
    ///
    /// Returns `None` once the queue is shut down and no item waits. A worker should then end.
    /// Dropping the [`WorkItem`] finishes the item.
    pub fn take(&self) -> Option<WorkItem<'_, T>> {
        self.work_item(self.shared.get(|| false))
    }

    /// Like [`take`](Self::take), but also returns `None` as soon as `stop` is triggered.
    pub fn take_or_stop(&self, stop: &Stop) -> Option<WorkItem<'_, T>> {
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || shared.wake_all());
        self.work_item(self.shared.get(|| stop.is_stopped()))
    }

    fn work_item(&self, taken: Option<Taken<T>>) -> Option<WorkItem<'_, T>> {
        taken.map(|taken| WorkItem {
            shared: &self.shared,
            item: taken.item,
            ticket: taken.ticket,
            priority: taken.priority,
        })
    }

    /// Like [`take`](Self::take), but you must call [`done`](Self::done) yourself, as in Go.
    pub fn get(&self) -> Option<T> {
        self.shared.get(|| false).map(|taken| taken.item)
    }

    /// Finishes the processing of an item returned by [`get`](Self::get).
    ///
    /// If the item was added meanwhile, it is queued again. If the item is not being processed,
    /// this only logs a warning.
    pub fn done(&self, item: &T) {
        self.shared.done(item, None);
    }

    /// Returns the number of waiting items, without items that are being processed or delayed.
    pub fn len(&self) -> usize {
        self.shared.change(|state, _, _| state.len())
    }

    /// Returns the number of delayed items.
    pub fn delayed_len(&self) -> usize {
        self.shared.change(|state, _, _| state.delayed.len())
    }

    /// Returns when the first of the delayed items that match is due. The closure runs under the
    /// lock.
    #[doc(hidden)]
    pub fn next_due(&self, matches: impl Fn(&T) -> bool) -> Option<Instant> {
        self.shared
            .change(|state, _, _| state.delayed.next_due_of(matches))
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuts the queue down: it accepts no more items and drops the delayed ones.
    ///
    /// Waiting items are still returned, and so are items that were added while they were being
    /// processed. Then [`take`](Self::take) returns `None`.
    ///
    /// Blocks until the queue's own thread, if any, has ended, unless it is called on that thread.
    /// It does not wait for workers. It releases every blocked
    /// [`shut_down_with_drain`](Self::shut_down_with_drain).
    pub fn shut_down(&self) {
        self.shared.shut_down(true);
        self.join();
    }

    /// Shuts the queue down and blocks until all waiting items are processed, or until another
    /// thread calls [`shut_down`](Self::shut_down). Returns whether all items are processed.
    ///
    /// Workers must keep taking items until the queue returns `None`. Do not call this method from
    /// a worker that holds an item: it would wait for itself.
    ///
    /// ```
    /// use k8s_informer::workqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| while let Some(item) = queue.take() {
    ///         item.done();
    ///     });
    ///     assert!(queue.shut_down_with_drain());
    /// });
    /// assert!(queue.is_empty());
    /// ```
    pub fn shut_down_with_drain(&self) -> bool {
        self.drain(None)
    }

    /// Like [`shut_down_with_drain`](Self::shut_down_with_drain), but returns `false` after
    /// `timeout`.
    ///
    /// The timeout uses the system clock. After the timeout, workers may go on with the remaining
    /// items, unless you stop them. client-go has no counterpart.
    ///
    /// ```
    /// use k8s_informer::workqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// assert!(!queue.shut_down_with_drain_timeout(Duration::from_millis(1)), "no worker takes the item");
    /// assert!(queue.shutting_down());
    /// ```
    pub fn shut_down_with_drain_timeout(&self, timeout: Duration) -> bool {
        self.drain(Instant::now().checked_add(timeout))
    }

    fn drain(&self, deadline: Option<Instant>) -> bool {
        let drained = self.shared.drain(deadline);
        self.join();
        drained
    }

    /// Whether the queue has been shut down.
    pub fn shutting_down(&self) -> bool {
        self.shared.peek().shutting_down
    }

    /// Returns the name of the queue, which is used in logs and for its thread.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    fn join(&self) {
        // User code in the metrics can call `shut_down` or drop the queue on the queue's own
        // thread, which cannot join itself.
        if !self.owner.is_current() {
            self.threads.join();
        }
    }
}

impl<T: Item> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Item> Drop for WorkQueue<T> {
    fn drop(&mut self) {
        self.shared.close();
        self.join();
    }
}

unwind_safe!(WorkQueue<T: Item>);

impl<T: Item> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.peek();
        f.debug_struct("WorkQueue")
            .field("name", &self.shared.name)
            .field("len", &state.len())
            .field("processing", &state.processing())
            .field("delayed", &state.delayed.len())
            .field("shutting_down", &state.shutting_down)
            .finish_non_exhaustive()
    }
}

/// An item that is being processed. Dropping it finishes the item, so a worker that returns early
/// or panics does not block the item forever.
///
/// ```
/// use k8s_informer::workqueue::WorkQueue;
///
/// let queue = WorkQueue::new();
/// queue.add("a".to_owned());
/// let item = queue.take().unwrap();
/// assert_eq!(item.len(), 1);
/// queue.add(item.clone());
/// assert_eq!(queue.len(), 0, "an item in processing is not queued");
/// drop(item);
/// assert_eq!(queue.len(), 1);
/// ```
#[must_use = "dropping the item marks it as done"]
pub struct WorkItem<'a, T: Item> {
    shared: &'a Shared<T>,
    item: T,
    ticket: Ticket,
    priority: i32,
}

impl<T: Item> WorkItem<'_, T> {
    /// Returns the priority with which the item left a [`PriorityQueue`](super::PriorityQueue). Items
    /// of other queues have the priority 0.
    ///
    /// ```
    /// use k8s_informer::workqueue::{AddOptions, PriorityQueue, default_controller_rate_limiter};
    ///
    /// let queue = PriorityQueue::new(default_controller_rate_limiter())?;
    /// queue.add("a");
    /// queue.add_with("a", AddOptions::new().priority(5));
    /// assert_eq!(queue.take().unwrap().priority(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Finishes the item. Same as dropping it.
    pub fn done(self) {}
}

impl<T: Item> Deref for WorkItem<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Item> Drop for WorkItem<'_, T> {
    fn drop(&mut self) {
        // Catch panics, because a second panic while unwinding would abort the process.
        if let Err(panic) = catch(|| self.shared.done(&self.item, Some(self.ticket))) {
            drop(catch(|| {
                log::error!(
                    "work queue {:?}: finishing an item {panic}",
                    self.shared.name
                );
            }));
        }
    }
}

impl<T: Item + fmt::Debug> fmt::Debug for WorkItem<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkItem").field(&self.item).finish()
    }
}
