use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::item::Item;
use super::shared::Shared;
use crate::base::threads::{Owner, Threads};
use crate::error::ShutdownError;

/// What every work queue consists of: the state, and the thread that serves it, if there is one.
#[allow(unnameable_types, reason = "only the sealed trait returns it")]
pub struct Core<T: Item> {
    pub(super) shared: Arc<Shared<T>>,
    owner: Owner,
    threads: Threads,
}

impl<T: Item> Core<T> {
    /// Creates a queue without its thread.
    pub(super) fn new(shared: Shared<T>) -> Self {
        let owner = Owner::new();
        Self {
            shared: Arc::new(shared),
            owner,
            threads: Threads::new(owner),
        }
    }

    /// Starts the queue's thread, if the queue needs one.
    pub(super) fn start(&self) -> io::Result<()> {
        if !self.shared.is_timed() {
            return Ok(());
        }
        // A shutdown waits for the thread from here on, even if the thread has not run yet.
        self.shared.begin_timer();
        let shared = Arc::clone(&self.shared);
        self.threads
            .spawn(shared.timer_name(), None, move || shared.run_timer())
    }

    /// Shuts the queue down, and waits until its items are processed and its thread has ended.
    pub(super) fn shut_down(&self, timeout: Option<Duration>) -> Result<(), ShutdownError> {
        // User code in the metrics and the clock runs on the queue's own thread, which cannot wait
        // for itself. Neither can a callback for which this thread waits.
        let drained = Owner::wait_for(&[self.owner], || self.shared.drain(timeout));
        let Some(drained) = drained else {
            self.shared.refuse_items();
            return Err(ShutdownError::FromWithin);
        };
        drained?;
        // The thread has left user code, so this wait is short.
        self.threads.join();
        Ok(())
    }

    /// Implements `Debug` for the queue with this name.
    pub(super) fn debug(&self, queue: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.peek();
        f.debug_struct(queue)
            .field("name", &self.shared.name)
            .field("len", &state.len())
            .field("processing", &state.processing())
            .field("delayed", &state.delayed.len())
            .field("is_stopped", &state.shutting_down)
            .finish_non_exhaustive()
    }
}

impl<T: Item> Drop for Core<T> {
    fn drop(&mut self) {
        self.shared.close();
        // User code in the metrics can drop the queue on the queue's own thread, which cannot join
        // itself.
        if !self.owner.is_current() {
            self.threads.join();
        }
    }
}
