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
mod told;
mod watermark;

pub use delta::{Delta, Deltas, ReplacedAll};
pub use delta_fifo::{DeltaFifo, DeltaFifoBuilder};
pub use error::{PopError, ProcessError, Refused, Requeue};
pub use fifo::Fifo;
pub use heap::Heap;
pub use real_fifo::{RealFifo, RealFifoBuilder, RealFifoMode};
pub use watermark::{WaitError, Watermark};

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
            Err(PopError::Process { popped, error }) => Err(PopError::Process {
                popped: vec![popped],
                error,
            }),
        }
    }

    /// Whether the next [`pop`](Self::pop) would find something at once. Where it would, an informer hands
    /// what it has for its handlers over together with what comes next, up to 64 events. What is put around a
    /// queue answers as that one does only if its own pop does not wait for anything else: meanwhile the
    /// handlers would. The default, `false`, is always right.
    ///
    /// ```
    /// use k8s_informer::{Accessor, DeltaFifo, KeyError, Queue, ReflectorStore};
    /// use std::sync::Arc;
    ///
    /// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
    /// queue.add(Arc::new("a".to_owned()))?;
    /// assert!(queue.has_more());
    /// queue.pop(&mut |_, _| Ok(()))?;
    /// assert!(!queue.has_more());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn has_more(&self) -> bool {
        false
    }

    /// Whether everything of the first [`replace`](ReflectorStore::replace) has been processed, or something
    /// else came first.
    fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    fn synced(&self) -> Done;

    /// The resourceVersion up to which everything that the queue was told has been processed: the callbacks
    /// have returned, whether or not they failed; what is to be processed again has not been. Each call
    /// answers the same one. `None`, the default, from a queue that keeps no count of that.
    ///
    /// For the queues of this crate, in whatever order they hand out what they hold:
    ///
    /// - a version is that of a list once all that the list comes to has been processed, of an object that
    ///   was added, changed or deleted, as the [`Accessor`](crate::Accessor) reads it before any transform,
    ///   or of a bookmark. Resyncs and tombstones have none, but are waited for if they came before one;
    /// - an object or a bookmark without a version leaves the last one as it is; so does an object that is
    ///   added as long as there is none, or "0": a watch that begins there tells what exists, in no order;
    /// - what needs no processing, as a deletion of what nobody knows, counts as processed;
    /// - what the queue refused, with an error, does not count: the next version stands for it, too.
    ///
    /// ```
    /// use k8s_informer::{Accessor, DeltaFifo, DynamicObject, Queue, ReflectorStore};
    /// use std::sync::Arc;
    ///
    /// let object = |text| serde_json::from_str::<DynamicObject>(text).map(Arc::new);
    /// let queue = DeltaFifo::new(Accessor::object());
    /// let processed = queue.processed().expect("it keeps count");
    /// queue.replace(vec![object(r#"{"metadata": {"name": "a", "resourceVersion": "5"}}"#)?], "7")?;
    /// queue.add(object(r#"{"metadata": {"name": "b", "resourceVersion": "8"}}"#)?)?;
    /// queue.update(object(r#"{"metadata": {"name": "a", "resourceVersion": "9"}}"#)?)?;
    /// queue.pop(&mut |deltas, _| {
    ///     assert_eq!((deltas.key().map(|key| &**key), deltas.len()), (Some("a"), 2));
    ///     Ok(())
    /// })?;
    /// assert_eq!(processed.current(), "7", "b is still to come");
    /// queue.pop(&mut |_, _| Ok(()))?;
    /// assert_eq!(processed.current(), "9");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn processed(&self) -> Option<Watermark> {
        None
    }

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
