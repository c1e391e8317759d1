use std::fmt;
use std::ops::Deref;

use super::item::Item;
use super::shared::Shared;
use super::state::{Taken, Ticket};
use crate::base::panic::catch;
use crate::log;

/// An item that is being processed. Dropping it finishes the item, so a worker that returns early
/// or panics does not block the item forever.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.add("a".to_owned());
/// let item = queue.take().unwrap();
/// assert_eq!((item.len(), item.to_string().as_str()), (1, "a"));
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

impl<'a, T: Item> WorkItem<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>, taken: Taken<T>) -> Self {
        Self {
            shared,
            item: taken.item,
            ticket: taken.ticket,
            priority: taken.priority,
        }
    }

    /// Returns the priority with which the item left a [`PriorityQueue`](super::PriorityQueue). Items
    /// of other queues have the priority 0.
    ///
    /// ```
    /// use k8s_informer::workqueue::{AddOptions, AnyWorkQueue, PriorityQueue, default_controller_rate_limiter};
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
                    self.shared.label()
                );
            }));
        }
    }
}

/// Writes the item.
impl<T: Item + fmt::Display> fmt::Display for WorkItem<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.item.fmt(f)
    }
}

impl<T: Item + fmt::Debug> fmt::Debug for WorkItem<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkItem").field(&self.item).finish()
    }
}
