use std::fmt;
use std::hash::Hash;
use std::io;
use std::ops::Deref;
use std::time::Duration;

use super::WorkQueue;

/// A [`WorkQueue`] to which items can be added later. client-go's `TypedDelayingInterface`.
///
/// - An item that is delayed twice comes once, at the earlier time (Q11).
/// - Delaying and adding don't know of each other: an item that waits for its time may be added, is
///   processed, and comes again at its time (Q12).
/// - Nothing blocks, however many items are delayed; each takes the room of two copies (Q10).
/// - A shutdown forgets what is delayed (Q13).
///
/// **Threads.** One, which sleeps until the next item is due, or for ever if none is. It ends with the
/// shutdown, or the drop, of the queue.
///
/// ```
/// use k8s_informer::testing::FakeClock;
/// use k8s_informer::workqueue::WorkQueue;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the real one by default
/// let queue = WorkQueue::builder().clock(Arc::new(clock.clone())).build_delaying()?;
/// queue.add_after("a", Duration::from_secs(5));
/// assert_eq!(queue.len(), 0);
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(queue.take().as_deref(), Some(&"a"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TypedDelayingInterface")]
pub struct DelayingQueue<T: Clone + Eq + Hash + Send + 'static> {
    pub(super) queue: WorkQueue<T>,
}

impl<T: Clone + Eq + Hash + Send + 'static> DelayingQueue<T> {
    /// A queue without options. client-go's `NewTypedDelayingQueue`.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
    pub fn new() -> io::Result<Self> {
        WorkQueue::builder().build_delaying()
    }

    /// Adds the item when this long has passed, or now if that is no time; not at all if the queue is shut
    /// down (Q10).
    pub fn add_after(&self, item: T, delay: Duration) {
        self.queue.shared.add_after(item, delay);
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Deref for DelayingQueue<T> {
    type Target = WorkQueue<T>;

    fn deref(&self) -> &WorkQueue<T> {
        &self.queue
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> fmt::Debug for DelayingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DelayingQueue").field(&self.queue).finish()
    }
}
