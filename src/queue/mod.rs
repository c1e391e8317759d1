//! Queues between a reflector and a cache, and a heap.
//!
//! | type | what it returns | client-go |
//! |---|---|---|
//! | [`DeltaFifo`] | all changes of one object together, objects in the order of their first change | `delta_fifo.go` |
//! | [`RealFifo`] | every change, in order | `the_real_fifo.go` |
//! | [`Fifo`] | the newest state of each object | `fifo.go` |
//! | [`Heap`] | the most urgent object | `heap.go` |
//! | [`Queue`] | the trait of the first two | `Queue`, `QueueWithBatch` |
//! | [`Deltas`], [`Delta`] | the changes of one object; one change | `Deltas`, `Delta` |
//!
//! ```
//! use k8s_informer::object::Accessor;
//! use k8s_informer::queue::{DeltaFifo, Queue};
//! use k8s_informer::store::ReflectorStore;
//! use std::sync::Arc;
//!
//! let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok(word.as_str().into())));
//! queue.add(Arc::new("a".to_owned()))?;
//! queue.update(Arc::new("a".to_owned()))?;
//! let deltas = queue.pop(&mut |_, _| Ok(()))?;
//! assert_eq!(deltas.len(), 2); // both changes of the object
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where the methods of client-go are
//!
//! | `delta_fifo.go` | here |
//! |---|---|
//! | `NewDeltaFIFO` | `DeltaFifo::new` |
//! | `NewDeltaFIFOWithOptions` | `DeltaFifo::builder` |
//! | `Close` | `DeltaFifo::close` |
//! | `KeyOf` | `DeltaFifo::key_of` |
//! | `Transformer` | `DeltaFifo::transformer` |
//! | `HasSynced`, `hasSynced_locked` | `Queue::has_synced`, `DeltaFifo::synced` |
//! | `HasSyncedChecker`, `Name`, `Done`, `checkSynced_locked` | `DeltaFifo::synced`, `DeltaFifo::unlock` |
//! | `Add`, `Update` | `DeltaFifo::add`, `DeltaFifo::update` |
//! | `Delete` | `DeltaFifo::delete`, `DeltaFifo::put_deletion` |
//! | `dedupDeltas`, `isDup`, `isDeletionDup` | `Deltas::push_and_merge` |
//! | `queueActionLocked`, `queueActionInternalLocked` | `DeltaFifo::prepare_change`, `DeltaFifo::put` |
//! | `IsClosed` | `DeltaFifo::is_closed` |
//! | `Pop` | `DeltaFifo::pop`: `DeltaFifo::take`, `DeltaFifo::process`, `DeltaFifo::finish_pop` |
//! | `Replace` | `DeltaFifo::replace`, `DeltaFifo::replace_prepared` |
//! | `Resync`, `syncKeyLocked` | `DeltaFifo::resync` |
//! | `Oldest`, `Newest`, `copyDeltas` | `Deltas::oldest`, `Deltas::newest`, `Deltas::clone` |
//!
//! | `the_real_fifo.go` | here |
//! |---|---|
//! | `NewRealFIFO` | `RealFifo::new` |
//! | `NewRealFIFOWithOptions` | `RealFifo::builder` |
//! | `Close` | `RealFifo::close` |
//! | `keyOf` | `Deltas::key` |
//! | `HasSynced`, `hasSynced_locked` | `Queue::has_synced`, `RealFifo::synced` |
//! | `HasSyncedChecker`, `Name`, `Done`, `checkSynced_locked` | `RealFifo::synced`, `RealFifo::publish` |
//! | `addToItems_locked` | `RealFifo::prepare_change`, `RealFifo::put`, `RealFifo::push` |
//! | `addReplaceToItemsLocked` | `RealFifo::replace_all`, `RealFifo::push_list` |
//! | `addResyncToItemsLocked` | `RealFifo::resync` |
//! | `Add`, `Update`, `Delete` | `RealFifo::add`, `RealFifo::update`, `RealFifo::delete` |
//! | `IsClosed` | `RealFifo::is_closed` |
//! | `Pop`, `PopBatch` | `RealFifo::pop`, `RealFifo::pop_batch`, `RealFifo::batch` |
//! | `whileProcessing_locked` | `RealFifo::begin_pop`, `RealFifo::finish_pop` |
//! | `Bookmark` | `RealFifo::bookmark` |
//! | `Replace` | `RealFifo::replace`, `RealFifo::replace_each` |
//! | `reconcileReplacement` | `RealFifo::replace_prepared` |
//! | `Resync` | `RealFifo::resync`, `RealFifo::resync_each` |
//! | `Transformer` | `RealFifo::transformer` |

mod delta;
mod delta_fifo;
mod error;
mod fifo;
mod heap;
mod real_fifo;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod timing;
mod version_tracker;
mod watermark;

pub use delta::{Delta, Deltas, ReplacedAll};
pub use delta_fifo::{DeltaFifo, DeltaFifoBuilder};
pub use error::{BatchError, PopError, ProcessError, Refused, Requeue};
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

    /// As [`pop`](Self::pop), but takes as many items as the queue hands out together, each of another object, and
    /// calls `process_batch` with them. For a single item it calls `process`, which must do the same with it.
    ///
    /// A callback that fails with a [`BatchError`] has processed all other items of the batch.
    ///
    /// The default takes one item.
    ///
    /// # Errors
    ///
    /// As for [`pop`](Self::pop). If several items failed, [`PopError::Process`] has a [`BatchError`].
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
    ///   was added, changed or deleted, as the [`Accessor`](crate::object::Accessor) reads it before any transform,
    ///   or of a bookmark. Resyncs and tombstones have none, but are waited for if they came before one;
    /// - an object or a bookmark without a version leaves the last one as it is; so does an object that is
    ///   added as long as there is none, or "0": a watch that begins there tells what exists, in no order;
    /// - what needs no processing, as a deletion of what nobody knows, counts as processed;
    /// - what the queue refused, with an error, does not count: the next version stands for it, too.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::object::Accessor;
    /// use k8s_informer::queue::{DeltaFifo, Queue};
    /// use k8s_informer::store::ReflectorStore;
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

/// The consumer's callback for several items, each of another object, and whether they belong to the initial list. It
/// fails with a [`BatchError`] if it failed on some of them only. client-go's `ProcessBatchFunc`.
pub type ProcessBatch<'a, T> = dyn FnMut(&[Deltas<T>], bool) -> Result<(), ProcessError> + 'a;

#[cfg(test)]
mod tests {
    /// The source of each type that the tables name.
    const SOURCES: [(&str, &[&str]); 4] = [
        (
            "DeltaFifo",
            &[
                include_str!("delta_fifo/mod.rs"),
                include_str!("delta_fifo/builder.rs"),
                include_str!("delta_fifo/write.rs"),
            ],
        ),
        (
            "RealFifo",
            &[
                include_str!("real_fifo/mod.rs"),
                include_str!("real_fifo/builder.rs"),
                include_str!("real_fifo/in_order.rs"),
                include_str!("real_fifo/pop.rs"),
            ],
        ),
        ("Deltas", &[include_str!("delta.rs")]),
        ("Queue", &[include_str!("mod.rs")]),
    ];

    /// The functions of client-go 0.36 in both files.
    const DELTA_FIFO: &str = "NewDeltaFIFO NewDeltaFIFOWithOptions Close KeyOf Transformer HasSynced HasSyncedChecker \
        Name Done hasSynced_locked checkSynced_locked Add Update Delete dedupDeltas isDup isDeletionDup \
        queueActionLocked queueActionInternalLocked IsClosed Pop Replace Resync syncKeyLocked Oldest Newest copyDeltas";
    const REAL_FIFO: &str = "Close keyOf HasSynced HasSyncedChecker Name Done hasSynced_locked checkSynced_locked \
        addToItems_locked addReplaceToItemsLocked addResyncToItemsLocked Add Update Delete IsClosed Pop \
        whileProcessing_locked PopBatch Bookmark Replace reconcileReplacement Resync Transformer NewRealFIFO \
        NewRealFIFOWithOptions";

    /// The rows of the table whose head names this file.
    fn rows(file: &str) -> Vec<(&'static str, &'static str)> {
        let head = format!("//! | `{file}` | here |");
        let lines = include_str!("mod.rs").lines();
        let table = lines.skip_while(move |line| *line != head).skip(2);
        let cells = |line: &'static str| line.strip_prefix("//! | ")?.split_once(" | ");
        table.map_while(cells).collect()
    }

    fn names(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    #[test]
    fn tables_have_each_function_of_client_go() {
        for (file, functions) in [
            ("delta_fifo.go", DELTA_FIFO),
            ("the_real_fifo.go", REAL_FIFO),
        ] {
            let mut listed: Vec<_> = rows(file).iter().flat_map(|(go, _)| names(go)).collect();
            let mut functions: Vec<_> = functions.split_whitespace().collect();
            listed.sort_unstable();
            functions.sort_unstable();
            assert_eq!(listed, functions, "{file}");
        }
    }

    #[test]
    fn tables_name_functions_that_exist() {
        for file in ["delta_fifo.go", "the_real_fifo.go"] {
            for name in rows(file).iter().flat_map(|(_, here)| names(here)) {
                let (of, function) = name.split_once("::").unwrap();
                let (_, sources) = SOURCES.iter().find(|(name, _)| *name == of).unwrap();
                let exists = |generics| {
                    let start = format!("fn {function}{generics}");
                    sources.iter().any(|source| source.contains(&start))
                };
                assert!(exists("(") || exists("<"), "{name}");
            }
        }
    }
}
