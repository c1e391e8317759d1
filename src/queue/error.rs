use std::error::Error;
use std::fmt;

/// The error of a process callback. The item is not queued again.
pub type ProcessError = Box<dyn Error + Send + Sync>;

/// The error of a batch callback that failed on some items only. Any other error of a batch
/// callback applies to all items of the batch.
#[derive(Debug, Default)]
pub(crate) struct BatchError {
    errors: Vec<(usize, ProcessError)>,
}

impl BatchError {
    /// Returns the errors of the item at this position of the batch.
    pub(crate) fn of(&self, position: usize) -> impl Iterator<Item = &ProcessError> {
        let errors = self.errors.iter().filter(move |(at, _)| *at == position);
        errors.map(|(_, error)| error)
    }

    /// Adds the error of the item at this position of the batch.
    pub(crate) fn add(&mut self, position: usize, error: impl Into<ProcessError>) {
        self.errors.push((position, error.into()));
    }

    /// Converts the collected errors to the result of a batch callback.
    pub(crate) fn into_result(self) -> Result<(), ProcessError> {
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
pub(super) struct Processed(Result<(), ProcessError>);

impl Processed {
    /// Creates the outcome from the result of the callback, or from the message of its panic.
    pub(super) fn from(caught: Result<Result<(), ProcessError>, String>) -> Self {
        Self(caught.unwrap_or_else(|panic| Err(panic.into())))
    }

    /// Whether the item at this position of the batch failed.
    pub(super) fn failed(&self, position: usize) -> bool {
        self.0.as_ref().is_err_and(|error| {
            let failed = error.downcast_ref::<BatchError>();
            failed.is_none_or(|failed| failed.of(position).next().is_some())
        })
    }

    /// Returns the result of the pop.
    pub(super) fn into_result<P>(self, popped: P) -> Result<P, PopError<P>> {
        match self.0 {
            Ok(()) => Ok(popped),
            Err(error) => Err(PopError::Process { popped, error }),
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
pub enum PopError<P> {
    /// The queue is closed and empty. client-go's `ErrFIFOClosed`.
    Closed,
    /// The callback failed or panicked. The item or batch is no longer in the queue.
    Process {
        /// The item or batch that the callback received.
        popped: P,
        /// The error of the callback.
        error: ProcessError,
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

    #[test]
    fn batch_error_fails_only_its_items_and_names_all_errors() {
        let mut errors = BatchError::default();
        errors.add(0, "first");
        errors.add(2, "last");
        let processed = Processed::from(Ok(errors.into_result()));
        assert_eq!(
            [0, 1, 2].map(|at| processed.failed(at)),
            [true, false, true]
        );
        let error = processed.into_result(()).unwrap_err();
        assert_eq!(error.to_string(), "processing failed: first; last");
        assert!(Processed::from(Ok(Err("all".into()))).failed(1));
        assert!(Processed::from(Err("panicked".to_owned())).failed(1));
    }
}
