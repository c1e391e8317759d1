//! Between the reflector and the cache: queues of changes. client-go's `fifo.go` and `delta_fifo.go`.

mod delta;
mod delta_fifo;
mod error;

pub use delta::{Delta, Deltas};
pub use delta_fifo::{DeltaFifo, DeltaFifoBuilder};
pub use error::{PopError, ProcessError};

use crate::stop::Done;
use crate::store::ReflectorStore;

/// A queue that a reflector fills and one consumer at a time empties. client-go's `Queue`.
pub trait Queue<T>: ReflectorStore<T> {
    /// Blocks until there is something, takes it out, and hands it to `process`, with whether it belongs to
    /// the initial list.
    ///
    /// No lock is held while `process` runs: it may write to the queue. It must not pop.
    ///
    /// # Errors
    ///
    /// [`PopError::Closed`] once the queue is closed and empty; [`PopError::Process`] gives what `process`
    /// failed with, and the deltas, which are not queued again.
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<T>>;

    /// Whether everything of the first [`replace`](ReflectorStore::replace) has been processed, or something
    /// else came first.
    fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    fn synced(&self) -> Done;

    /// Ends every [`pop`](Self::pop) that finds nothing any more.
    fn close(&self);

    /// Whether the queue has been closed.
    fn is_closed(&self) -> bool;
}

/// The consumer's callback: the deltas, and whether they belong to the initial list. client-go's
/// `PopProcessFunc`.
pub type Process<'a, T> = dyn FnMut(&Deltas<T>, bool) -> Result<(), ProcessError> + 'a;
