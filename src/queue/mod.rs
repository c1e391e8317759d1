//! Between the reflector and the cache: queues of changes. client-go's `fifo.go`, `delta_fifo.go` and
//! `the_real_fifo.go`. And a queue by urgency: its `heap.go`.

mod delta;
mod delta_fifo;
mod error;
mod fifo;
mod heap;
#[cfg(test)]
#[cfg(shuttle)]
mod models;
mod real_fifo;
mod timing;

pub use delta::{Delta, Deltas, ReplacedAll};
pub use delta_fifo::{DeltaFifo, DeltaFifoBuilder};
pub use error::{PopError, ProcessError, Refused, Requeue};
pub use fifo::Fifo;
pub use heap::Heap;
pub use real_fifo::{RealFifo, RealFifoBuilder, RealFifoMode};

use crate::stop::Done;
use crate::store::ReflectorStore;

/// A queue that a reflector fills and one consumer at a time empties. client-go's `Queue` and
/// `QueueWithBatch`.
pub trait Queue<T>: ReflectorStore<T> {
    /// Blocks until there is something, takes it out, and hands it to `process`, with whether it belongs to
    /// the initial list.
    ///
    /// No lock is held while `process` runs: it may write to the queue. It must not pop. To get the same
    /// again, it fails with [`Requeue`].
    ///
    /// # Errors
    ///
    /// [`PopError::Closed`] once the queue is closed and empty; [`PopError::Process`] gives what `process`
    /// failed with, and the deltas.
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>>;

    /// As [`pop`](Self::pop), but takes as many as the queue lets go together, no key twice, and hands them
    /// to `process_batch`; a single one goes to `process`. Both must do the same with what they get.
    ///
    /// A queue that does not say otherwise takes one.
    ///
    /// # Errors
    ///
    /// As for [`pop`](Self::pop).
    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let _ = process_batch;
        match self.pop(process) {
            Ok(popped) => Ok(vec![popped]),
            Err(PopError::Closed) => Err(PopError::Closed),
            Err(PopError::Process { popped, error }) => {
                Err(PopError::Process { popped: vec![popped], error })
            }
        }
    }

    /// Whether everything of the first [`replace`](ReflectorStore::replace) has been processed, or something
    /// else came first.
    fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    fn synced(&self) -> Done;

    /// Ends every [`pop`](Self::pop) that finds nothing any more. What is written later is still queued, and
    /// can be popped.
    fn close(&self);

    /// Whether the queue has been closed.
    fn is_closed(&self) -> bool;
}

/// The consumer's callback: the deltas, and whether they belong to the initial list. client-go's
/// `PopProcessFunc`.
pub type Process<'a, T> = dyn FnMut(&Deltas<T>, bool) -> Result<(), ProcessError> + 'a;

/// The consumer's callback for several at once, each of another object, and whether they belong to the
/// initial list. client-go's `ProcessBatchFunc`.
pub type ProcessBatch<'a, T> = dyn FnMut(&[Deltas<T>], bool) -> Result<(), ProcessError> + 'a;
