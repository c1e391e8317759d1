//! Queues between a reflector and a cache.
//!
//! | type | pops | client-go |
//! |---|---|---|
//! | [`DeltaFifo`] | all waiting changes of one object; objects in the order of their first change | `delta_fifo.go` |
//! | [`RealFifo`] | every change, in order | `the_real_fifo.go` |
//! | [`Fifo`] | the newest state of each object | `fifo.go` |
//!
//! [`DeltaFifo`] and [`RealFifo`] implement the trait [`Queue`] (client-go's `Queue` and
//! `QueueWithBatch`). They deliver [`Deltas`]: the changes of one object, each a [`Delta`].
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
//! assert_eq!(deltas.len(), 2); // both changes of "a"
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to find the methods of client-go
//!
//! `add`, `update`, `delete`, `replace`, `resync` and `bookmark` are methods of
//! [`ReflectorStore`], and `pop`, `pop_batch`, `synced` and `close` of
//! [`Queue`]. `Locked`, `Front`, `Grouped` and `InOrder` are private: they lead to the code.
//!
//! | `delta_fifo.go` | here |
//! |---|---|
//! | `NewDeltaFIFO` | `DeltaFifo::new` |
//! | `NewDeltaFIFOWithOptions` | `DeltaFifo::with_options` |
//! | `Close` | `DeltaFifo::close` |
//! | `KeyOf` | `Deltas::key` |
//! | `Transformer` | `DeltaFifo::transformer` |
//! | `HasSynced`, `hasSynced_locked` | `Queue::has_synced`, `DeltaFifo::synced` |
//! | `HasSyncedChecker`, `Name`, `Done`, `checkSynced_locked` | `DeltaFifo::synced`, `Locked::publish` |
//! | `Add`, `Update` | `DeltaFifo::add`, `DeltaFifo::update` |
//! | `Delete` | `DeltaFifo::delete`, `Grouped::enter` |
//! | `dedupDeltas`, `isDup`, `isDeletionDup` | `Deltas::push_and_merge` |
//! | `queueActionLocked`, `queueActionInternalLocked` | `Grouped::enter`, `Grouped::put` |
//! | `IsClosed` | `DeltaFifo::is_closed` |
//! | `Pop` | `Queue::pop`: `Front::pop`, `Front::take`, `Front::finish` |
//! | `Replace` | `DeltaFifo::replace`, `Grouped::replace` |
//! | `Resync`, `syncKeyLocked` | `DeltaFifo::resync` |
//! | `Oldest`, `Newest`, `copyDeltas` | `Deltas::oldest`, `Deltas::newest`, `Deltas::clone` |
//!
//! | `the_real_fifo.go` | here |
//! |---|---|
//! | `NewRealFIFO` | `RealFifo::new` |
//! | `NewRealFIFOWithOptions` | `RealFifo::with_options` |
//! | `Close` | `RealFifo::close` |
//! | `keyOf` | `Deltas::key` |
//! | `HasSynced`, `hasSynced_locked` | `Queue::has_synced`, `RealFifo::synced` |
//! | `HasSyncedChecker`, `Name`, `Done`, `checkSynced_locked` | `RealFifo::synced`, `Locked::publish` |
//! | `addToItems_locked` | `InOrder::enter`, `InOrder::put`, `InOrder::push` |
//! | `addReplaceToItemsLocked` | `InOrder::replace` |
//! | `addResyncToItemsLocked` | `RealFifo::resync` |
//! | `Add`, `Update`, `Delete` | `RealFifo::add`, `RealFifo::update`, `RealFifo::delete` |
//! | `IsClosed` | `RealFifo::is_closed` |
//! | `Pop`, `PopBatch` | `Queue::pop`, `Queue::pop_batch`, `InOrder::take` |
//! | `whileProcessing_locked` | `Front::take`, `Front::finish` |
//! | `Bookmark` | `RealFifo::bookmark` |
//! | `Replace` | `RealFifo::replace` |
//! | `Resync` | `RealFifo::resync` |
//! | `Transformer` | `RealFifo::transformer` |
//!
//! Until 1.32, client-go also had `AddIfNotPresent` and `ErrRequeue`. They are
//! [`Fifo::add_if_not_present`], [`DeltaFifo::add_if_not_present`] and [`Requeue`].

mod delta_fifo;
mod deltas;
mod error;
mod fifo;
mod forward;
mod front;
mod options;
mod real_fifo;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod timing;
mod version_tracker;
mod watermark;

pub use delta_fifo::{DeltaFifo, DeltaFifoOptions};
pub use deltas::Deltas;
pub(crate) use error::{BatchError, BoxError, Failure};
pub use error::{PopError, ProcessError, Requeue};
pub use fifo::Fifo;
pub use real_fifo::{RealFifo, RealFifoOptions};
pub use watermark::Watermark;

use self::sealed::Sealed;
pub use crate::entry::{Delta, Entry, ReplacedAll};
use crate::stop::Done;
use crate::store::ReflectorStore;

#[expect(unnameable_types, reason = "nobody else implements the trait")]
pub(crate) mod sealed {
    /// The seal of [`Queue`](super::Queue), and what only this crate calls.
    pub trait Sealed {
        /// Reserves the next pop for the current thread if the queue is empty, and if no pop is
        /// reserved or running. Returns whether it is reserved.
        ///
        /// That pop does not block. If nothing waits, it returns
        /// [`PopError::Closed`](super::PopError::Closed), as if the queue were closed.
        fn reserve_if_empty(&self) -> bool;

        /// Like `reserve_if_empty`, but if an item waits.
        fn reserve_next(&self) -> bool;
    }
}

/// A queue that a reflector fills and one consumer at a time empties. client-go's `Queue` and
/// `QueueWithBatch`.
///
/// This trait is sealed: only [`DeltaFifo`] and [`RealFifo`] implement it.
#[expect(
    clippy::type_complexity,
    reason = "the documentation spells the callbacks out"
)]
pub trait Queue<T>: ReflectorStore<T> + Sealed {
    /// Blocks until an item is available, removes it from the queue and passes it to `process`.
    /// client-go's `Pop`, with its `PopProcessFunc`.
    ///
    /// No lock is held while `process` runs, so it may write to the queue. It must not pop. To receive
    /// the item again, it returns a [`Requeue`].
    ///
    /// # Errors
    ///
    /// Returns [`PopError::Closed`] once the queue is closed and empty. Returns
    /// [`PopError::Process`] with the error and the deltas if `process` fails.
    fn pop(
        &self,
        process: &mut dyn FnMut(&Deltas<T>, Origin) -> Result<(), ProcessError>,
    ) -> Result<Deltas<T>, PopError<Deltas<T>>>;

    /// Like [`pop`](Self::pop), but removes several items at once, each of a different object, and
    /// passes them to `process_batch`. The queue determines the size of the batch. A batch of one
    /// item goes to `process` instead, which must have the same effect as `process_batch`. An error
    /// or a [`Requeue`] applies to all items of the batch. client-go's `PopBatch`, with its
    /// `ProcessBatchFunc`.
    ///
    /// # Errors
    ///
    /// The same as [`pop`](Self::pop).
    fn pop_batch(
        &self,
        process_batch: &mut dyn FnMut(&[Deltas<T>], Origin) -> Result<(), ProcessError>,
        process: &mut dyn FnMut(&Deltas<T>, Origin) -> Result<(), ProcessError>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>>;

    /// Whether all items of the first [`replace`](ReflectorStore::replace) have been processed. If
    /// another write came before it, the queue is synced at once. See [`Requeue`] for an item that is
    /// requested again.
    fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Returns a handle that is done when [`has_synced`](Self::has_synced) becomes true.
    fn synced(&self) -> Done;

    /// Returns the watermark of this queue: the resource version up to which everything that the
    /// queue received has been processed. Each call returns the same watermark.
    ///
    /// A change has been processed when its callback has returned, even with an error. If the callback
    /// returned a [`Requeue`], the change counts as processed together with the state that the
    /// consumer receives instead: the same one, or a newer one.
    ///
    /// The following holds for all queues of this crate, regardless of their order of delivery:
    ///
    /// - The version of a list is reached when all changes that the list causes have been
    ///   processed.
    /// - The version of an added, changed or deleted object is the one that the
    ///   [`Accessor`](crate::object::Accessor) reads before any transform. The version of a
    ///   bookmark counts as well.
    /// - Resyncs and tombstones have no version. A later version is reached only after they have
    ///   been processed.
    /// - An object or a bookmark without a version does not change the last version. The same holds
    ///   for an added object while no version is known, or while the last one is `0`: a watch that
    ///   starts there first sends the existing objects, in no order.
    /// - A change that needs no processing counts as processed. An example is the deletion of an
    ///   unknown object.
    /// - A change that the queue rejects with an error is ignored. A later version can be reached
    ///   although that change was never processed.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::object::{Accessor, ResourceVersion};
    /// use k8s_informer::queue::{DeltaFifo, Queue};
    /// use k8s_informer::store::ReflectorStore;
    /// use std::sync::Arc;
    ///
    /// let version = ResourceVersion::new;
    /// let object = |text| serde_json::from_str::<DynamicObject>(text).map(Arc::new);
    /// let queue = DeltaFifo::new(Accessor::object());
    /// let processed = queue.processed();
    /// queue.replace(vec![object(r#"{"metadata": {"name": "a", "resourceVersion": "5"}}"#)?], version("7"))?;
    /// queue.add(object(r#"{"metadata": {"name": "b", "resourceVersion": "8"}}"#)?)?;
    /// queue.update(object(r#"{"metadata": {"name": "a", "resourceVersion": "9"}}"#)?)?;
    /// queue.pop(&mut |deltas, _| {
    ///     assert_eq!((deltas.key().map(|key| &**key), deltas.len()), (Some("a"), 2));
    ///     Ok(())
    /// })?;
    /// assert_eq!(processed.current(), version("7"), "b is still queued");
    /// queue.pop(&mut |_, _| Ok(()))?;
    /// assert_eq!(processed.current(), version("9"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn processed(&self) -> Watermark;

    /// Closes the queue. From then on, [`pop`](Self::pop) returns an error instead of blocking if
    /// the queue is empty. Later writes are still queued and can be popped.
    fn close(&self);

    /// Whether the queue has been closed.
    fn is_closed(&self) -> bool;
}

/// Whether a popped item belongs to the initial list. client-go's `isInInitialList`.
///
/// ```
/// use k8s_informer::object::{Accessor, ResourceVersion};
/// use k8s_informer::queue::{DeltaFifo, Origin, Queue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok(word.as_str().into())));
/// queue.replace(vec![Arc::new("a".to_owned())], ResourceVersion::new("1"))?;
/// queue.add(Arc::new("b".to_owned()))?;
/// for expected in [Origin::InitialList, Origin::Later] {
///     queue.pop(&mut |_, origin| {
///         assert_eq!(origin, expected);
///         Ok(())
///     })?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "isInInitialList")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: an item belongs to the initial list or not.
pub enum Origin {
    /// The initial list: the first [`replace`](ReflectorStore::replace), if no other write came
    /// before it. It includes the deletions of known objects that the list lacks.
    InitialList,
    /// A later write: an event of a watch, a resync, a later list, or an item that comes back after
    /// the queue has synced; see [`Requeue`].
    Later,
}

/// A callback that processes the deltas of one item.
type Process<'a, T> = dyn FnMut(&Deltas<T>, Origin) -> Result<(), ProcessError> + 'a;

/// A callback that processes several items, each of a different object.
type ProcessBatch<'a, T> = dyn FnMut(&[Deltas<T>], Origin) -> Result<(), ProcessError> + 'a;

#[cfg(test)]
mod tests {
    /// The source files of each type in the tables.
    const SOURCES: [(&str, &[&str]); 8] = [
        ("Front", &[include_str!("front.rs")]),
        ("Locked", &[include_str!("front.rs")]),
        (
            "DeltaFifo",
            &[
                include_str!("delta_fifo/mod.rs"),
                include_str!("forward.rs"),
            ],
        ),
        (
            "Grouped",
            &[
                include_str!("delta_fifo/grouped.rs"),
                include_str!("delta_fifo/write.rs"),
            ],
        ),
        (
            "RealFifo",
            &[include_str!("real_fifo/mod.rs"), include_str!("forward.rs")],
        ),
        ("InOrder", &[include_str!("real_fifo/in_order.rs")]),
        ("Deltas", &[include_str!("deltas.rs")]),
        ("Queue", &[include_str!("mod.rs")]),
    ];

    /// The functions of `delta_fifo.go` in client-go 0.36.
    const DELTA_FIFO: &str = "NewDeltaFIFO NewDeltaFIFOWithOptions Close KeyOf Transformer HasSynced HasSyncedChecker \
        Name Done hasSynced_locked checkSynced_locked Add Update Delete dedupDeltas isDup isDeletionDup \
        queueActionLocked queueActionInternalLocked IsClosed Pop Replace Resync syncKeyLocked Oldest Newest copyDeltas";
    const REAL_FIFO: &str = "Close keyOf HasSynced HasSyncedChecker Name Done hasSynced_locked checkSynced_locked \
        addToItems_locked addReplaceToItemsLocked addResyncToItemsLocked Add Update Delete IsClosed Pop \
        whileProcessing_locked PopBatch Bookmark Replace Resync Transformer NewRealFIFO \
        NewRealFIFOWithOptions";

    /// Returns the rows of the table whose header names `file`.
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
    fn doc_tables_list_every_client_go_function() {
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
    fn doc_tables_name_existing_functions() {
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
