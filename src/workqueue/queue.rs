use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::WorkQueueBuilder;
use super::shared::Shared;
use super::state::Ticket;
use crate::panic::catch;
use crate::stop::Stop;
use crate::threads::{Owner, Threads};

/// Items that want to be processed, each once for however often it was added, and none by two workers at a
/// time. client-go's `Interface` and `Typed`.
///
/// - An item that is added while it waits is still there once; one that is added while it is being processed
///   is processed once more afterwards (Q5).
/// - The order is that of arrival, or an [`Order`](super::Order) of your own.
/// - Who [takes](Self::take) or [gets](Self::get) an item has to say when it is done with it: [`WorkItem`]
///   does so by being dropped, also by a panic.
/// - After [`shut_down`](Self::shut_down) nothing is taken in, and what waits is still handed out.
///
/// **Threads.** Any number of them may add and get; a queue is shared by reference or in an `Arc`. One lock
/// guards it; the `Hash`, `Eq` and `Clone` of items and their order run under it and must not use the queue.
/// Items are dropped without it. A queue that somebody measures has a thread (see
/// [`WorkQueueMetrics`](super::WorkQueueMetrics)), and so has one that
/// [delays](super::DelayingQueue); dropping the queue shuts it down and ends the thread.
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
pub struct WorkQueue<T: Clone + Eq + Hash + Send + 'static> {
    pub(super) shared: Arc<Shared<T>>,
    pub(super) owner: Owner,
    pub(super) threads: Threads,
}

impl<T: Clone + Eq + Hash + Send + 'static> WorkQueue<T> {
    /// A queue in the order of arrival that nobody measures. client-go's `NewTyped`.
    pub fn new() -> Self {
        Self::builder().assemble(false)
    }

    /// Begins a queue with options; also one that delays or limits rates. client-go's `TypedQueueConfig`.
    pub fn builder() -> WorkQueueBuilder<T> {
        WorkQueueBuilder::new()
    }

    /// Makes sure that the item is processed after now, unless the queue is shut down (Q2).
    pub fn add(&self, item: T) {
        self.shared.add(item);
    }

    /// Blocks until there is an item, and takes it; `None` once the queue is shut down and nothing waits:
    /// then a worker ends (Q3). Dropping what it answers says that it is done with.
    pub fn take(&self) -> Option<WorkItem<'_, T>> {
        self.guard(self.shared.get(|| false))
    }

    /// As [`take`](Self::take), but `None` also as soon as `stop` is given.
    pub fn take_or_stop(&self, stop: &Stop) -> Option<WorkItem<'_, T>> {
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || shared.wake_all());
        self.guard(self.shared.get(|| stop.is_stopped()))
    }

    fn guard(&self, taken: Option<(T, Ticket)>) -> Option<WorkItem<'_, T>> {
        taken.map(|(item, ticket)| WorkItem {
            shared: &self.shared,
            item,
            ticket,
        })
    }

    /// As [`take`](Self::take), for whoever calls [`done`](Self::done) himself, as in Go.
    pub fn get(&self) -> Option<T> {
        self.shared.get(|| false).map(|(item, _)| item)
    }

    /// Says that the processing of an item that was [got](Self::get) is over; if it was added meanwhile, it
    /// goes to the end of the queue (Q4). One that is not being processed is none of its business: that is
    /// logged as a warning.
    pub fn done(&self, item: &T) {
        self.shared.done(item, None);
    }

    /// How many items wait: not those that are being processed, nor those that are delayed (Q8).
    pub fn len(&self) -> usize {
        self.shared.change(|state, _, _| state.queued())
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on nothing is taken in, and what is delayed is forgotten (Q13). What waits is still handed
    /// out, what was added while it is being processed too; then [`take`](Self::take) answers `None` (Q6).
    ///
    /// Blocks for the end of the queue's own thread, if it has one, not for workers. Ends every
    /// [`shut_down_with_drain`](Self::shut_down_with_drain).
    pub fn shut_down(&self) {
        self.shared.shut_down(true);
        self.join();
    }

    /// As [`shut_down`](Self::shut_down), and blocks until all that waits has been taken and is done, or
    /// until somebody else calls `shut_down`; says whether all is done (Q7).
    ///
    /// Workers have to go on until they get nothing more. Don't call it from one: it waits for itself.
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

    /// As [`shut_down_with_drain`](Self::shut_down_with_drain), but waits no longer than this, by the
    /// machine's clock: then it answers `false`, and workers go on with what is left, or are told otherwise
    /// by you. There is no such thing in client-go.
    ///
    /// ```
    /// use k8s_informer::workqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// assert!(!queue.shut_down_with_drain_timeout(Duration::from_millis(1)), "nobody takes it");
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

    /// What it is called: in logs, and its thread.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    fn join(&self) {
        // Metrics are called there, and may hold whatever they like.
        if !self.owner.is_current() {
            self.threads.join();
        }
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Drop for WorkQueue<T> {
    fn drop(&mut self) {
        self.shared.close();
        self.join();
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.peek();
        f.debug_struct("WorkQueue")
            .field("name", &self.shared.name)
            .field("len", &state.queued())
            .field("processing", &state.processing())
            .field("delayed", &state.delayed.len())
            .field("shutting_down", &state.shutting_down)
            .finish_non_exhaustive()
    }
}

/// An item that is being processed; it is done with when this is dropped, so no worker that returns early or
/// panics keeps it from being processed again.
///
/// ```
/// use k8s_informer::workqueue::WorkQueue;
///
/// let queue = WorkQueue::new();
/// queue.add("a".to_owned());
/// let item = queue.take().unwrap();
/// assert_eq!(item.len(), 1);
/// queue.add(item.clone());
/// assert_eq!(queue.len(), 0, "not while it is being processed");
/// drop(item);
/// assert_eq!(queue.len(), 1);
/// ```
#[must_use = "it is done with when it is dropped"]
pub struct WorkItem<'a, T: Clone + Eq + Hash + Send + 'static> {
    shared: &'a Shared<T>,
    item: T,
    ticket: Ticket,
}

impl<T: Clone + Eq + Hash + Send + 'static> WorkItem<'_, T> {
    /// The same as dropping it, for who wants to say so.
    pub fn done(self) {}
}

impl<T: Clone + Eq + Hash + Send + 'static> Deref for WorkItem<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Drop for WorkItem<'_, T> {
    fn drop(&mut self) {
        // It may be dropped by a panic; another one would end the process.
        if let Err(panic) = catch(|| self.shared.done(&self.item, Some(self.ticket))) {
            drop(catch(|| {
                log::error!(
                    "work queue {:?}: being done with an item {panic}",
                    self.shared.name
                );
            }));
        }
    }
}

impl<T: Clone + Eq + Hash + Send + fmt::Debug + 'static> fmt::Debug for WorkItem<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkItem").field(&self.item).finish()
    }
}
