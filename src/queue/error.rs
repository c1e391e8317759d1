use std::error::Error;
use std::fmt;

use crate::store::StoreError;

/// What a consumer's callback failed with.
///
/// [`Requeue`] is the one kind that a queue understands; any other ends the matter.
pub type ProcessError = Box<dyn Error + Send + Sync>;

/// What a consumer's callback answers to get the same item again. client-go's `ErrRequeue`, which it had
/// until 1.32.
///
/// The item goes back into the queue, as the queue's own documentation says, and is still waiting as far as
/// [`has_synced`](super::Queue::has_synced) is concerned.
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
    /// Again, and the pop that this ends has not failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Again, and the pop fails with this.
    pub fn because(error: impl Into<ProcessError>) -> Self {
        Self {
            error: Some(error.into()),
        }
    }
}

impl fmt::Display for Requeue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "to be queued again: {error}"),
            None => f.write_str("to be queued again"),
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
/// The other items of the batch have been processed. To get an item again, add a [`Requeue`] for it. A batch callback
/// that fails with any other error has failed on all items.
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
    /// Without errors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the error of the item at this position of the batch.
    pub fn add(&mut self, position: usize, error: impl Into<ProcessError>) {
        self.errors.push((position, error.into()));
    }

    /// What the callback returns.
    ///
    /// # Errors
    ///
    /// Itself, if it has errors.
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

/// How a callback ended, as a queue sees it.
pub(super) struct Processed {
    /// The outcome of each item without one of its own.
    all: Outcome,
    some: Vec<(usize, Outcome)>,
    result: Result<(), ProcessError>,
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    /// For good.
    Failed,
    /// The callback wants the item again.
    Again,
}

impl Processed {
    /// From what the callback returned, or the message of its panic.
    pub(super) fn from(caught: Result<Result<(), ProcessError>, String>) -> Self {
        let error = match caught {
            Ok(Ok(())) => return Self::all(Outcome::Done, Ok(())),
            Ok(Err(error)) => error,
            Err(message) => message.into(),
        };
        match error.downcast::<BatchError>() {
            Ok(error) => Self::some(*error),
            Err(error) => {
                let (outcome, error) = outcome(error);
                Self::all(outcome, error.map_or(Ok(()), Err))
            }
        }
    }

    fn all(all: Outcome, result: Result<(), ProcessError>) -> Self {
        Self {
            all,
            some: Vec::new(),
            result,
        }
    }

    fn some(BatchError { errors }: BatchError) -> Self {
        let (mut some, mut left) = (Vec::with_capacity(errors.len()), BatchError::new());
        for (position, error) in errors {
            let (outcome, error) = outcome(error);
            some.push((position, outcome));
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
            some,
            result,
        }
    }

    fn outcome(&self, position: usize) -> Outcome {
        let own = self.some.iter().find(|(at, _)| *at == position);
        own.map_or(self.all, |(_, outcome)| *outcome)
    }

    /// Whether the callback wants the item at this position of the batch again.
    pub(super) fn again(&self, position: usize) -> bool {
        self.outcome(position) == Outcome::Again
    }

    /// Whether the processing of the item at this position of the batch has failed for good.
    pub(super) fn failed(&self, position: usize) -> bool {
        self.outcome(position) == Outcome::Failed
    }

    /// What the pop answers.
    pub(super) fn into_result<P>(self, popped: P) -> Result<P, PopError<P>> {
        match self.result {
            Ok(()) => Ok(popped),
            Err(error) => Err(PopError::Process { popped, error }),
        }
    }
}

/// What an error means, and what the pop fails with.
fn outcome(error: ProcessError) -> (Outcome, Option<ProcessError>) {
    match error.downcast::<Requeue>() {
        Ok(requeue) => (Outcome::Again, requeue.error),
        Err(error) => (Outcome::Failed, Some(error)),
    }
}

/// Why a pop gave nothing, or what it gave was not processed.
///
/// What the callback failed with is the [`source`](Error::source), too.
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
    /// The queue is closed, and empty. client-go's `ErrFIFOClosed`.
    Closed,
    /// The callback failed, or it panicked. What was popped is given back; it is not in the queue any more,
    /// unless the callback asked for that with [`Requeue`].
    Process {
        /// What was handed to the callback.
        popped: P,
        /// What it failed with.
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
            Self::Process { error, .. } => write!(f, "processing: {error}"),
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

/// What a queue did not take, given back, and why.
///
/// The writes of [`ReflectorStore`](crate::store::ReflectorStore) don't give back what they refuse: it is a shared
/// `Arc`, of which the caller keeps a clone if he needs it.
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
    /// What was not taken.
    pub value: V,
    /// Why not.
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
