use std::error::Error;
use std::fmt;

use crate::store::StoreError;

/// The error of a process callback.
///
/// [`Requeue`] puts the item back into the queue, and [`BatchError`] lists the failed items of a
/// batch. After any other error, the item is not queued again.
pub type ProcessError = Box<dyn Error + Send + Sync>;

/// An error that a process callback returns to receive the same item again. client-go's
/// `ErrRequeue`, which existed until 1.32.
///
/// The documentation of each queue describes where the item is inserted. Until it has been
/// processed again, [`has_synced`](super::Queue::has_synced) counts it as unprocessed.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Fifo, Requeue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
/// queue.add(Arc::new("a".to_owned()))?;
/// queue.pop(&mut |_, _| Err(Requeue::new().into()))?;
/// assert!(queue.pop(&mut |_, _| Err(Requeue::because("not today").into())).is_err());
/// assert_eq!(queue.list_keys(), ["a".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Requeue {
    error: Option<ProcessError>,
}

impl Requeue {
    /// Requeues the item. The pop succeeds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requeues the item. The pop fails with `error`.
    pub fn because(error: impl Into<ProcessError>) -> Self {
        Self {
            error: Some(error.into()),
        }
    }
}

impl fmt::Display for Requeue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "requeued: {error}"),
            None => f.write_str("requeued"),
        }
    }
}

impl Error for Requeue {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_deref().map(|error| error as _)
    }
}

/// The error of a batch callback that failed on some items only.
///
/// The other items of the batch count as processed. To receive an item again, add a [`Requeue`] for
/// it. Any other error of a batch callback applies to all items of the batch.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{BatchError, DeltaFifo, Queue, Requeue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
/// for word in ["a", "b", "c"] {
///     queue.add(Arc::new(word.to_owned()))?;
/// }
/// let popped = queue.pop_batch(
///     &mut |batch, _| {
///         assert_eq!(batch.len(), 3);
///         let mut errors = BatchError::new();
///         errors.add(1, Requeue::new());
///         errors.into_result()
///     },
///     &mut |_, _| Ok(()),
/// );
/// assert!(popped.is_ok());
/// assert_eq!(queue.list_keys(), ["b".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct BatchError {
    errors: Vec<(usize, ProcessError)>,
}

impl BatchError {
    /// Creates an error without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the error of the item at this position of the batch.
    pub fn add(&mut self, position: usize, error: impl Into<ProcessError>) {
        self.errors.push((position, error.into()));
    }

    /// Returns the errors with the positions of their items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &ProcessError)> {
        self.errors
            .iter()
            .map(|(position, error)| (*position, error))
    }

    /// Converts the collected errors to the result of a batch callback.
    ///
    /// # Errors
    ///
    /// Returns `self` if it has entries.
    pub fn into_result(self) -> Result<(), ProcessError> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(self.into())
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (_, error)) in self.errors.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl Error for BatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.errors.first().map(|(_, error)| &**error as _)
    }
}

/// The outcome of a process callback.
pub(super) struct Processed {
    /// The outcome of the items that are not in `individual`.
    all: Outcome,
    individual: Vec<(usize, Outcome)>,
    result: Result<(), ProcessError>,
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    /// The item is not queued again.
    Failed,
    /// The item is queued again.
    Requeued,
}

impl Processed {
    /// Creates the outcome from the result of the callback, or from the message of its panic.
    pub(super) fn from(caught: Result<Result<(), ProcessError>, String>) -> Self {
        let error = match caught {
            Ok(Ok(())) => return Self::all(Outcome::Done, Ok(())),
            Ok(Err(error)) => error,
            Err(message) => message.into(),
        };
        match error.downcast::<BatchError>() {
            Ok(error) => Self::from_batch_error(*error),
            Err(error) => {
                let (outcome, error) = outcome(error);
                Self::all(outcome, error.map_or(Ok(()), Err))
            }
        }
    }

    fn all(all: Outcome, result: Result<(), ProcessError>) -> Self {
        Self {
            all,
            individual: Vec::new(),
            result,
        }
    }

    fn from_batch_error(BatchError { errors }: BatchError) -> Self {
        let (mut individual, mut left) = (Vec::with_capacity(errors.len()), BatchError::new());
        for (position, error) in errors {
            let (outcome, error) = outcome(error);
            individual.push((position, outcome));
            left.errors.extend(error.map(|error| (position, error)));
        }
        let result = match left.errors.pop() {
            Some((_, error)) if left.errors.is_empty() => Err(error),
            Some(last) => {
                left.errors.push(last);
                left.into_result()
            }
            None => Ok(()),
        };
        Self {
            all: Outcome::Done,
            individual,
            result,
        }
    }

    fn outcome(&self, position: usize) -> Outcome {
        let own = self.individual.iter().find(|(at, _)| *at == position);
        own.map_or(self.all, |(_, outcome)| *outcome)
    }

    /// Whether the callback requeued the item at this position of the batch.
    pub(super) fn is_requeued(&self, position: usize) -> bool {
        self.outcome(position) == Outcome::Requeued
    }

    /// Whether the item at this position of the batch failed and was not requeued.
    pub(super) fn failed(&self, position: usize) -> bool {
        self.outcome(position) == Outcome::Failed
    }

    /// Returns the result of the pop.
    pub(super) fn into_result<P>(self, popped: P) -> Result<P, PopError<P>> {
        match self.result {
            Ok(()) => Ok(popped),
            Err(error) => Err(PopError::Process { popped, error }),
        }
    }
}

/// Splits an error into the outcome of the item and the error of the pop.
fn outcome(error: ProcessError) -> (Outcome, Option<ProcessError>) {
    match error.downcast::<Requeue>() {
        Ok(requeue) => (Outcome::Requeued, requeue.error),
        Err(error) => (Outcome::Failed, Some(error)),
    }
}

/// The error of a pop: the queue is closed, or processing failed.
///
/// If processing failed, [`source`](Error::source) returns the error of the callback.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Fifo, PopError};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
/// queue.add(Arc::new("a".to_owned()))?;
/// match queue.pop(&mut |_, _| Err("not today".into())) {
///     Err(PopError::Process { popped, error }) => {
///         assert_eq!((popped.as_str(), error.to_string().as_str()), ("a", "not today"));
///     }
///     other => panic!("{other:?}"),
/// }
/// queue.close();
/// assert!(matches!(queue.pop(&mut |_, _| Ok(())), Err(PopError::Closed)));
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
pub enum PopError<P> {
    /// The queue is closed and empty. client-go's `ErrFIFOClosed`.
    Closed,
    /// The callback failed or panicked. The item or batch is no longer in the queue, except for
    /// items that the callback requeued with [`Requeue`].
    Process {
        /// The item or batch that the callback received.
        popped: P,
        /// The error of the callback.
        error: ProcessError,
    },
}

impl<P> fmt::Debug for PopError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("Closed"),
            Self::Process { error, .. } => f
                .debug_struct("Process")
                .field("error", error)
                .finish_non_exhaustive(),
        }
    }
}

impl<P> fmt::Display for PopError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the queue is closed"),
            Self::Process { error, .. } => write!(f, "processing failed: {error}"),
        }
    }
}

impl<P> Error for PopError<P> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Closed => None,
            Self::Process { error, .. } => Some(&**error),
        }
    }
}

/// A value that a queue rejected, and the reason.
///
/// The write methods of [`ReflectorStore`](crate::store::ReflectorStore) do not return rejected
/// objects. They take an `Arc`, so keep a clone if you need the object.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::Heap;
/// use k8s_informer::store::StoreError;
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|number: &u32| Ok::<_, KeyError>(number.to_string().into()));
/// let heap = Heap::new(accessor, u32::cmp);
/// heap.close();
/// let refused = heap.add(Arc::new(7)).unwrap_err();
/// assert!(*refused.value == 7 && matches!(refused.reason, StoreError::Closed));
/// ```
pub struct Refused<V> {
    /// The rejected value.
    pub value: V,
    /// The reason for the rejection.
    pub reason: StoreError,
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<V> Error for Refused<V> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}
