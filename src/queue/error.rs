use std::error::Error;
use std::fmt;

use crate::base::panic::Panicked;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a process callback: processing failed, or a [`Requeue`].
///
/// Create it with `?` or `into`. Everything that converts into a `Box<dyn Error + Send + Sync>`, an
/// error or a text, becomes a failure: the item is not queued again, and the pop returns the error as
/// [`PopError::Process`]. Like that box, this type does not implement [`Error`].
///
/// ```
/// use k8s_informer::queue::{ProcessError, Requeue};
///
/// fn process(port: &str) -> Result<u16, ProcessError> {
///     if port.is_empty() {
///         return Err(Requeue::new().into()); // not known yet
///     }
///     Ok(port.parse()?)
/// }
/// assert_eq!(process("").unwrap_err().to_string(), "requeued");
/// assert_eq!(process("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub struct ProcessError(pub(crate) Failure);

/// The kinds of [`ProcessError`].
#[derive(Debug)]
pub(crate) enum Failure {
    /// No item has been processed.
    All(BoxError),
    /// Some items of a batch have not been processed.
    Some(BatchError),
    /// The callback requests all items again.
    Requeue(Requeue),
}

impl ProcessError {
    /// Returns the error of the pop, or `None` if the callback gave no reason for its [`Requeue`].
    pub(crate) fn into_error(self) -> Option<BoxError> {
        match self.0 {
            Failure::All(error) => Some(error),
            Failure::Some(errors) => Some(errors.into()),
            Failure::Requeue(Requeue { reason }) => reason,
        }
    }
}

impl<E: Into<BoxError>> From<E> for ProcessError {
    fn from(error: E) -> Self {
        Self(Failure::All(error.into()))
    }
}

impl From<Requeue> for ProcessError {
    fn from(requeue: Requeue) -> Self {
        Self(Failure::Requeue(requeue))
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Failure::All(error) => error.fmt(f),
            Failure::Some(errors) => errors.fmt(f),
            Failure::Requeue(Requeue { reason: None }) => f.write_str("requeued"),
            Failure::Requeue(Requeue {
                reason: Some(reason),
            }) => write!(f, "requeued: {reason}"),
        }
    }
}

impl fmt::Debug for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returned by a process callback to receive the same item again. client-go's `ErrRequeue`, which
/// existed until 1.32.
///
/// | queue | the item |
/// |---|---|
/// | [`Fifo`](super::Fifo) | goes to the end, unless its key was written or deleted, or the queue replaced, during processing |
/// | [`DeltaFifo`](super::DeltaFifo) | goes to the end, unless newer changes of its key wait; a resync of the same state does not count |
/// | [`RealFifo`](super::RealFifo) | goes to the front, because this queue keeps the order and drops no change |
///
/// The first two count the item as processed for their `has_synced`, as in client-go: it counts
/// once. A callback that receives it after the queue has synced is not notified that it belongs to the
/// initial list. A [`RealFifo`](super::RealFifo) counts it when it has been processed. For the
/// [watermark](super::Queue::processed), no queue counts it before.
///
/// If nothing else waits, the next pop returns the item at once. To wait before a retry, use a
/// [work queue](crate::workqueue).
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Fifo, Requeue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// queue.add(Arc::new("a1".to_owned()))?;
/// queue.pop(&mut |_, _| Err(Requeue::new().into()))?;
/// assert_eq!(queue.list(), [Arc::new("a1".to_owned())]);
///
/// // The pop fails with the reason. The item is in the queue again.
/// assert!(queue.pop(&mut |_, _| Err(Requeue::because("not today").into())).is_err());
/// assert_eq!(queue.list_keys(), ["a"]);
///
/// // Something newer waits, so the item does not come back.
/// queue.pop(&mut |_, _| {
///     queue.add(Arc::new("a2".to_owned()))?;
///     Err(Requeue::new().into())
/// })?;
/// assert_eq!(queue.list(), [Arc::new("a2".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
#[doc(alias = "ErrRequeue")]
pub struct Requeue {
    pub(crate) reason: Option<BoxError>,
}

impl Requeue {
    /// Requests the item again. The pop succeeds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the item again. The pop fails with `reason`.
    pub fn because(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            reason: Some(reason.into()),
        }
    }
}

/// The error of a batch callback that failed on some items only. Any other error of a batch
/// callback applies to all items of the batch.
#[derive(Debug, Default)]
pub(crate) struct BatchError {
    errors: Vec<(usize, BoxError)>,
}

impl BatchError {
    /// Returns the errors of the item at this position of the batch.
    pub(crate) fn of(&self, position: usize) -> impl Iterator<Item = &BoxError> {
        let errors = self.errors.iter().filter(move |(at, _)| *at == position);
        errors.map(|(_, error)| error)
    }

    /// Adds the error of the item at this position of the batch.
    pub(crate) fn add(&mut self, position: usize, error: impl Into<BoxError>) {
        self.errors.push((position, error.into()));
    }

    /// Converts the collected errors to the result of a batch callback.
    pub(crate) fn into_result(self) -> Result<(), ProcessError> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(ProcessError(Failure::Some(self)))
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
pub(super) struct Processed(Result<(), ProcessError>);

impl Processed {
    /// Creates the outcome from the result of the callback, or from its panic.
    pub(super) fn from(caught: Result<Result<(), ProcessError>, Panicked>) -> Self {
        Self(caught.unwrap_or_else(|panic| Err(panic.into())))
    }

    /// Whether the callback requests its items again.
    pub(super) fn is_requeued(&self) -> bool {
        matches!(&self.0, Err(ProcessError(Failure::Requeue(_))))
    }

    /// Whether the item at this position of the batch has been processed without an error.
    pub(super) fn is_done(&self, position: usize) -> bool {
        match &self.0 {
            Ok(()) => true,
            Err(ProcessError(Failure::Some(errors))) => errors.of(position).next().is_none(),
            Err(ProcessError(Failure::All(_) | Failure::Requeue(_))) => false,
        }
    }

    /// Returns the result of the pop.
    pub(super) fn into_result<P>(self, popped: P) -> Result<P, PopError<P>> {
        match self.0.err().and_then(ProcessError::into_error) {
            None => Ok(popped),
            Some(error) => Err(PopError::Process { popped, error }),
        }
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
#[non_exhaustive]
pub enum PopError<P> {
    /// Nothing is left to pop: the queue is closed and empty. client-go's `ErrFIFOClosed`.
    #[doc(alias = "ErrFIFOClosed")]
    Closed,
    /// The callback failed or panicked. The item or batch is no longer in the queue, unless the
    /// callback returned a [`Requeue`] with a reason.
    Process {
        /// The item or batch that the callback received.
        popped: P,
        /// The error of the callback, or the reason of its [`Requeue`].
        error: Box<dyn Error + Send + Sync>,
    },
}

impl<P> PopError<P> {
    /// Converts the item or batch.
    pub(crate) fn map<R>(self, convert: impl FnOnce(P) -> R) -> PopError<R> {
        match self {
            Self::Closed => PopError::Closed,
            Self::Process { popped, error } => PopError::Process {
                popped: convert(popped),
                error,
            },
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::panic::catch;

    #[test]
    fn batch_error_fails_only_its_items_and_names_all_errors() {
        let mut errors = BatchError::default();
        errors.add(0, "first");
        errors.add(2, "last");
        let processed = Processed::from(Ok(errors.into_result()));
        assert_eq!(
            [0, 1, 2].map(|at| processed.is_done(at)),
            [false, true, false]
        );
        let error = processed.into_result(()).unwrap_err();
        assert_eq!(error.to_string(), "processing failed: first; last");
        assert!(!Processed::from(Ok(Err("all".into()))).is_done(1));
        let panicked = catch(|| panic!("not now")).unwrap_err();
        assert!(!Processed::from(Err(panicked)).is_done(1));
    }
}
